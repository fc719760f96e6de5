"""Files of users with a mistake of many kinds, for `dlstep laws`: source text, and what the command must say of each."""

from dataclasses import dataclass

HEAD = """\
import itertools, os, sys, time
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Interval

from dlstep.core import Block, Choice, Rule, SampleSpec, Span, check_ranges
from dlstep.strategies import Blockwise


@dataclass(frozen=True, slots=True)
class Mine(Choice):
    number: Annotated[int, Interval(ge=0, le=9)] = 1

    def __post_init__(self):
        {post}

    {sample_spec}
    def chosen(self, block_pass):
        {chosen}
        return [0] if block_pass.must else []


RULE = Mine
"""
STRATEGY = """\
from dataclasses import dataclass, replace

from dlstep.core import Grid, Span
from dlstep.strategies import Blockwise


@dataclass(frozen=True, slots=True)
class Mine(Blockwise):
    def grid(self, request):
        return Grid(0, self.block_size)

    def schedule(self, sequence, spec):
        right = Blockwise.schedule(self, sequence, spec)
        {schedule}
        return right

    def commit(self, sequence, span, rows, spec):
        right = Blockwise.commit(self, sequence, span, rows, spec)
        {commit}
        return right


STRATEGY = Mine
"""
UNBOUNDED = """\
from dataclasses import dataclass

from dlstep.core import Choice


@dataclass(frozen=True, slots=True)
class Mine(Choice):
    rounds: int = 3

    def chosen(self, block_pass):
        best = 0
        for number in range(self.rounds):
            best = (best + number) % 7
        return [0] if block_pass.must else []


RULE = Mine
"""
UNDEFAULTED = """\
from dataclasses import dataclass

from dlstep.core import Choice


@dataclass(frozen=True, slots=True)
class Mine(Choice):
    share: float

    def chosen(self, block_pass):
        return [0]


RULE = Mine
"""


@dataclass(frozen=True, slots=True)
class Faulty:
    """A file with a mistake.

    Attributes:
        source: The text of the file.
        message: Parts of what the command must print, in any order. A file that ends the process prints them to stderr.
        place: The line of the mistake as it stands in the file; its number must be printed. Empty if no line is wrong.
        code: The exit code of the command.
    """

    source: str
    message: tuple[str, ...]
    place: str = ""
    code: int = 1

    @property
    def line(self) -> int:
        """The number of the line of the mistake."""
        return next(number for number, line in enumerate(self.source.splitlines(), 1) if line.strip() == self.place)


def rule(chosen: str = "pass", post: str = "check_ranges(self)", sample_spec: str = "") -> str:
    """A rule that unmasks one position in each forward pass, with lines put in."""
    return HEAD.format(chosen=chosen, post=post, sample_spec=sample_spec)


def strategy(schedule: str = "pass", commit: str = "pass") -> str:
    """A strategy with lines put in."""
    return STRATEGY.format(schedule=schedule, commit=commit)


FILES: dict[str, Faulty] = {
    "unbounded number": Faulty(
        UNBOUNDED,
        (
            "warning: Mine.rounds has no lower or no upper bound",
            "rounds: Annotated[int, Interval(ge=0, le=8)]",
        ),
        code=0,
    ),
    "never accepts": Faulty(
        rule("return []"), ("Mine.chosen (", "returned no index although must is true: it must unmask at least one")
    ),
    "exception": Faulty(
        rule("block_pass.samples.probabilities[0] / 0"),
        ("Mine.chosen raised ZeroDivisionError: float division by zero",),
        "block_pass.samples.probabilities[0] / 0",
    ),
    "missing statistic": Faulty(
        rule("block_pass.samples.entropies[0]"), ("Mine.chosen raised IndexError",), "block_pass.samples.entropies[0]"
    ),
    "no default": Faulty(UNDEFAULTED, ("Mine.share has no default: each option of a strategy or rule needs one",), code=2),
    "exit": Faulty(rule("sys.exit(3)"), ("Mine.chosen raised SystemExit: 3",), "sys.exit(3)"),
    "interrupt": Faulty(rule("raise KeyboardInterrupt"), ("dlstep: interrupted",), code=130),
    "output of the failing case": Faulty(
        rule("print('a line'); block_pass.samples.probabilities[0] / 0"), ("It printed:", "a line")
    ),
}
DEAF = """
        while True:
            try:
                while True: int()
            except BaseException: int()
"""
ENDLESS = "while True: pass"
TIMEOUT = "Timeout (>1.5s) from pytest-timeout. (--law_timeout)"
STACK = "Timeout (0:00:02.5"  # of faulthandler, a second later
ENDLESS_FILES: dict[str, Faulty] = {
    "in chosen": Faulty(rule(ENDLESS), (TIMEOUT,), ENDLESS),
    "in schedule": Faulty(strategy(schedule=ENDLESS), (TIMEOUT,), ENDLESS),
    "in commit": Faulty(strategy(commit=ENDLESS), (TIMEOUT,), ENDLESS),
    "in __post_init__": Faulty(rule(post="while self.number > 1: pass"), (TIMEOUT,), "while self.number > 1: pass"),
    "output": Faulty(rule("while True: print('a line')"), (TIMEOUT,), "while True: print('a line')"),
}
# These end the process, so each has one for itself.
FATAL: dict[str, Faulty] = {
    "catches every exception": Faulty(rule(DEAF), (STACK,), "while True: int()"),
    "stays in C": Faulty(rule("sum(itertools.repeat(1))"), (STACK,), "sum(itertools.repeat(1))"),
    "exits at once": Faulty(rule("os._exit(7)"), (), code=7),
    "crashes": Faulty(rule("os.abort()"), ("Fatal Python error: Aborted",), "os.abort()", code=-6),
}

"""The laws as pytest tests, for `dlstep laws`: one test for each law and each strategy.

When a law exceeds its time limit, pytest-timeout raises `pytest.fail.Exception` in the running code. Hypothesis would treat
this exception as a failing case and run the same code again, which may never return. `Endless` therefore ends the law. Code
that catches every exception, or does not return from C, continues: pytest's faulthandler then prints the stack and ends the
process.
"""

import os
from collections.abc import Iterator
from contextlib import redirect_stdout, suppress
from dataclasses import fields, replace
from io import StringIO
from math import inf
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

import hypothesis
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.database import InMemoryExampleDatabase
from hypothesis.errors import HypothesisException
from hypothesis.strategies import DataObject, data as any_data

from .. import rules, strategies
from ..core import Options, RequestFault, Rule, Spec, Strategy, options_of, probe
from ..core.errors import LIBRARIES, NOT_USER_CODE
from . import laws
from .generators import open_fields

CARRIERS = ("multi_bd", "dual_cache")
# Try `progress` first: if it does not hold, other laws may never end.
KNOWN = {law.__name__: law for law in sorted(laws.LAWS, key=lambda law: law is not laws.progress)}
PRINTED = 1000  # maximum number of characters shown of a failing case's output
HIDDEN = (*NOT_USER_CODE, *LIBRARIES, str(Path(hypothesis.__file__).parents[1]))  # pytest is in the same folder as Hypothesis


class LawsPlugin(NamedTuple):
    """A pytest plugin whose tests are laws. Its fields limit the number of cases and the time of each law."""

    subjects: list[tuple[str, Strategy]]
    laws: list[str]
    examples: int
    seed: int
    timeout: float

    def run(self) -> int:
        """Run the tests until one fails. Return the exit code of pytest. Raises KeyboardInterrupt after Ctrl-C."""
        isolated = f"-c {os.devnull} --rootdir=. -p no:cacheprovider --disable-plugin-autoload -p pytest_timeout".split()
        shown = ["-q", "-x", "-rN", "-o", "verbosity_test_cases=1", "-o", "console_output_style=classic"]
        ended = ("-o", f"faulthandler_timeout={self.timeout + 1}", "-o", "faulthandler_exit_on_timeout=true")
        code = pytest.main([*isolated, *shown, *ended, f"--timeout={self.timeout}"], [self])
        if code == pytest.ExitCode.INTERRUPTED:
            raise KeyboardInterrupt
        return code

    def pytest_collection(self, session: pytest.Session) -> bool:
        """Replace the collection of files."""
        session.items = [
            LawItem.from_parent(session, name=law, nodeid=f"{title}::{law}", plugin=self, strategy=strategy)
            for title, strategy in self.subjects
            for law in self.laws
        ]
        session.testscollected = len(session.items)
        return True


class Endless(BaseException):
    """Raised to end a law that exceeded its time limit."""


class ShrunkEnough(BaseException):
    """Raised to end the search for a smaller failing case."""


class LawItem(pytest.Item):
    """A pytest test that tries a law on random cases of a strategy."""

    def __init__(self, *, plugin: LawsPlugin, strategy: Strategy, **node: Any) -> None:
        super().__init__(**node)
        self.plugin, self.strategy = plugin, strategy

    def runtest(self) -> None:
        """Try random cases until one fails. Then search a tenth of the time limit for a smaller failing case."""
        end, database = inf, InMemoryExampleDatabase()

        def case(data: DataObject) -> None:
            nonlocal end
            try:
                with redirect_stdout(StringIO()) as output:
                    KNOWN[self.name](self.strategy, data)
            except HypothesisException:
                raise
            except (Exception, SystemExit, pytest.fail.Exception) as error:
                cause = error.__cause__ if isinstance(error, RequestFault) else error
                if isinstance(cause, pytest.fail.Exception):
                    raise Endless(f"{cause} (--law_timeout)").with_traceback(cause.__traceback__) from None
                if printed := output.getvalue()[-PRINTED:]:
                    error.add_note(f"It printed:\n{printed}")
                if monotonic() < end:
                    end = min(end, monotonic() + self.plugin.timeout / 10)
                    raise
            if monotonic() > end:  # after all draws, because Hypothesis requires equal cases to make equal draws
                raise ShrunkEnough

        def search(*phases: Phase) -> None:
            trial = settings(
                max_examples=self.plugin.examples,
                deadline=None,
                database=database,
                phases=phases,
                report_multiple_bugs=False,
                suppress_health_check=(HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much),
            )
            trial(seed(self.plugin.seed)(given(any_data())(case)))()

        with suppress(ShrunkEnough):
            return search(Phase.generate, Phase.shrink)
        end = inf
        return search(Phase.reuse)  # run the smallest case found so far, which Hypothesis reports

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return the lines of the law and of user code that failed, and the smallest case."""
        return excinfo.getrepr(style="short", tbfilter=_relevant)

    def reportinfo(self) -> tuple[Path, None, str]:
        """Return the first line of the law's docstring as the title of a failure."""
        return self.path, None, str(KNOWN[self.name].__doc__).partition("\n")[0]


def _relevant(excinfo: pytest.ExceptionInfo[BaseException]) -> Any:
    """Return the frames of user code and of the law."""
    law = Path(str(laws.__file__))
    found = excinfo.traceback.filter(lambda entry: entry.path == law or not str(entry.path).startswith(HIDDEN))
    return found or excinfo.traceback[-1:]


def subjects(name: str) -> list[tuple[str, Strategy]]:
    """Return the strategy of this name, or the rule in each strategy that fits, with titles.

    Raises ValueError for an unknown name.
    """
    try:
        return [(name, strategies.PLUGINS.value(name))]
    except ValueError as error:
        no_strategy = error
    try:
        rule = rules.PLUGINS.value(name)
    except ValueError as error:
        if "is unknown" not in str(error):
            raise error if "RULE" in str(no_strategy) else no_strategy from None
        known = f"strategies are {', '.join(strategies.PLUGINS.available())}; rules are {', '.join(rules.PLUGINS.available())}"
        raise ValueError(f"no strategy, rule, .py file or module is called {name!r}: {known}") from None
    found = [(f"{name} on {carrier}", carried(carrier, rule)) for carrier in CARRIERS]
    spec = Spec(mask_id=0, eos_ids=(1,), vocab_size=50)
    able = [(title, value) for title, value in found if not value.refusal(spec, probe(spec))]
    if not able:
        raise ValueError(f"rule {name} fits none of {', '.join(CARRIERS)}: {found[0][1].refusal(spec, probe(spec))}")
    return able


def carried(carrier: str, rule: Rule) -> Strategy:
    """Return a strategy with this rule."""
    base = strategies.PLUGINS.value(carrier)
    equal = {"cache": "none"} if "cache" in options_of(base) else {}
    return replace(base, rule=rule, **equal)  # pyright: ignore[reportCallIssue]


def warnings(value: Options) -> Iterator[str]:
    """Yield a warning for each number without both bounds in user-defined classes: a strategy or rule, and its inner rules."""
    cls = type(value)
    if not cls.__module__.startswith("dlstep."):
        for name, kind, low, high in open_fields(value):
            bounded = f"{name}: Annotated[{kind.__name__}, Interval(ge={low}, le={high})]"
            yield (
                f"{cls.__name__}.{name} has no lower or no upper bound, so a request may set it to any number. The laws try "
                f"{low} to {high} only. Write both bounds, for example {bounded}."
            )
    for field in fields(value):
        if isinstance(held := getattr(value, field.name), Options):
            yield from warnings(held)

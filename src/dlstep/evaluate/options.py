"""Options of an evaluation: which problems, how they are asked, and where the results go."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Annotated, Any

from annotated_types import Ge, Gt, Interval

from ..core import SamplingParams
from ..core.checks import check_ranges, listed, pairs_of, short
from ..core.options import StrategyOptions, sorted_options
from .documents import SOURCES
from .prompts import FORMS, MOST_SHOTS

CODE_TASKS = ("humaneval", "mbpp")
MOST_OPTION_SETS = 1000


@dataclass(frozen=True, slots=True)
class EvalOptions:
    """Options of an evaluation. Raises ValueError naming field, value and what is allowed."""

    tasks: tuple[str, ...] = ("shells",)
    """Tasks, as [gsm8k,math500]: shells, gsm8k, math500, humaneval, mbpp, questions."""
    data: str | None = None
    """Folder with GSM8K.json, MATH500.json, HumanEval.json and MBPP_sanitized.json; shells needs none."""
    questions: str | None = None
    """File of the task questions: lines of JSON, or a list, with a `prompt` and an `answer` each."""
    out: str = "dlstep-eval"
    """Folder of the results; a run that was broken off goes on there."""
    dataset_limit: Annotated[int, Ge(1)] | None = None
    """Most problems of each task, the first ones; null: all, of shells 500."""
    problem_seed: int = 0
    """Seed that draws the problems of shells."""
    chat: bool = False
    """Ask in conversations, by the model's chat template, and not with text to continue."""
    shots: Annotated[int, Interval(ge=0, le=MOST_SHOTS)] = 0
    """Worked examples in front of each question, from 0 to 3."""
    run_code: bool = False
    """Run the programs of humaneval and mbpp, in a jail; without it they are only written."""
    code_seconds: Annotated[float, Interval(gt=0.0, le=3600.0)] = 10.0
    """Seconds that a program may run."""
    workers: Annotated[int, Interval(ge=1, le=64)] = 1
    """Processes that decode, each with the network of its own; of several CUDA devices each takes one."""
    worker_timeout: Annotated[float, Interval(gt=0.0, le=1e6)] = 300.0
    """With several workers: seconds without a heartbeat from a worker, or for one forward pass, after which the run kills that
    worker and the other workers answer its problems."""
    grid: tuple[StrategyOptions, ...] = ((),)
    """Options of the strategy to try, as '{"accept_threshold": [0.5, 0.9]}'; every combination answers every problem."""
    max_tokens: Annotated[int, Ge(1)] | None = None
    """Most tokens of an answer; null: 64 for shells, 256 for gsm8k and questions, 512 for the others."""
    temperature: float = 0.0
    """0 takes the most probable token, more flattens the distribution."""
    top_k: int = 0
    """Sample among so many most probable tokens; 0: all."""
    top_p: float = 1.0
    """Sample among the most probable tokens that together have this probability."""
    min_p: float = 0.0
    """Sample among tokens that have at least this share of the best one's probability."""
    ignore_eos: bool = False
    """Go on after an end-of-sequence token."""
    stop: tuple[str, ...] = ()
    """Texts that end an answer; empty: those of the task, in conversations none."""
    stop_token_ids: tuple[int, ...] = ()
    """Ids that end an answer."""
    max_nfe: Annotated[int, Ge(1)] | None = None
    """Most forwards of an answer that sample."""
    max_repetition_run: Annotated[int, Gt(1)] | None = None
    """End an answer whose last so many tokens are equal."""

    def __post_init__(self) -> None:
        check_ranges(self)
        for name in self.tasks:
            if name not in SOURCES:
                raise ValueError(f"EvalOptions.tasks: {short(name)} is none, choose from {', '.join(SOURCES)}")
        if not self.tasks or len(set(self.tasks)) < len(self.tasks):
            raise ValueError(f"EvalOptions.tasks must name tasks, each once, got {short(self.tasks)}")
        if ("questions" in self.tasks) != (self.questions is not None):
            raise ValueError(
                "task questions reads a file: give --questions FILE"
                if self.questions is None
                else f"--questions {short(self.questions)} is for the task questions, and tasks are {short(self.tasks)}"
            )
        if self.shots and "questions" in self.tasks:
            raise ValueError(f"EvalOptions.shots must be 0, got {self.shots}: there are no worked examples for task questions")
        if not self.grid or len(set(self.grid)) < len(self.grid):
            raise ValueError(f"EvalOptions.grid must hold sets of options, each once, got {short(self.grid)}")
        for task in self.tasks:
            self.params(task, self.grid[0])  # what is out of range is told now

    def params(self, task: str, options: StrategyOptions) -> SamplingParams:
        """How an answer of `task` is sampled with these options of the strategy."""
        form = FORMS[task]
        return SamplingParams(
            max_tokens=self.max_tokens or form.max_tokens,
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            ignore_eos=self.ignore_eos,
            stop_token_ids=self.stop_token_ids,
            stop=self.stop or (() if self.chat else form.stop),
            max_nfe=self.max_nfe,
            max_repetition_run=self.max_repetition_run,
            strategy_options=options,
        )


def grid_of(given: object) -> tuple[StrategyOptions, ...]:
    """Every combination of the values that a mapping lists for its options; a single value need not be in a list.

    Raises ValueError for what is no such mapping, and for too many combinations.
    """
    if given is None:
        return ((),)
    pairs = pairs_of(given) if isinstance(given, Mapping) else None
    if pairs is None:
        raise ValueError(
            f'--grid takes options with lists of values, like {{"accept_threshold": [0.5, 0.9]}}, got {short(given)}'
        )
    lines: list[list[tuple[str, Any]]] = []
    count = 1
    for name, value in pairs:
        values = listed(value)
        values = [value] if values is None else list(values)
        count *= len(values)
        if not 0 < count <= MOST_OPTION_SETS:
            raise ValueError(f"--grid must have from 1 to {MOST_OPTION_SETS} combinations, {short(name)} makes it {count}")
        lines.append([(name, each) for each in values])
    return tuple(dict.fromkeys(sorted_options("--grid", chosen) for chosen in product(*lines)))

"""Options of an evaluation: which problems, how they are asked, and where the results go."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from operator import attrgetter
from typing import Annotated, Any

from annotated_types import Ge, Gt, Interval

from ..core import Config, SamplingParams, Strategy, probe, refusal
from ..core.checks import check_ranges, listed, pairs_of, short
from ..core.options import StrategyOptions, sorted_options
from .documents import SOURCES, worked
from .prompts import FORMS, Form, Prompts

CODE_TASKS = ("humaneval", "mbpp")
MOST_OPTION_SETS = 1000
SAMPLING = (  # options that are passed on as they are
    "temperature", "top_k", "top_p", "min_p", "ignore_eos", "stop_token_ids", "max_nfe", "max_repetition_run"
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class EvalOptions:
    """Options of an evaluation. Raises ValueError naming field, value and what is allowed."""

    tasks: tuple[str, ...] = ("shells",)
    """Tasks, as [gsm8k,math500]: shells, gsm8k, math500, humaneval, mbpp, questions."""
    data: str | None = None
    """Folder with GSM8K.json, MATH500.json, HumanEval.json and MBPP_sanitized.json; shells needs
    none."""
    questions: str | None = None
    """File of the task questions: lines of JSON, or a list, with a `prompt` and an `answer`
    each."""
    out: str = "dlstep-eval"
    """Folder of the results; an interrupted run resumes there."""
    dataset_limit: Annotated[int, Ge(1)] | None = None
    """Maximum number of problems of each task, from the first on; null: all of them, 500 for
    shells."""
    problem_seed: int = 0
    """Seed that draws the problems of shells."""
    chat: bool = False
    """Ask in conversations, with the model's chat template, instead of giving a text to
    continue."""
    prompts: Prompts = "lm_eval"
    """lm_eval: the prompts, stop texts and answer lengths of lm_eval 0.4; dlstep: this package's
    own."""
    shots: Annotated[int, Ge(0)] | None = None
    """Worked examples before each question; null: as many as lm_eval's task has (gsm8k 5, math500
    4, humaneval 0, mbpp 3), and 0 for shells, questions and the prompts of dlstep."""
    run_code: bool = False
    """Run the programs of humaneval and mbpp, in a jail; otherwise they are stored but not run, and
    count as wrong."""
    code_seconds: Annotated[float, Interval(gt=0.0, le=3600.0)] = 10.0
    """Seconds that a program may run."""
    workers: Annotated[int, Interval(ge=1, le=64)] = 1
    """Processes that decode, each with a separate copy of the network; if there are several CUDA
    devices, each process uses one."""
    worker_timeout: Annotated[float, Interval(gt=0.0, le=1e6)] = 300.0
    """With several workers: seconds without a heartbeat from a worker, or for one forward pass,
    after which the run kills that worker and the other workers answer its problems."""
    grid: tuple[StrategyOptions, ...] = ((),)
    """Options of the strategy to try, as '{"accept_threshold": [0.5, 0.9]}'; every combination
    answers every problem."""
    max_tokens: Annotated[int, Ge(1)] | None = None
    """Maximum number of tokens of an answer; null: 64 for shells, 256 for questions, and the limit
    of the prompts for the others."""
    temperature: float = 0.0
    """0 samples the most probable token; higher values flatten the distribution."""
    top_k: int = 0
    """Sample among so many most probable tokens; 0: all."""
    top_p: float = 1.0
    """Sample among the most probable tokens that together have this probability."""
    min_p: float = 0.0
    """Sample among tokens that have at least this share of the best one's probability."""
    ignore_eos: bool = False
    """Continue after an end-of-sequence token."""
    stop: tuple[str, ...] = ()
    """Texts that end an answer; empty: those of the prompts."""
    stop_token_ids: tuple[int, ...] = ()
    """Ids that end an answer."""
    max_nfe: Annotated[int, Ge(1)] | None = None
    """Maximum number of sampling forward passes of an answer."""
    max_repetition_run: Annotated[int, Gt(1)] | None = None
    """End an answer whose last so many tokens are equal."""

    def __post_init__(self) -> None:
        check_ranges(self)
        for name in self.tasks:
            if name not in SOURCES:
                raise ValueError(f"EvalOptions.tasks: {short(name)} is unknown, choose from {', '.join(SOURCES)}")
        if not self.tasks or len(set(self.tasks)) < len(self.tasks):
            raise ValueError(f"EvalOptions.tasks must list at least one task, none twice, got {short(self.tasks)}")
        if ("questions" in self.tasks) != (self.questions is not None):
            raise ValueError(
                "task questions reads a file: give --questions FILE"
                if self.questions is None
                else f"--questions {short(self.questions)} is for the task questions, but tasks are {short(self.tasks)}"
            )
        for task in self.tasks:
            most = len(worked(self.prompts, task))
            if (self.shots or 0) > most and (self.prompts, task) != ("lm_eval", "gsm8k"):
                raise ValueError(
                    f"EvalOptions.shots must be at most {most} for task {task} with --prompts {self.prompts}, got {self.shots}"
                )
        if not self.grid or len(set(self.grid)) < len(self.grid):
            raise ValueError(f"EvalOptions.grid must list at least one set of options, none twice, got {short(self.grid)}")
        for task in self.tasks:
            self.params(task, self.grid[0])  # raises ValueError for values out of range

    def form(self, task: str) -> Form:
        """Return the form of the prompts of `task`."""
        return FORMS[self.prompts, task, self.chat]

    def shots_of(self, task: str) -> int:
        """Return the number of worked examples before each question of `task`."""
        return self.form(task).shots if self.shots is None else self.shots

    def params(self, task: str, options: StrategyOptions) -> SamplingParams:
        """Return the sampling parameters of an answer of `task` with these options."""
        form = self.form(task)
        return SamplingParams(
            max_tokens=self.max_tokens or form.max_tokens,
            stop=self.stop or form.stop,
            strategy_options=options,
            **{name: attrgetter(name)(self) for name in SAMPLING},
        )


def refused(config: Config, strategy: Strategy, params: SamplingParams) -> str | None:
    """Return why no request with these parameters can be answered, or None."""
    why = refusal(config, strategy, probe(config.spec, params))
    return why and why.removeprefix("request 0: ")


def options_from(given: Mapping[str, Any]) -> EvalOptions:
    """Return the options of a file or command line; a single value need not be in a list."""
    values = {**given, "grid": grid_of(given.get("grid"))}
    for name in ("tasks", "stop", "stop_token_ids"):
        values[name] = tuple(given[name]) if isinstance(given[name], list | tuple) else (given[name],)
    return EvalOptions(**values)


def grid_of(given: object) -> tuple[StrategyOptions, ...]:
    """Return every combination of the values in a mapping; a single value need no list.

    Raises ValueError if `given` is not such a mapping, and for too many combinations.
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

"""Options of an evaluation: which problems, how they are asked, and where the results go."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Annotated, Any

from annotated_types import Gt

from ..core import Config, Ids, NonNegativeInt, PositiveInt, Refusal, SamplingParams, Strategy, Texts, probe, refusal
from ..core.checks import check_ranges, did_you_mean, short
from ..core.options import StrategyOptions, sorted_options

OWN_TASKS = {"shells": 64, "questions": 256}  # tasks of this package, and the most tokens of an answer
SAMPLING = (  # options that are passed on as they are
    "temperature", "top_k", "top_p", "min_p", "ignore_eos", "stop_token_ids", "max_nfe", "max_repetition_run",
    "step_map",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class EvalOptions:
    """Options of an evaluation; `grid` may also be a mapping.

    Raises ValueError naming field, value and what is allowed.
    """

    tasks: Texts = ("shells",)
    """Tasks, as [gsm8k,humaneval]: shells (embedded stories), questions, and every task of lm_eval
    that generates answers."""
    data: str | None = None
    """Folder with GSM8K.json, MATH500.json, HumanEval.json or MBPP_sanitized.json for lm_eval's
    tasks; null: they load their data from the Hugging Face hub."""
    questions: str | None = None
    """File of the task questions: lines of JSON, or a list, with a `prompt` and an `answer`
    each."""
    out: str = "dlstep-eval"
    """Folder of the results; an interrupted run resumes there."""
    dataset_limit: PositiveInt | None = None
    """Maximum number of problems of each task, from the first on; null: all of them, 500 for
    shells."""
    problem_seed: int = 0
    """Seed that draws the problems of shells; no effect on other tasks."""
    chat: bool = False
    """Ask in conversations, with the model's chat template, instead of giving a text to
    continue."""
    shots: NonNegativeInt | None = None
    """Worked examples before each question of lm_eval's tasks; null: as many as the task sets."""
    confirm_run_unsafe_code: bool = False
    """Run programs that the model wrote, as humaneval and mbpp do, without the sandbox, which needs
    bubblewrap."""
    grid: tuple[StrategyOptions, ...] = ((),)
    """Options of the strategy to try, as '{"accept_threshold": [0.5, 0.9]}'; every combination
    answers every problem."""
    max_tokens: PositiveInt | None = None
    """Maximum number of tokens of an answer; null: 64 for shells, 256 for questions, and the limit
    of the task for the others."""
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
    stop: Texts = ()
    """Texts that end an answer; empty: those of the task."""
    stop_token_ids: Ids = ()
    """Ids that end an answer."""
    max_nfe: PositiveInt | None = None
    """Maximum number of sampling forward passes of an answer."""
    max_repetition_run: Annotated[int, Gt(1)] | None = None
    """End an answer whose last so many tokens are equal."""
    step_map: bool = False
    """Save with each answer which forward pass set each token, with its log-probabilities."""

    def __post_init__(self) -> None:
        for name in ("tasks", "stop", "stop_token_ids"):  # YAML files and the command line give lists
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if not isinstance(self.grid, tuple):
            object.__setattr__(self, "grid", grid_of(self.grid))
        check_ranges(self)
        if not self.tasks or len(set(self.tasks)) < len(self.tasks):
            raise ValueError(f"EvalOptions.tasks must list at least one task, none twice, got {short(self.tasks)}")
        for name in self.public_tasks:
            if near := did_you_mean(name, OWN_TASKS):
                raise ValueError(f"--tasks: {short(name)} is unknown, {near}")
        if ("questions" in self.tasks) != (self.questions is not None):
            raise ValueError(
                "task questions reads a file: give --questions FILE"
                if self.questions is None
                else f"--questions {short(self.questions)} is for the task questions, but tasks are {short(self.tasks)}"
            )
        for name, value in (("data", self.data), ("shots", self.shots)):
            if value is not None and not self.public_tasks:
                raise ValueError(f"--{name} {short(value)} is for tasks of lm_eval, but tasks are {short(self.tasks)}: omit it")
        if not self.grid:
            raise ValueError("EvalOptions.grid must list at least one set of options")
        self.params("shells", self.grid[0])  # raises ValueError for values out of range

    @property
    def public_tasks(self) -> Texts:
        """The tasks that are lm_eval's."""
        return tuple(name for name in self.tasks if name not in OWN_TASKS)

    def params(self, task: str, options: StrategyOptions) -> SamplingParams:
        """Return the sampling parameters of an answer of an own task with these options."""
        return SamplingParams(
            max_tokens=self.max_tokens or OWN_TASKS[task],
            stop=self.stop,
            strategy_options=options,
            **{name: getattr(self, name) for name in SAMPLING},
        )


def refused(config: Config, strategy: Strategy, params: SamplingParams) -> Refusal | None:
    """Return why no request with these parameters can be answered, or None."""
    return refusal(config, strategy, probe(config.spec, params))


def grid_of(given: Any) -> tuple[StrategyOptions, ...]:
    """Return every combination of the values in a mapping; a single value need no list.

    Raises ValueError if `given` is not such a mapping.
    """
    if given is None:
        return ((),)
    if not isinstance(given, Mapping):
        raise ValueError(
            f'--grid takes options with lists of values, like {{"accept_threshold": [0.5, 0.9]}}, got {short(given)}'
        )
    lines = [
        [(name, each) for each in (value if isinstance(value, list | tuple) else [value])] for name, value in given.items()
    ]
    return tuple(dict.fromkeys(sorted_options("--grid", chosen) for chosen in product(*lines)))

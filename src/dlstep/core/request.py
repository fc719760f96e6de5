"""A request: a prompt, how to sample, and when to stop. These values never change."""

from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from typing import Annotated, Any

from annotated_types import Ge, Gt, Interval

from .checks import check_ranges, listed, pairs_of, plain, short
from .options import StrategyOptions, sorted_options

Probability = Annotated[float, Interval(ge=0.0, le=1.0)]
Seed = Annotated[int, Interval(ge=-(1 << 63), le=(1 << 64) - 1)]  # 64 bits, signed or not
Pins = tuple[tuple[int, int], ...]  # offset in the answer and token id, by offset
LAST_ID = (1 << 31) - 1
COLDEST = 1e-30  # logits divided by it, less the greatest of them, are still numbers in single precision


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Thresholds of one request; what is None is taken from the strategy.

    Giving one that the strategy has no field for gets the request rejected.
    """

    accept_threshold: Probability | None = None
    add_block_threshold: Probability | None = None
    semi_complete_threshold: Annotated[float, Interval(gt=0.0, le=1.0)] | None = None
    token_stability_threshold: Probability | None = None
    edit_threshold: Probability | None = None
    remask_threshold: Probability | None = None

    def __post_init__(self) -> None:
        check_ranges(self)

    @property
    def given(self) -> dict[str, float]:
        """The thresholds that are set, by name."""
        values = {field.name: attrgetter(field.name)(self) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


NO_THRESHOLDS = Thresholds()


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How to sample an answer, and where it ends.

    The command line and the HTTP schema show the docstrings of the fields as their help.
    """

    max_tokens: Annotated[int, Ge(1)] = 512
    """Maximum number of tokens of an answer."""
    temperature: Annotated[float, Interval(ge=0.0, le=1e30)] = 0.0
    """0 samples the most probable token; higher values flatten the distribution."""
    top_k: Annotated[int, Interval(ge=0, le=(1 << 31) - 1)] = 0
    """Sample among so many most probable tokens; 0: all."""
    top_p: Annotated[float, Interval(gt=0.0, le=1.0)] = 1.0
    """Sample among the most probable tokens that together have this probability."""
    min_p: Probability = 0.0
    """Sample among tokens that have at least this share of the best one's probability."""
    seed: Seed | None = None
    """Seed of the samples. By default it follows from the engine's seed and the prompt."""
    ignore_eos: bool = False
    """Continue after an end-of-sequence token."""
    stop_token_ids: tuple[int, ...] = ()
    """Ids that end an answer."""
    stop: tuple[str, ...] = ()
    """Texts that end an answer, which is cut off before the first of them (needs a tokenizer)."""
    max_nfe: Annotated[int, Ge(1)] | None = None
    """Maximum number of sampling forward passes."""
    max_repetition_run: Annotated[int, Gt(1)] | None = None
    """End an answer whose last so many tokens are equal."""
    thresholds: Thresholds = field(default=NO_THRESHOLDS)
    """Six options of the strategy with their types, for this request alone."""
    strategy_options: StrategyOptions = ()
    """Options of the strategy by name, for this request alone."""
    pinned: Pins = ()
    """Ids by offset in the answer, counted from 0; given like the prompt, they never change."""
    canvas: tuple[int, ...] = ()
    """Ids that a canvas of random tokens starts from instead (diffusion_gemma); pins win."""

    def __post_init__(self) -> None:
        check_ranges(self)
        if type(self.pinned) is not tuple or self.pinned:
            object.__setattr__(self, "pinned", sorted_pins(self.pinned, self.max_tokens))
        object.__setattr__(self, "strategy_options", sorted_options("SamplingParams.strategy_options", self.strategy_options))
        if twice := sorted(set(self.thresholds.given) & dict(self.strategy_options).keys()):
            raise ValueError(f"SamplingParams.thresholds and strategy_options both set {twice[0]}: give it once")
        if 0 < self.temperature < COLDEST:
            raise ValueError(f"SamplingParams.temperature must be 0 or at least {COLDEST}, got {self.temperature}")
        if "" in self.stop:
            raise ValueError(f"SamplingParams.stop must hold texts that are not empty, got {short(self.stop)}")

    @property
    def options(self) -> dict[str, Any]:
        """Options of the strategy that this request brings: those of `thresholds` and of `strategy_options`."""
        if self.thresholds is NO_THRESHOLDS and not self.strategy_options:
            return {}
        return {**self.thresholds.given, **dict(self.strategy_options)}

    def shortened(self, max_tokens: int) -> "SamplingParams":
        """The parameters with fewer tokens to emit, and without the pinned tokens that are then behind the end."""
        if not self.pinned:
            return replace(self, max_tokens=max_tokens)
        return replace(self, max_tokens=max_tokens, pinned=[pin for pin in self.pinned if pin[0] < max_tokens])


def sorted_pins(given: object, max_tokens: int) -> Pins:
    """Pinned tokens from a mapping, or from pairs of offset and id, in order of offsets.

    Raises ValueError for what is no offset of the answer, no id, or given twice.
    """
    name = "SamplingParams.pinned"
    pairs = pairs_of(given)
    if pairs is None:
        raise ValueError(f"{name} must be a mapping of offsets in the answer to token ids, got {short(given)}")
    kept: dict[int, int] = {}
    for pair in pairs:
        parts = listed(pair)
        offset, token = [plain(part) for part in parts] if parts is not None and len(parts) == 2 else (None, None)
        if type(offset) is not int or type(token) is not int:
            raise ValueError(f"{name} must be a mapping of offsets in the answer to token ids, got {short(pair)} in it")
        if not 0 <= offset < max_tokens:
            raise ValueError(f"{name} must have offsets below max_tokens={max_tokens} and not below 0, got {short(offset)}")
        if not 0 <= token <= LAST_ID:
            raise ValueError(f"{name}[{offset}] must be a token id from 0 to {LAST_ID}, got {short(token)}")
        if offset in kept:
            raise ValueError(f"{name} must have each offset once, got {offset} twice")
        kept[offset] = token
    return tuple(sorted(kept.items()))


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt to answer. `id` is the caller's, unique in a state; `index` tells equal requests of one call apart.

    `add` fills in `seed` and `arrival`, a number of the state's own that is never used again. Raises ValueError for an empty
    prompt: there is nothing to condition on. `salt` is hashed into the prefix keys: only requests of equal salts share pages.
    """

    id: int
    prompt: tuple[int, ...]
    params: SamplingParams = field(default=SamplingParams())
    seed: Seed = 0
    arrival: int = -1
    index: Annotated[int, Interval(ge=0, le=(1 << 63) - 1)] = 0
    salt: bytes = b""

    def __post_init__(self) -> None:
        check_ranges(self)
        if not self.prompt:
            raise ValueError(f"request {self.id}: the prompt is empty; give at least one token")

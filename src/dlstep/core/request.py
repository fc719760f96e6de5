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
    """How to sample an answer and where it ends.

    `max_tokens` counts emitted tokens. `temperature` 0 is greedy. `top_k` 0, `top_p` 1 and `min_p` 0 keep every token.
    Without a `seed` the engine derives one from its own seed and the prompt, so that the same call samples the same answer.
    `stop` strings need a model whose tokenizer is known; the text is cut in front of the first of them. `max_nfe` counts
    forwards that sampled. `max_repetition_run` ends an answer whose last so many tokens are equal. `strategy_options`, a
    mapping of names, change options of the strategy for this request alone; `thresholds` says six of them with their types.

    `pinned` maps offsets in the answer, counted from 0, to the ids that stand there: they are given like the prompt, never
    sampled and never changed. `canvas` holds the ids that a strategy of random canvases starts from in place of random ones,
    from offset 0 on; pinned tokens go before them.
    """

    max_tokens: Annotated[int, Ge(1)] = 512
    temperature: Annotated[float, Interval(ge=0.0, le=1e30)] = 0.0
    top_k: Annotated[int, Interval(ge=0, le=(1 << 31) - 1)] = 0
    top_p: Annotated[float, Interval(gt=0.0, le=1.0)] = 1.0
    min_p: Probability = 0.0
    seed: Seed | None = None
    ignore_eos: bool = False
    stop_token_ids: tuple[int, ...] = ()
    stop: tuple[str, ...] = ()
    max_nfe: Annotated[int, Ge(1)] | None = None
    max_repetition_run: Annotated[int, Gt(1)] | None = None
    thresholds: Thresholds = field(default=NO_THRESHOLDS)
    strategy_options: StrategyOptions = ()
    pinned: Pins = ()
    canvas: tuple[int, ...] = ()

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

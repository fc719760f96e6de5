"""What a user may choose about the engine, and how that becomes a configuration of the core and a strategy.

This file owns the names and defaults of all options. It loads no model: the facts of one come in as a `Description`.
"""

import json
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Annotated, Any, Protocol

from annotated_types import Gt, Interval

from . import strategies, tiny
from .core import Config, Request, Spec, Strategy
from .core.checks import check_ranges
from .core.request import Probability

# Pages for so many positions are made unless `num_pages` says otherwise: 128 answers of the embedded models.
DEFAULT_POSITIONS = 65_536
DTYPES = ("float32", "bfloat16", "float16")


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Options of the engine; None takes the value from the checkpoint, or else the strategy's default.

    Raises ValueError naming field, value and what is allowed.
    """

    model: str | None = None
    """Folder of a checkpoint, or the name of an embedded model; None: the embedded model made for the strategy."""
    decoding_strategy: str | Strategy | None = None
    """Name of a strategy, dotted path of a module with one, or (in Python) a strategy value; None: what the checkpoint says."""
    sampling_mode: str = "naive"
    """How undecided positions become tokens; only `naive`: a decided token is never changed."""
    block_size: Annotated[int, Gt(0)] | None = None
    """Positions of a block."""
    buffer_size: Annotated[int, Gt(0)] | None = None
    """Blocks that may be unfinished at a time; 1 is single-block diffusion."""
    accept_threshold: Probability | None = None
    """A position is decided when the probability of its token is above this."""
    add_block_threshold: Probability | None = None
    """The next block opens when this share of the last one is decided."""
    semi_complete_threshold: Annotated[float, Interval(gt=0.0, le=1.0)] | None = None
    """A block may be forced to decide one position when this share of the block before it is decided."""
    token_stability_threshold: Probability | None = None
    """Above 0: the next block opens only when the last one is decided entirely."""
    fold_commits: bool | None = None
    """Store a finished block during the next block's forward, not in one of its own."""
    page_size: Annotated[int, Gt(0)] | None = None
    """Positions of a page of keys and values; None: 1/64 of max_model_len, at most 32."""
    num_pages: Annotated[int, Gt(0)] | None = None
    """Pages in all; None: for max_num_reqs longest requests, but for no more than 65536 positions or one such request."""
    max_model_len: Annotated[int, Gt(1)] | None = None
    """Most tokens of a prompt and its answer together; None: what the model was made for."""
    max_num_batched_tokens: Annotated[int, Gt(0)] = 4096
    """Most rows of one forward."""
    max_num_reqs: Annotated[int, Gt(0)] = 128
    """Most requests that are decoded at a time."""
    enable_prefix_caching: bool = True
    """Reuse pages of equal prefixes between requests."""
    device: str | None = None
    """`cpu`, `cuda` or `cuda:N`; None: cuda if there is one."""
    dtype: str | None = None
    """`float32`, `bfloat16` or `float16`; None: float32 on a CPU, bfloat16 on cuda."""
    seed: int = 0
    """Seed of the requests that bring none of their own."""

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.sampling_mode != "naive":
            raise ValueError(f"EngineConfig.sampling_mode must be 'naive', the only one there is, got {self.sampling_mode!r}")
        if self.dtype is not None and self.dtype not in DTYPES:
            raise ValueError(f"EngineConfig.dtype must be one of {', '.join(DTYPES)}, got {self.dtype!r}")
        if isinstance(self.decoding_strategy, Strategy) and (given := given_strategy_options(self)):
            raise ValueError(
                f"decoding_strategy={self.decoding_strategy!r} is a value, so {', '.join(given)} cannot be given beside it: "
                "put them into the value"
            )


# The options that only build the strategy; all others are the engine's.
STRATEGY_OPTIONS = (
    "block_size",
    "buffer_size",
    "accept_threshold",
    "add_block_threshold",
    "semi_complete_threshold",
    "token_stability_threshold",
    "fold_commits",
)


class Description(Protocol):
    """The facts of a model that options refer to; a loaded checkpoint is one."""

    @property
    def spec(self) -> Spec: ...
    @property
    def block_size(self) -> int | None: ...
    @property
    def buffer_size(self) -> int | None: ...
    @property
    def decoding_strategy(self) -> str | None: ...
    @property
    def max_model_len(self) -> int: ...


def engine_config(options: dict[str, Any]) -> EngineConfig:
    """The configuration with these options. Raises ValueError for a name that is none, listing those that are."""
    known = [field.name for field in fields(EngineConfig)]
    for name in options:
        if name not in known:
            raise ValueError(f"{name!r} is no option of the engine: choose from {', '.join(known)}")
    return EngineConfig(**options)


def given_strategy_options(config: EngineConfig) -> dict[str, Any]:
    """The strategy options that `config` sets."""
    values = {name: attrgetter(name)(config) for name in STRATEGY_OPTIONS}
    return {name: value for name, value in values.items() if value is not None}


def strategy_class(config: EngineConfig) -> type[Strategy] | None:
    """The class of the strategy that `config` names; None when that is left to the checkpoint."""
    match config.decoding_strategy:
        case None:
            return None
        case Strategy() as value:
            return type(value)
        case name:
            return strategies.load(name)


def embedded_models() -> dict[str, str]:
    """Names of the embedded models, each with the name of the strategy it was trained for."""
    folders = {name: tiny.path(name) for name in tiny.names()}
    facts = {name: json.loads((folder / "config.json").read_text(encoding="utf-8")) for name, folder in folders.items()}
    return {name: facts[name]["dlstep"]["decoding_strategy"] for name in folders}


def embedded_model(chosen: type[Strategy] | None) -> str:
    """Name of the first embedded model that was trained for a strategy; the first of all for None.

    Raises ValueError if there is none.
    """
    models = embedded_models()
    for name, declared in models.items():
        if chosen is None or strategies.load(declared) is chosen:
            return name
    made_for = "any strategy" if chosen is None else chosen.__name__
    raise ValueError(
        f"no embedded model is made for {made_for}: give model=, one of {', '.join(models)} or a checkpoint folder"
    )


def build_strategy(config: EngineConfig, description: Description) -> Strategy:
    """The strategy value: from the options where given, from the checkpoint where it says something, else its defaults.

    Raises ValueError for an option that the strategy does not have.
    """
    if isinstance(config.decoding_strategy, Strategy):
        return config.decoding_strategy
    name = config.decoding_strategy or description.decoding_strategy
    if name is None:
        raise ValueError(
            "the checkpoint does not say how it wants to be decoded: "
            f"give decoding_strategy, one of {', '.join(strategies.available())}"
        )
    chosen = strategies.load(name)
    known = [field.name for field in fields(chosen)]
    given = given_strategy_options(config)
    for option in given:
        if option not in known:
            raise ValueError(f"strategy {name!r} has no option {option!r}: it knows {', '.join(known)}")
    said = {"block_size": description.block_size, "buffer_size": description.buffer_size}
    return chosen(**{option: value for option, value in said.items() if value is not None and option in known} | given)


def resolve(config: EngineConfig, description: Description) -> tuple[Config, Strategy]:
    """What `core.init` takes: every choice made, from the options, the model's facts and the defaults.

    Raises ValueError for options that contradict the model or one another.
    """
    strategy = build_strategy(config, description)
    max_model_len = config.max_model_len or description.max_model_len
    if max_model_len > description.max_model_len:
        raise ValueError(
            f"EngineConfig.max_model_len must be at most {description.max_model_len}, which the model was made for, "
            f"got {max_model_len}"
        )
    page_size = config.page_size or max(1, min(32, max_model_len // 64))
    num_pages = config.num_pages
    if num_pages is None:
        # A request may feed up to the end of the group that holds its last position.
        longest = -(-(max_model_len + strategy.grid(Request(0, (0,))).size - 1) // page_size)
        num_pages = max(longest, min(config.max_num_reqs * longest, DEFAULT_POSITIONS // page_size))
    return (
        Config(
            spec=description.spec,
            page_size=page_size,
            num_pages=num_pages,
            max_model_len=max_model_len,
            max_num_batched_tokens=config.max_num_batched_tokens,
            max_num_reqs=config.max_num_reqs,
            enable_prefix_caching=config.enable_prefix_caching,
            seed=config.seed,
        ),
        strategy,
    )

"""Options of the engine: names, meaning and bounds. `resolve` completes them with the facts of a model.

Options of a strategy are the fields of its class and of its rule's class, and are said nowhere else.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any

from annotated_types import Ge, Gt, Interval

from ..core import Strategy
from ..core.checks import check_ranges, short
from ..core.options import StrategyOptions, sorted_options
from ..core.request import Seed
from ..core.spec import Count, Length, Seats
from .buffer_policy import BufferPolicy, policy_of

DTYPES = ("float32", "bfloat16", "float16")
CAPTURES = ("start", "lazy")
SAMPLING_MODES = ("naive", "edit")


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Options of the engine; None takes the value from the checkpoint, or else the strategy's default.

    Raises ValueError naming field, value and what is allowed.
    """

    model: str | None = None
    """Folder of a checkpoint, or the name of an embedded model; None: the embedded model made for the strategy."""
    model_name: str | None = None
    """Family of the checkpoint, one of those that `dlstep models` lists; None: as its files say."""
    mask_token_id: Annotated[int, Ge(0)] | None = None
    """Id that undecided positions are fed as; None: what the checkpoint says, then its tokenizer, then its family's."""
    use_lora: bool | None = None
    """Apply the adapter at `lora_path`; None: if that is given."""
    lora_path: str | None = None
    """Folder of a LoRA adapter, trained on this checkpoint with peft."""
    pre_merge_lora: bool | None = None
    """Add the adapter to the weights when they are loaded, or else keep it beside them; None: add it."""
    decoding_strategy: str | type[Strategy] | Strategy | None = None
    """Name of a strategy, a module path, a .py file, or (in Python) a class or a value; None: what the checkpoint says."""
    sampling_mode: str | None = None
    """`naive`: a decided token is never changed; `edit`: it may be, until its block is sealed; None: as the strategy does."""
    strategy_options: StrategyOptions = ()
    """Options of the strategy and of its rule by name, as a mapping or pairs; `dlstep strategies` lists them."""
    page_size: Count | None = None
    """Positions of a page of keys and values; None: 1/64 of max_model_len, at most 32."""
    num_pages: Annotated[int, Interval(ge=-1, le=(1 << 31) - 1)] | None = None
    """Pages in all; None: for max_num_reqs longest requests, but for no more than 65536 positions or one such request; -1: as
    many as there is memory for."""
    kv_cache_gib: Annotated[float, Gt(0.0)] | None = None
    """num_pages=-1: GiB that keys and values may take, which must be said on a CPU; None on cuda: what is left."""
    gpu_memory_utilization: Annotated[float, Interval(gt=0.0, le=1.0)] | None = None
    """num_pages=-1 on cuda: share of the memory that network, forward and pages may take together; None: 0.9."""
    buffer_policy: BufferPolicy | None = None
    """Options for requests that bring none, by how many are live when they are added; in Python a list of mappings, too."""
    session_pages: Count | None = None
    """Pages that each session has to itself, taken when it begins; None: for one request of max_model_len."""
    max_sessions: Seats = 8
    """Most sessions that hold pages at a time; of more, the one that rested longest computes them anew when it goes on."""
    max_model_len: Length | None = None
    """Most tokens of a prompt and its answer together; None: what the model was made for."""
    max_num_batched_tokens: Count = 4096
    """Most rows of one forward."""
    max_num_reqs: Seats = 128
    """Most requests that are decoded at a time."""
    enable_prefix_caching: bool = True
    """Reuse pages of equal prefixes between requests."""
    device: str | None = None
    """`cpu`, `cuda` or `cuda:N`; None: cuda if there is one."""
    dtype: str | None = None
    """`float32`, `bfloat16` or `float16`; None: float32 on a CPU, bfloat16 on cuda."""
    num_threads: Annotated[int, Gt(0)] | None = None
    """Threads that torch computes with on a CPU, in the whole process; None: OMP_NUM_THREADS if set, else one for a network of
    less than 10 million parameters and torch's own number for a larger one."""
    enforce_eager: bool = False
    """On cuda: launch every kernel of a forward by itself, without graphs; elsewhere that is done in any case."""
    tensor_parallel_size: Annotated[int, Interval(ge=1, le=64)] = 1
    """Processes that share the network, each on a device of its own; 1: no others."""
    rank_timeout: Annotated[float, Interval(gt=0.0, le=1e6)] = 300.0
    """With tensor_parallel_size above 1: seconds without a heartbeat of another rank, or for one forward pass, after which
    the group ends with an error. Compilation and graph capture inside a forward pass count."""
    user_code_timeout: Annotated[float, Interval(gt=0.0, le=1e6)] = 10.0
    """Seconds that one call of a method of a strategy or a rule may take; within twice this time its request ends with reason
    `error`."""
    capture_graphs: str = "start"
    """On cuda: graphs of forwards are captured at the `start`, for some seconds, or `lazy`, when a size is met again."""
    compile_layers: bool | None = None
    """Fuse what is small in the network's layers by torch.compile, for some seconds in the first steps; None: on cuda."""
    seed: Seed = 0
    """Seed of the requests that bring none of their own."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "buffer_policy", policy_of(self.buffer_policy, "EngineConfig.buffer_policy"))
        check_ranges(self)
        object.__setattr__(self, "strategy_options", sorted_options("EngineConfig.strategy_options", self.strategy_options))
        _check_names(self)
        _check_memory(self)
        if self.lora_path is None and self.use_lora:
            raise ValueError("EngineConfig.use_lora=True needs lora_path, the folder of an adapter")
        if self.lora_path is None and self.pre_merge_lora is not None:
            raise ValueError(
                f"EngineConfig.pre_merge_lora={self.pre_merge_lora} is given without an adapter: give lora_path, its folder"
            )
        if isinstance(self.decoding_strategy, Strategy) and self.strategy_options:
            given = ", ".join(dict(self.strategy_options))
            raise ValueError(
                f"decoding_strategy={self.decoding_strategy!r} is a value, so {given} cannot be given beside it: put them into "
                "the value"
            )


def _check_names(config: EngineConfig) -> None:
    """Raise ValueError for a name that is none of those allowed."""
    for name, given, allowed in (
        ("sampling_mode", config.sampling_mode, SAMPLING_MODES),
        ("dtype", config.dtype, DTYPES),
        ("capture_graphs", config.capture_graphs, CAPTURES),
    ):
        if given is not None and given not in allowed:
            more = "; leave it out for the dtype that suits the device" if given == "auto" else ""
            raise ValueError(f"EngineConfig.{name} must be one of {', '.join(allowed)}, got {short(given)}{more}")


def _check_memory(config: EngineConfig) -> None:
    """Raise ValueError for options about the memory of pages that do nothing or contradict one another."""
    if config.num_pages == 0:
        raise ValueError("EngineConfig.num_pages must be above 0, or -1 for as many as there is memory for, got 0")
    for name, value in (("kv_cache_gib", config.kv_cache_gib), ("gpu_memory_utilization", config.gpu_memory_utilization)):
        if value is not None and config.num_pages != -1:
            raise ValueError(f"EngineConfig.{name}={value} does nothing without num_pages=-1, got {config.num_pages}")
    if config.kv_cache_gib is not None and config.gpu_memory_utilization is not None:
        raise ValueError(
            f"EngineConfig.kv_cache_gib={config.kv_cache_gib} and gpu_memory_utilization={config.gpu_memory_utilization} both "
            "say how much memory pages may take: give one of them"
        )


ENGINE_FIELDS = tuple(field.name for field in fields(EngineConfig))


def engine_config(options: Mapping[str, Any]) -> EngineConfig:
    """The configuration with these options; names that are no fields of the engine are options of the strategy.

    Raises ValueError for a name that is given twice.
    """
    engine = {name: value for name, value in options.items() if name in ENGINE_FIELDS}
    flat = [(name, value) for name, value in options.items() if name not in ENGINE_FIELDS]
    pairs = sorted_options("EngineConfig.strategy_options", engine.pop("strategy_options", ()))
    return EngineConfig(**engine, strategy_options=(*pairs, *flat))

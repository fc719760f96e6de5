"""Options of an engine: their names, meaning and bounds. `resolve` decides what they leave open.

Fields of `EngineConfig` are the options of `LLM`, of option files and of the command line; their docstrings are the help
texts. Options of a strategy are defined only by the fields of its class and of its rule's class.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Annotated, Literal

from annotated_types import Gt, Interval
from docstring_parser import parse_from_object

from ..core import Fields, Refused, Strategy
from ..core.checks import check_ranges, short
from ..core.options import StrategyOptions, sorted_options
from ..core.request import Seed, processors_of
from ..core.spec import LARGEST, Count, Length, NonNegativeInt, PositiveInt, Seats, Share
from .buffer_policy import BufferPolicy, policy_of

RANK_TIMEOUT = 300.0  # seconds; the default of several ranks
DEVICE = re.compile(r"cpu|cuda(:\d+)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Options of the engine. None uses the checkpoint's value, or else the strategy's default.

    Raises:
        Refused: With the field, its value and what is allowed.
    """

    model: str | None = None
    """Checkpoint folder, name of a hub's model (org/name or org/name@revision) or of an embedded one;
    None: the embedded model made for the strategy."""
    family: object = field(default=None, hash=False)
    """Family of the checkpoint: a name that `dlstep models` lists, a module path, a .py file or a `Family`; None: detected
    from the checkpoint's files."""
    mask_token_id: NonNegativeInt | None = None
    """Token id of the mask; None: from the checkpoint, its tokenizer or its model family."""
    head_shift: Literal[0, 1] | None = None
    """1: row p-1 of the network predicts position p; 0: row p does; None: from the checkpoint or its model family."""
    training: str | None = None
    """How the network was trained: a value of `training` in docs/models.md; None: from the checkpoint or its
    model family."""
    use_lora: bool | None = None
    """Apply the adapter at `lora_path`; None: apply it if `lora_path` is given."""
    lora_path: str | None = None
    """Folder of a LoRA adapter, trained on this checkpoint with peft."""
    pre_merge_lora: bool | None = None
    """Merge the adapter into the weights at load time, or keep it separate; None: merge."""
    decoding_strategy: str | type[Strategy] | Strategy | None = None
    """Strategy: a name, module path, .py file, class or instance; None: from the checkpoint."""
    sampling_mode: Literal["naive", "edit"] | None = None
    """`edit`: unmasked tokens may change until their block is sealed; `naive`: they never do."""
    strategy_options: StrategyOptions = ()
    """Options of the strategy and of its rule by name, as a mapping or pairs; `dlstep strategies` lists them."""
    page_size: Count | None = None
    """Positions of a KV cache page; None: 1/64 of max_model_len, at most 32."""
    num_pages: Annotated[int, Interval(ge=-1, le=LARGEST)] | None = None
    """Number of KV cache pages; -1: as many as fit in memory; None: -1 on cuda; on a CPU enough for
    max_num_reqs requests of max_model_len, limited to 65536 positions or one such request."""
    kv_cache_gib: Annotated[float, Gt(0.0)] | None = None
    """GiB for the KV cache, instead of num_pages; None on cuda: the remaining memory."""
    gpu_memory_utilization: Share | None = None
    """On cuda, instead of num_pages: share of the device's memory that may be in use, by this LLM and
    by other programs, once the KV cache is allocated; None: 0.9."""
    buffer_policy: BufferPolicy | None = None
    """Options for requests that set none, by the number of live requests; a list of mappings."""
    max_sessions: Seats = 8
    """Maximum number of sessions with pages; others recompute their KV cache when they resume."""
    max_model_len: Length | None = None
    """Maximum number of tokens of a prompt and its answer together; None: the model's limit."""
    max_num_batched_tokens: Count = 4096
    """Maximum number of rows of one forward pass."""
    max_num_reqs: Seats = 128
    """Maximum number of requests that are decoded at the same time."""
    enable_prefix_caching: bool = True
    """Reuse KV cache pages of equal prefixes between requests."""
    device: str | None = None
    """`cpu`, `cuda` or `cuda:N`; None: cuda if there is one."""
    dtype: Literal["float32", "bfloat16", "float16"] | None = None
    """`float32`, `bfloat16` or `float16`; None: bfloat16 on cuda; on a CPU the dtype of the checkpoint if
    the processor has instructions for it and the network has 10 million parameters, else float32."""
    quantization: Literal["fp8"] | None = None
    """`fp8`: store weights of layers and experts in FP8, and quantize their inputs; on a CPU for comparison only, as it is
    slower there. None: the weights have `dtype`."""
    kv_cache_dtype: Literal["fp8"] | None = None
    """`fp8`: store keys and values in FP8, clamped to [-448, 448]; None: in `dtype`."""
    num_threads: PositiveInt | None = None
    """CPU threads of torch, for the whole process; None: OMP_NUM_THREADS if set, else one for a
    network of less than 10 million parameters and torch's own number for a larger one."""
    enforce_eager: bool = False
    """On cuda: launch each kernel separately, without CUDA graphs. No effect elsewhere."""
    tensor_parallel_size: Annotated[int, Interval(ge=1, le=64)] = 1
    """Processes that share the network, each on its own device; 1: a single process."""
    rank_timeout: Annotated[float, Interval(gt=0.0, le=1e6)] | None = None
    """With tensor_parallel_size above 1: seconds without a heartbeat of another rank, or for one forward pass, after which
    the group ends with an error. Compilation and graph capture inside a forward pass count. None: 300."""
    capture_graphs: Literal["start", "lazy"] = "start"
    """On cuda: capture CUDA graphs at the `start`, or `lazy`, when a batch size occurs again."""
    compile_layers: bool | None = None
    """Fuse small operations by torch.compile, which slows the first steps; None: on cuda."""
    seed: Seed = 0
    """Seed of requests that do not set one."""
    processors: object = field(default=(), hash=False)
    """Processors, which change the logits of every request before sampling, in order: names with options, like {"min_tokens":
    {"count": 8}}, or a list of names, .py files and values."""

    def __post_init__(self) -> None:
        processors_of(self.processors)  # they stay as given: a class from a file could not be pickled for other processes
        if self.buffer_policy is not None:
            object.__setattr__(self, "buffer_policy", policy_of(self.buffer_policy))
        check_ranges(self)
        if self.family is not None and type(self.family) is not str:
            from ..models import Family  # transformers, which a name does not need

            if not isinstance(self.family, Family):
                raise Refused("family", "invalid_value", f"must be a name or a dlstep.models.Family, got {short(self.family)}")
        object.__setattr__(self, "strategy_options", sorted_options("strategy_options", self.strategy_options))
        if self.model == "":
            raise Refused("model", "missing", "it is empty: give a folder or a name, or leave it out for an embedded model")
        if self.num_pages == 0:
            raise Refused("num_pages", "out_of_range", "must be above 0, or -1 for as many as there is memory for, got 0")
        if self.device is not None and not DEVICE.fullmatch(self.device):
            raise Refused("device", "invalid_value", f"must be cpu, cuda or cuda:N, got {short(self.device)}")
        for name, reason in self._conflicts():
            raise Refused(name, "conflict", reason)

    def _conflicts(self) -> Iterator[tuple[str, str]]:
        """Yield options that contradict others, or that would have no effect, each with the reason."""
        sizes = {name: getattr(self, name) for name in ("num_pages", "kv_cache_gib", "gpu_memory_utilization")}
        given = [f"{name}={value}" for name, value in sizes.items() if value not in (None, -1)]
        if len(given) > 1:
            yield "num_pages", f"the KV cache has one limit, got {' and '.join(given)}: give one of them"
        if self.lora_path is None and self.use_lora:
            yield "use_lora", "True needs lora_path, the folder of an adapter: give it"
        if self.pre_merge_lora is not None and (self.lora_path is None or self.use_lora is False):
            reason = f"{self.pre_merge_lora} has no effect without an adapter: give lora_path, and leave use_lora=False out"
            yield "pre_merge_lora", reason
        size = self.tensor_parallel_size
        if self.pre_merge_lora is False and (size > 1 or self.quantization is not None):
            other = f"tensor_parallel_size={size}" if size > 1 else f"quantization={self.quantization!r}"
            yield "pre_merge_lora", f"False does not go with {other}: leave it out, so that the adapter is added to the weights"
        if size > 1 and self.device is not None and ":" in self.device:
            yield "device", f"{self.device!r} is one device, and tensor_parallel_size={size} needs {size}: give cuda or cpu"
        if self.enforce_eager and self.capture_graphs == "lazy":
            yield "capture_graphs", "'lazy' has no effect with enforce_eager=True: leave one of them out"
        if self.rank_timeout is not None and size == 1:
            yield "rank_timeout", f"{self.rank_timeout:g} has no effect with tensor_parallel_size=1: leave it out"
        if isinstance(self.decoding_strategy, Strategy) and self.strategy_options:
            names = ", ".join(dict(self.strategy_options))
            yield "strategy_options", f"{names} cannot be given with an instance, {self.decoding_strategy!r}: set them there"


ENGINE_FIELDS = tuple(field.name for field in fields(EngineConfig))


def engine_config(options: Fields) -> EngineConfig:
    """Build a configuration. Options that are not engine fields become options of the strategy.

    Args:
        options: Fields of `EngineConfig`, and options of the strategy and its rule, by name.

    Raises:
        Refused: For a name that is given twice, and as `EngineConfig` does.
    """
    engine = {name: value for name, value in options.items() if name in ENGINE_FIELDS}
    flat = [(name, value) for name, value in options.items() if name not in ENGINE_FIELDS]
    pairs = sorted_options("strategy_options", engine.pop("strategy_options", ()))
    return EngineConfig(**engine, strategy_options=(*pairs, *flat))


def field_help(owner: type) -> dict[str, str]:
    """Return the docstring of each dataclass field, inherited ones included; "" without source."""
    texts: dict[str, str] = {}
    for cls in reversed(owner.__mro__):
        texts |= _own_help(cls)
    return {field.name: texts.get(field.name, "") for field in fields(owner)}


@cache
def _own_help(cls: type) -> dict[str, str]:
    """Return the docstring of each field that the class itself defines; none without source."""
    try:
        found = parse_from_object(cls)
    except TypeError:  # of a class without a file, such as `object`
        return {}
    return {param.arg_name: param.description for param in found.params if param.description}

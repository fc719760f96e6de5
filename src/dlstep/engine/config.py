"""Options of the engine: names, meaning and bounds. `resolve` fills in what depends on the model.

Options of a strategy are defined only by the fields of its class and of its rule's class.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Annotated, Any

from annotated_types import Ge, Gt, Interval

from ..core import Config, SamplingParams, Strategy, probe
from ..core.checks import check_ranges, did_you_mean, listed, pairs_of, plain, short
from ..core.options import StrategyOptions, sorted_options
from ..core.refusals import request_strategy
from ..core.request import Seed
from ..core.spec import Count, Length, Seats

Rung = tuple[int | None, StrategyOptions]
MOST = "max_requests"
FORM = f"a list like [{{'{MOST}': 2, 'buffer_size': 4}}, {{'buffer_size': 1}}]"


@dataclass(frozen=True, slots=True)
class BufferPolicy:
    """Default options for requests that set none, chosen by load when a request is added.

    The chosen options are stored in the request, so later load has no effect and a trace needs no
    policy.
    """

    rungs: tuple[Rung, ...]
    """Pairs of a limit and options, in ascending order of limit. The first one whose limit is at least
    the number of live requests applies; a limit of None matches any number."""

    def applied(self, params: SamplingParams, live: int) -> SamplingParams:
        """Return parameters with the options for the current load.

        Args:
            params: Parameters of a request, returned unchanged if they set options.
            live: Number of live requests, all new requests included.
        """
        if params.options:
            return params
        options = next((options for most, options in self.rungs if most is None or live <= most), ())
        return replace(params, strategy_options=options) if options else params

    def check(self, config: Config, strategy: Strategy) -> None:
        """Raise ValueError for options that an engine would reject in a request.

        Args:
            config: Configuration of the engine.
            strategy: Strategy of the engine.
        """
        for number, (_, options) in enumerate(self.rungs):
            request = probe(config.spec, SamplingParams(max_tokens=1, strategy_options=options))
            if reason := request_strategy(config, strategy, request)[1]:
                raise ValueError(f"buffer_policy[{number}]: {reason}")


def policy_of(policy: object, owner: str = "buffer_policy") -> BufferPolicy | None:
    """Build a policy from a list of mappings. A BufferPolicy or None is returned unchanged.

    Args:
        policy: The list, a policy or None.
        owner: Name of the option in messages.

    Raises:
        ValueError: Names the option and the invalid entry.
    """
    if policy is None or type(policy) is BufferPolicy:
        return policy
    entries = listed(policy)
    if not entries:
        raise ValueError(f"{owner} must be {FORM}, got {short(policy)}")
    rungs = tuple([_rung(f"{owner}[{number}]", entry) for number, entry in enumerate(entries)])
    for number, (one, other) in enumerate(pairwise([most for most, _ in rungs]), start=1):
        if one is None or (other is not None and other <= one):
            before = f"an entry for any number, without {MOST}" if one is None else f"{MOST}={one}"
            raise ValueError(f"{owner}[{number}] comes after {before}: no request reaches it")
    return BufferPolicy(rungs)


def _rung(owner: str, entry: object) -> Rung:
    pairs = pairs_of(entry)
    if pairs is None:
        raise ValueError(f"{owner} must be a mapping, as in {FORM}, got {short(entry)}")
    options: dict[Any, Any] = dict(sorted_options(owner, pairs))
    most = plain(options.pop(MOST, None))
    if most is not None and (type(most) is not int or most < 1):
        raise ValueError(f"{owner}.{MOST} must be a whole number above 0, got {short(most)}")
    return most, sorted_options(owner, options)


DTYPES = ("float32", "bfloat16", "float16")
QUANTIZATIONS = ("fp8",)
CAPTURES = ("start", "lazy")
ABBREVIATIONS = {"fp32": "float32", "fp16": "float16", "half": "float16", "bf16": "bfloat16"}
SAMPLING_MODES = ("naive", "edit")


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Options of the engine. None uses the checkpoint's value, or else the strategy's default.

    Raises:
        ValueError: With the field, its value and what is allowed.
    """

    model: str | None = None
    """Checkpoint folder, name of a hub's model (org/name or org/name@revision) or of an embedded one;
    None: the embedded model made for the strategy."""
    model_name: str | None = None
    """Family of the checkpoint, as `dlstep models` lists it; None: detected from its files."""
    mask_token_id: Annotated[int, Ge(0)] | None = None
    """Token id of the mask; None: from the checkpoint, its tokenizer or its model family."""
    use_lora: bool | None = None
    """Apply the adapter at `lora_path`; None: apply it if `lora_path` is given."""
    lora_path: str | None = None
    """Folder of a LoRA adapter, trained on this checkpoint with peft."""
    pre_merge_lora: bool | None = None
    """Merge the adapter into the weights at load time, or keep it separate; None: merge."""
    decoding_strategy: str | type[Strategy] | Strategy | None = None
    """Strategy: a name, module path, .py file, class or instance; None: from the checkpoint."""
    sampling_mode: str | None = None
    """`edit`: unmasked tokens may change until their block is sealed; `naive`: they never do."""
    strategy_options: StrategyOptions = ()
    """Options of the strategy and of its rule by name, as a mapping or pairs; `dlstep strategies` lists them."""
    page_size: Count | None = None
    """Positions of a KV cache page; None: 1/64 of max_model_len, at most 32."""
    num_pages: Annotated[int, Interval(ge=-1, le=(1 << 31) - 1)] | None = None
    """Number of KV cache pages; -1: as many as fit in memory; None: for max_num_reqs requests of
    max_model_len, at most 65536 positions, and at least one such request."""
    kv_cache_gib: Annotated[float, Gt(0.0)] | None = None
    """With num_pages=-1: GiB for the KV cache, required on a CPU; None on cuda: what is left."""
    gpu_memory_utilization: Annotated[float, Interval(gt=0.0, le=1.0)] | None = None
    """With num_pages=-1 on cuda: share of memory for network, forward and KV cache; None: 0.9."""
    buffer_policy: BufferPolicy | None = None
    """Options for requests that set none, by the number of live requests; a list of mappings."""
    session_pages: Count | None = None
    """KV cache pages reserved for each session; None: enough for one request of max_model_len."""
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
    dtype: str | None = None
    """`float32`, `bfloat16` or `float16`; None: float32 on a CPU, bfloat16 on cuda."""
    quantization: str | None = None
    """`fp8`: store weights of layers and experts in FP8, and quantize their inputs; on a CPU for comparison only, as it is
    slower there. None: the weights have `dtype`."""
    num_threads: Annotated[int, Gt(0)] | None = None
    """CPU threads of torch, for the whole process; None: OMP_NUM_THREADS if set, else one for a
    network of less than 10 million parameters and torch's own number for a larger one."""
    enforce_eager: bool = False
    """On cuda: launch each kernel separately, without CUDA graphs. No effect elsewhere."""
    tensor_parallel_size: Annotated[int, Interval(ge=1, le=64)] = 1
    """Processes that share the network, each on its own device; 1: a single process."""
    rank_timeout: Annotated[float, Interval(gt=0.0, le=1e6)] = 300.0
    """With tensor_parallel_size above 1: seconds without a heartbeat of another rank, or for one forward pass, after which
    the group ends with an error. Compilation and graph capture inside a forward pass count."""
    capture_graphs: str = "start"
    """On cuda: capture CUDA graphs at the `start`, or `lazy`, when a batch size occurs again."""
    compile_layers: bool | None = None
    """Fuse small operations by torch.compile, which slows the first steps; None: on cuda."""
    seed: Seed = 0
    """Seed of requests that do not set one."""

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
            names = ", ".join(dict(self.strategy_options))
            raise ValueError(
                f"decoding_strategy={self.decoding_strategy!r} is an instance, so {names} cannot be given as well: set them in "
                "the instance"
            )


def _check_names(config: EngineConfig) -> None:
    """Raise ValueError for a name that is not allowed."""
    if config.model == "":
        raise ValueError("EngineConfig.model is an empty text: give a folder or a name, or leave it out for an embedded model")
    for name, value, allowed in (
        ("sampling_mode", config.sampling_mode, SAMPLING_MODES),
        ("dtype", config.dtype, DTYPES),
        ("quantization", config.quantization, QUANTIZATIONS),
        ("capture_graphs", config.capture_graphs, CAPTURES),
    ):
        if value is not None and value not in allowed:
            more = did_you_mean(ABBREVIATIONS.get(value, value), allowed, ": ")
            more = "; leave it out for the dtype that suits the device" if value == "auto" else more
            raise ValueError(f"EngineConfig.{name} must be one of {', '.join(allowed)}, got {short(value)}{more}")


def _check_memory(config: EngineConfig) -> None:
    """Raise ValueError for KV cache memory options that have no effect or contradict each other."""
    if config.num_pages == 0:
        raise ValueError("EngineConfig.num_pages must be above 0, or -1 for as many as there is memory for, got 0")
    for name, value in (("kv_cache_gib", config.kv_cache_gib), ("gpu_memory_utilization", config.gpu_memory_utilization)):
        if value is not None and config.num_pages != -1:
            raise ValueError(f"EngineConfig.{name}={value} does nothing without num_pages=-1, got {config.num_pages}")
    if config.kv_cache_gib is not None and config.gpu_memory_utilization is not None:
        raise ValueError(
            f"EngineConfig.kv_cache_gib={config.kv_cache_gib} and gpu_memory_utilization={config.gpu_memory_utilization} both "
            "limit the memory of the KV cache: give one of them"
        )


ENGINE_FIELDS = tuple(field.name for field in fields(EngineConfig))


def engine_config(options: Mapping[str, Any]) -> EngineConfig:
    """Build a configuration. Options that are not engine fields become options of the strategy.

    Args:
        options: Fields of `EngineConfig`, and options of the strategy and its rule, by name.

    Raises:
        ValueError: For a name that is given twice, and as `EngineConfig` does.
    """
    engine = {name: value for name, value in options.items() if name in ENGINE_FIELDS}
    flat = [(name, value) for name, value in options.items() if name not in ENGINE_FIELDS]
    pairs = sorted_options("EngineConfig.strategy_options", engine.pop("strategy_options", ()))
    return EngineConfig(**engine, strategy_options=(*pairs, *flat))

"""Decide the options of an engine: as given, else from the checkpoint, else a default for the model and the device."""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Literal

from ..core import Config, Json, Processor, Refused, Spec, Strategy, least_pages
from ..core.checks import values_of
from ..core.request import processors_of
from ..core.spec import TRAININGS
from .buffer_policy import BufferPolicy
from .config import RANK_TIMEOUT, EngineConfig
from .devices import find_device, first_device
from .hub import folder_of
from .strategy_choice import name_of, strategy_for, trained_further

if TYPE_CHECKING:
    from torch import dtype as Dtype

    from ..models import Adapter, Description

DEFAULT_POSITIONS = 65_536  # default of the KV cache on a CPU: 128 answers of the embedded models
MEMORY_SHARE = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedConfig:
    """Options of an engine for one model on one device, all of them decided. The loader reads nothing else."""

    model: "Description"
    """Facts of the checkpoint, as its adapter changes them."""
    adapter: "Adapter | None"
    """Adapter to apply; None: no adapter."""
    merge_adapter: bool
    """Whether the adapter is merged into the weights."""
    strategy: Strategy
    """Strategy with its options and its rule."""
    processors: tuple[Processor, ...]
    """Processors of every request."""
    buffer_policy: BufferPolicy | None
    """Options by load; None: no policy."""
    device: str
    """Device of the network, or of rank 0."""
    dtype: "Dtype"
    """Type of the weights."""
    dtype_reason: str
    """Why the weights have their dtype."""
    quantization: Literal["fp8"] | None
    """How weights are stored; None: as `dtype`."""
    kv_dtype: "Dtype"
    """Type of keys and values in the KV cache."""
    num_threads: int | None
    """CPU threads of torch; None: the loader decides by the size of the network."""
    compile_layers: bool
    """Whether torch.compile fuses small operations."""
    graphs: Literal["start", "lazy", "never"]
    """When CUDA graphs are captured."""
    page_size: int
    """Positions of a page."""
    num_pages: int | None
    """Number of pages; None until the loader has measured the memory that the weights leave."""
    kv_cache_gib: float | None
    """GiB for the pages; None: `gpu_memory_utilization` limits them."""
    gpu_memory_utilization: float
    """Share of the device's memory that may be in use."""
    max_sessions: int
    """Maximum number of sessions with pages."""
    max_model_len: int
    """Maximum number of tokens of a prompt and its answer together."""
    max_tokens: int
    """Maximum length of answers in calls without sampling parameters."""
    max_num_batched_tokens: int
    """Maximum number of rows of one forward pass."""
    max_num_reqs: int
    """Maximum number of requests that are decoded at the same time."""
    enable_prefix_caching: bool
    """Whether requests share pages of equal prefixes."""
    tensor_parallel_size: int
    """Processes that share the network."""
    rank_timeout: float
    """Seconds without a heartbeat of a rank, or for one forward pass, after which the group ends."""
    seed: int
    """Seed of requests that do not set one."""

    @property
    def choices(self) -> str:
        """A line with the dtype and the KV cache, and why: what a start logs and `dlstep models check` shows."""
        cache = "as large as the memory allows"
        if self.num_pages is not None:
            positions = self.num_pages * self.page_size
            requests = f"{positions // self.max_model_len} requests of max_model_len={self.max_model_len}"
            cache = f"of {positions:,} positions, enough for {requests}"
        return f"weights in {self.dtype} ({self.dtype_reason}), KV cache in {self.kv_dtype} {cache}".replace("torch.", "")

    @property
    def quantized_at_once(self) -> bool:
        """Whether weights are quantized as they are read. An adapter is merged into them before they are rounded."""
        return self.quantization is not None and self.adapter is None

    def core_config(self, spec: Spec) -> Config:
        """Return the part that the core reads. `num_pages` is 1 until it is measured."""
        shared: Json = {each.name: getattr(self, each.name) for each in fields(Config) if each.name != "spec"}
        shared["num_pages"] = self.num_pages or 1
        return Config(spec, **shared)


DECIDED_BEFORE = {field.name for field in fields(EngineConfig)} & {field.name for field in fields(ResolvedConfig)}


def resolve(config: EngineConfig, description: "Description") -> ResolvedConfig:
    """Return `config` with every option decided for a model.

    Raises Refused for options that contradict the model, the device or each other, and ValueError for an unusable adapter.
    """
    import torch

    from dlstep_kernels import has_kernels

    from ..models.checkpoint import default_dtype
    from ..models.quantization import check_device
    from ..models.weights import check_ranks

    device = find_device(config.device)
    adapter = _adapter(config)
    model = _taught(config, description, adapter)
    strategy = strategy_for(config, model)
    for name, reason in _conflicts(config, device, strategy, adapter):
        raise Refused(name, "conflict", reason)
    if config.tensor_parallel_size > 1:
        check_ranks(model.family.network, model.config, config.tensor_parallel_size)
    for name in ("quantization", "kv_cache_dtype"):
        if getattr(config, name) is not None:
            check_device(name, torch.device(device))
    max_model_len = config.max_model_len or model.max_model_len
    if max_model_len > model.max_model_len:
        message = f"must be at most {model.max_model_len}, the limit of {model.name}, got {max_model_len}"
        raise Refused("max_model_len", "out_of_range", message)
    page_size = config.page_size or max(1, min(32, max_model_len // 64))
    if config.dtype is None:
        dtype, reason = default_dtype(torch.device(device).type, model.source.contents())
    else:
        dtype, reason = getattr(torch, config.dtype), "as requested"
    given = {name: value for name, value in values_of(config).items() if name in DECIDED_BEFORE}
    decided = {
        "model": model,
        "adapter": adapter,
        "merge_adapter": config.pre_merge_lora is not False and not (adapter is not None and adapter.drafts_only),
        "strategy": strategy,
        "processors": processors_of(config.processors),
        "device": device,
        "dtype": dtype,
        "dtype_reason": reason,
        "kv_dtype": torch.float8_e4m3fn if config.kv_cache_dtype else dtype,
        "compile_layers": has_kernels(torch.device(device)) if config.compile_layers is None else config.compile_layers,
        "graphs": "never" if config.enforce_eager else config.capture_graphs,
        "page_size": page_size,
        "num_pages": _num_pages(config, device, least_pages(strategy, max_model_len, page_size), page_size),
        "gpu_memory_utilization": config.gpu_memory_utilization or MEMORY_SHARE,
        "max_model_len": max_model_len,
        "max_tokens": model.max_tokens or max_model_len,
        "rank_timeout": config.rank_timeout or RANK_TIMEOUT,
    }
    return ResolvedConfig(**given | decided)


def _num_pages(config: EngineConfig, device: str, longest: int, page_size: int) -> int | None:
    """Return the number of pages, None if it depends on memory. `longest` is that of a request of `max_model_len`."""
    if config.num_pages is None and device == "cpu" and not (config.kv_cache_gib or config.gpu_memory_utilization):
        return max(longest, min(config.max_num_reqs * longest, DEFAULT_POSITIONS // page_size))
    return None if config.num_pages == -1 else config.num_pages


def _adapter(config: EngineConfig) -> "Adapter | None":
    from ..models import read_adapter

    return None if config.lora_path is None or config.use_lora is False else read_adapter(folder_of(config.lora_path))


def _taught(config: EngineConfig, model: "Description", adapter: "Adapter | None") -> "Description":
    """Return the facts of a model with an adapter, which may be trained for another way of decoding."""
    if adapter is None or adapter.drafts_only:
        return model
    training = trained_further(model.training, config)
    if training == model.training:
        return model
    return replace(model, training=training, decoding_strategy=None if training is None else TRAININGS[training][0])


def _conflicts(config: EngineConfig, device: str, strategy: Strategy, adapter: "Adapter | None") -> Iterator[tuple[str, str]]:
    """Yield options that contradict the device, the strategy or the adapter, each with the reason."""
    size = config.tensor_parallel_size
    if adapter is not None and adapter.drafts_only:
        only = f"the adapter in {adapter.folder} applies only to drafts"
        if (name := name_of(strategy)) != "self_speculation":
            remedy = "give decoding_strategy='self_speculation', or leave lora_path out"
            yield "lora_path", f"{only}, which {name!r} does not have: {remedy}"
        if config.pre_merge_lora:
            yield "pre_merge_lora", f"{only}, and merging would apply it to all rows: leave pre_merge_lora out"
        for other, given in (("tensor_parallel_size", size > 1), ("quantization", config.quantization is not None)):
            if given:
                yield other, f"{only}, for which this is not supported: leave one of them out"
    if size > 1 and device == "cuda":
        import torch

        count, needed = torch.cuda.device_count(), first_device() + size
        if count < needed:
            groups = f" for each of {needed // size} replicas" if needed > size else ""
            yield "tensor_parallel_size", f"{size} needs {size} CUDA devices{groups}, torch finds {count}: give fewer"

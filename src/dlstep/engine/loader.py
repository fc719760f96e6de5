"""Load an engine: the parts that an `LLM`, a `Session` and a server run on.

`_load` lists the stages in order. Options are checked before the slow reading of weights.
"""

import logging
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from traceback import clear_frames
from types import TracebackType
from typing import TYPE_CHECKING
from warnings import warn

from .. import tiny
from ..core import Config, Driver, Event, Refused, Request, SamplingParams, Spec, State, Strategy, init
from ..core.checks import did_you_mean
from ..core.lifecycle import least_pages, refusal_of_max_tokens
from ..core.spec import TRAININGS
from ..text.detokenize import Tokenizer
from ..text.output import Prompt
from ..text.prompts import encode, params_of
from .config import BufferPolicy, EngineConfig, build, chosen, embedded_models_for, name_of, resolve, trained_further
from .decode import Decode, Turn
from .devices import check_room, device_of_rank, find_device, first_device, set_threads
from .hub import folder_of

if TYPE_CHECKING:
    from torch import dtype as Dtype

    from ..distributed.ranks import Ranks
    from ..distributed.worker_group import RankInfo, WorkerGroup
    from ..models import Checkpoint
    from ..models.adapter import Adapter
    from ..models.description import Description

DEFAULT_MEMORY_SHARE = 0.9
LOG = logging.getLogger("dlstep.engine")


@dataclass(frozen=True, slots=True)
class LoadedEngine:
    """Parts of an `LLM`: the state before any request, the driver, and the tokenizer.

    `session_pages`: KV cache pages of a session; 0: enough for one longest request. `prompt_end`
    is appended to text prompts that do not end with it. `chat_template` renders conversations; None:
    the tokenizer's template. Each step of an `LLM` or a session has the `turn`, so no
    other thread can take their pages in the middle of a step. `folder` is the checkpoint's, or None
    for an engine built by hand. `ranks` share the network. Sessions ignore `buffer_policy`.
    `max_tokens` is the maximum length of answers in calls without sampling parameters. `choices` says
    which dtype and KV cache the engine has, and why; empty for an engine built by hand.
    """

    first: State
    driver: Driver
    tokenizer: Tokenizer | None
    name: str
    prompt_end: str = ""
    chat_template: str | None = None
    session_pages: int = 0
    folder: Path | None = None
    buffer_policy: BufferPolicy | None = None
    ranks: "Ranks | None" = None
    max_tokens: int = SamplingParams().max_tokens
    choices: str = ""
    turn: Turn = field(default_factory=Turn, repr=False, compare=False)

    def __post_init__(self) -> None:
        config = self.first.config
        longest = least_pages(self.first.strategy, config.max_model_len, config.page_size)
        # Must differ from the LLM's number: drivers recognise KV caches of sessions by it.
        pages = self.session_pages or longest + (longest == config.num_pages)
        if pages < longest:
            raise ValueError(f"session_pages={pages} cannot hold one longest request: give at least {longest}")
        object.__setattr__(self, "session_pages", pages)
        if self.buffer_policy is not None:
            self.buffer_policy.check(config, self.first.strategy)

    def params(self, given: object) -> SamplingParams:
        """Return sampling parameters as the core needs them; the defaults for None. Raises ValueError if invalid."""
        return params_of(SamplingParams(max_tokens=self.max_tokens) if given is None else given, self.tokenizer)

    def encoded(self, prompt: Prompt, params: SamplingParams, *, explicit: bool = False, **how: bool) -> tuple[int, ...]:
        """Return the ids of a prompt, as `encode` does. Warn if `max_tokens` does not fit, unless it is a default.

        If `explicit`, raise ValueError instead, even for a value that equals a default.
        """
        ids = encode(self, prompt, **how)
        reason = refusal_of_max_tokens(self.first.config, Request(0, ids, params))
        if reason and explicit:
            raise Refused(*reason)
        if reason and params.max_tokens not in (self.max_tokens, SamplingParams().max_tokens):
            warn(str(reason), stacklevel=3)
        return ids

    def decode(
        self,
        state: State | None = None,
        *,
        record: Callable[[Event], None] = lambda event: None,
        prunes: bool = True,
    ) -> Decode:
        """Return a `Decode` of `state` (default: the first). Threads run its steps in the `turn`."""
        return Decode(self.first if state is None else state, self.driver, record=record, prunes=prunes)


def load_engine(config: EngineConfig) -> LoadedEngine:
    """Return the engine that `config` describes, and log its `choices`. Imports torch and transformers.

    With several ranks, this process is rank 0 and starts the others. A process that torchrun
    started as a non-zero rank follows rank 0 until it ends, and then exits. Raises ValueError for
    an unusable checkpoint or contradicting options, DlstepError if a rank cannot be started.
    """
    rank_info = None
    if config.tensor_parallel_size > 1:
        _check_ranks(config)
        from ..distributed.worker_group import torchrun_rank_info

        rank_info = torchrun_rank_info(config.tensor_parallel_size)
        if rank_info is not None and rank_info.rank:
            run_rank(rank_info, config)
            raise SystemExit(0)
    engine = build_engine(config, partial(_gather_ranks, config, rank_info))
    if not tiny.is_embedded(engine.folder):
        LOG.warning("dlstep: %s", engine.choices)
    return engine


def run_rank(rank_info: "RankInfo", config: EngineConfig) -> None:
    """Run a rank other than 0: load its shard of the weights, then execute rank 0's commands until rank 0 ends."""
    from ..distributed.rank_zero import follow_rank_zero
    from ..distributed.ranks import leave_ranks
    from ..driver import TorchDriver

    engine = build_engine(config, partial(_gather_ranks, config, rank_info))
    assert engine.ranks is not None, "a rank was loaded"
    assert isinstance(engine.driver, TorchDriver)
    follow_rank_zero(engine.driver, engine.ranks)
    engine.driver.drop_graphs()
    leave_ranks()


def build_engine(config: EngineConfig, gather: Callable[[], "WorkerGroup"]) -> LoadedEngine:
    """Return the engine of this rank. If loading fails, end the group of ranks and free memory.

    The error's traceback keeps this frame, so only `_load`'s frame may refer to the network.
    """
    with ExitStack() as undone:
        engine = _load(config, gather, undone)
        undone.pop_all()
    return engine


def _load(config: EngineConfig, gather: Callable[[], "WorkerGroup"], undone: ExitStack) -> LoadedEngine:
    """Load the engine in stages. Each stage pushes its cleanup in case of an error on `undone`."""
    model = _describe(config)
    options = resolve(config, model.description, model.device)
    group = gather()
    undone.callback(group.end)
    undone.push(_free_memory)
    with group.starting():
        checkpoint = _load_network(config, model, group.ranks)
        spec = _adapt(config, checkpoint, model.adapter)
        sized = _size_pages(options, checkpoint)
        core_config, strategy = build(sized, spec)
        state = init(core_config, strategy)
        driver = _build_driver(config, checkpoint, core_config, strategy, group)
    # The embedded models were trained on whole lines, so a prompt must end with a newline.
    embedded, tokenizer = tiny.is_embedded(model.folder), checkpoint.description.tokenizer
    fallback = tiny.CHAT_TEMPLATE if embedded else model.description.family.chat_template
    return LoadedEngine(
        state,
        driver,
        tokenizer,
        checkpoint.description.name,
        prompt_end="\n" if embedded else "",
        chat_template=None if tokenizer.chat_template else fallback,
        session_pages=config.session_pages or 0,
        folder=model.folder,
        buffer_policy=config.buffer_policy,
        ranks=group.ranks,
        max_tokens=model.description.max_tokens or core_config.max_model_len,
        choices=choices_of(checkpoint.network.dtype, checkpoint.dtype_reason, sized),
    )


def choices_of(dtype: "Dtype", reason: str, options: EngineConfig) -> str:
    """Return a line with the dtype and the KV cache of an engine. `num_pages` is -1 until the free memory is measured."""
    positions, longest = (options.num_pages or 0) * (options.page_size or 1), options.max_model_len or 1
    cache = f"of {positions:,} positions, enough for {positions // longest} requests of max_model_len={longest}"
    cache = cache if positions > 0 else "as large as the memory allows"
    return f"weights in {str(dtype).removeprefix('torch.')} ({reason}), KV cache {cache}"


def default_choices(description: "Description") -> str:
    """Return the `choices` of an engine without options, as far as they are known before loading."""
    from ..models.checkpoint import default_dtype
    from ..models.reading import read_contents

    device = find_device(None)
    chosen = default_dtype(device, read_contents(description.path))
    return choices_of(*chosen, resolve(EngineConfig(), description, device))


@dataclass(frozen=True, slots=True)
class _Model:
    """A checkpoint before its weights are read, with device and dtype; adapter None if unused."""

    folder: Path
    device: str
    dtype: "Dtype | None"
    description: "Description"
    adapter: "Adapter | None"


def _describe(config: EngineConfig) -> _Model:
    """Describe the checkpoint of `config`. Raises ValueError if it cannot be used, or if ranks cannot share its network."""
    # Before the imports below, which take seconds: wrong names are reported at once.
    folder = _folder(config)
    device = find_device(config.device)
    check_room(config, device)
    import torch

    from ..models import read_adapter, read_description
    from ..models.weights import check_ranks

    dtype = None if config.dtype is None else getattr(torch, config.dtype)
    adapter = None if config.lora_path is None or config.use_lora is False else read_adapter(folder_of(config.lora_path))
    description = read_description(folder, config.model_name, mask_token_id=config.mask_token_id)
    if adapter is not None and adapter.drafts_only:
        _check_drafts(config, adapter, description)
    elif adapter is not None and (training := trained_further(description.training, config)) != description.training:
        own = None if training is None else TRAININGS[training][0]
        description = replace(description, training=training, decoding_strategy=own)
    if config.quantization is not None:
        _check_quantization(config, device, adapter)
    if config.tensor_parallel_size > 1:
        check_ranks(description.family.network, description.config, config.tensor_parallel_size)
    return _Model(folder, device, dtype, description, adapter)


def _check_drafts(config: EngineConfig, adapter: "Adapter", description: "Description") -> None:
    """Raise ValueError if an option is incompatible with the adapter, which is only for drafts."""
    choice = config.decoding_strategy
    name = name_of(choice if isinstance(choice, Strategy) else chosen(config, description.decoding_strategy))
    reason = None
    if name != "self_speculation":
        reason = f"decoding_strategy={name!r} has no drafts: give decoding_strategy='self_speculation', or leave lora_path out"
    elif config.pre_merge_lora:
        reason = "pre_merge_lora=True would apply it to all rows: leave pre_merge_lora out"
    elif config.tensor_parallel_size > 1:
        reason = f"it is not supported with tensor_parallel_size={config.tensor_parallel_size}: leave lora_path out"
    if reason is not None:
        raise ValueError(f"the adapter in {adapter.folder} applies only to drafts, but {reason}")


def _check_quantization(config: EngineConfig, device: str, adapter: "Adapter | None") -> None:
    """Raise ValueError if the device cannot multiply quantized numbers, or if the adapter stays separate from the weights."""
    import torch

    from ..models.quantization import check_device

    check_device(torch.device(device))
    if adapter is not None and (adapter.drafts_only or config.pre_merge_lora is False):
        raise ValueError(
            f"quantization={config.quantization!r} does not go with the adapter in {adapter.folder}, which stays separate from "
            "the weights: leave " + ("quantization" if adapter.drafts_only else "pre_merge_lora") + " out"
        )


def _folder(config: EngineConfig) -> Path:
    """Return the checkpoint's folder. Raises ValueError if there is none."""
    models = embedded_models_for(config)
    if not models and config.model is None:
        raise ValueError(
            f"no embedded model can be decoded with {config.decoding_strategy!r}: give model=, one of "
            f"{', '.join(tiny.names())} or a checkpoint folder"
        )
    model = models[0] if config.model is None else config.model
    path = tiny.path(model) if model in tiny.names() else folder_of(model)
    if path.is_file():
        raise ValueError(f"model={model!r} is a file: give the folder that holds it")
    if not path.is_dir():
        raise ValueError(
            f"no checkpoint folder at {model!r}, and the embedded models are {', '.join(tiny.names())}"
            + (did_you_mean(model, tiny.names(), ": ") or "; a model of a hub has a name like org/name")
        )
    return path


def _check_ranks(config: EngineConfig) -> None:
    """Raise ValueError for options that do not support several ranks."""
    size = config.tensor_parallel_size
    if config.device is not None and config.device.startswith("cuda:"):
        raise ValueError(
            f"device={config.device!r} is one device, and tensor_parallel_size={size} needs {size}: give cuda or cpu"
        )
    if find_device(config.device) == "cuda":
        import torch

        count, needed = torch.cuda.device_count(), first_device() + size
        if count < needed:
            groups = f" for each of {needed // size} replicas" if needed > size else ""
            raise ValueError(f"tensor_parallel_size={size} needs {size} CUDA devices{groups}, torch finds {count}: give fewer")
    if config.lora_path is not None and config.use_lora is not False and config.pre_merge_lora is False:
        raise ValueError(
            f"pre_merge_lora=False does not go with tensor_parallel_size={size}: leave it out, so that the adapter is added to "
            "the weights"
        )


def _gather_ranks(config: EngineConfig, rank_info: "RankInfo | None") -> "WorkerGroup":
    """Return the group of this process. Without `rank_info` it is rank 0 and starts the others."""
    from ..distributed.ranks import ALONE
    from ..distributed.worker_group import WorkerGroup, start_worker_group

    if rank_info is not None:
        return WorkerGroup(rank_info.join(config.rank_timeout))
    if config.tensor_parallel_size == 1:
        return WorkerGroup(ALONE)
    return start_worker_group(config.tensor_parallel_size, run_rank, config, timeout=config.rank_timeout)


def _load_network(config: EngineConfig, model: _Model, ranks: "Ranks") -> "Checkpoint":
    """Return the checkpoint with its weights, or this rank's shard of them, on its device."""
    import torch

    from ..models import load_checkpoint
    from ..views.progress_bars import loading_bar

    device = model.device
    if ranks.several and device == "cuda":
        device = device_of_rank(ranks.rank)
        torch.cuda.set_device(device)
    progress = partial(loading_bar, enabled=ranks.rank == 0)  # only one rank shows progress bars
    checkpoint = load_checkpoint(
        model.folder,
        device,
        model.dtype,
        description=model.description,
        progress=progress,
        ranks=ranks,
        quantized=config.quantization is not None and model.adapter is None,
    )
    if checkpoint.network.device.type == "cpu" or config.num_threads is not None:
        set_threads(sum(parameter.numel() for parameter in checkpoint.network.parameters()), config.num_threads)
    return checkpoint


def _adapt(config: EngineConfig, checkpoint: "Checkpoint", adapter: "Adapter | None") -> Spec:
    """Apply the adapter, quantize and compile the layers in place. Return the spec with fingerprint."""
    from dlstep_kernels.choice import has_kernels

    from ..models import adapt
    from ..models.fingerprint import fingerprint

    merge = config.pre_merge_lora is not False and not (adapter is not None and adapter.drafts_only)
    if adapter is not None:
        adapt(checkpoint, adapter, merge=merge)
    spec = replace(
        checkpoint.spec, fingerprint=fingerprint(checkpoint, adapter, merged=merge, quantization=config.quantization)
    )
    if config.quantization is not None and adapter is not None:  # an adapter is merged into weights before they are rounded
        from ..models.quantization import quantize

        quantize(checkpoint.network)
    if config.compile_layers if config.compile_layers is not None else has_kernels(checkpoint.network.device):
        from ..models.compiled import compile_layers

        compile_layers(checkpoint.network)
    return spec


def _size_pages(options: EngineConfig, checkpoint: "Checkpoint") -> EngineConfig:
    """Return options, with `num_pages` measured if -1. Raises ValueError if they do not fit."""
    from ..models.shapes import kv_bytes_per_token, kv_shapes

    if options.num_pages == -1:
        from ..driver.memory import pages_for

        gib, share = options.kv_cache_gib, options.gpu_memory_utilization or DEFAULT_MEMORY_SHARE
        options = replace(options, num_pages=1, kv_cache_gib=None, gpu_memory_utilization=None)
        core_config, strategy = build(options, checkpoint.spec)
        pages = pages_for(checkpoint, core_config, strategy, gib=gib, share=share, captures=not options.enforce_eager)
        options = replace(options, num_pages=min(checkpoint.ranks.gather_objects(pages)))
    shapes = kv_shapes(checkpoint.network.config, checkpoint.ranks.size)
    check_room(options, str(checkpoint.network.device), kv_bytes_per_token(shapes, checkpoint.network.dtype))
    return options


def _build_driver(
    config: EngineConfig, checkpoint: "Checkpoint", core_config: Config, strategy: Strategy, group: "WorkerGroup"
) -> Driver:
    """Return the driver, with its graphs if they are captured at the start. Raises ValueError if memory runs out."""
    import torch

    from ..distributed.rank_zero import RankZeroDriver
    from ..driver import TorchDriver
    from ..views.progress_bars import capturing_bar

    try:
        driver = TorchDriver(checkpoint, core_config, enforce_eager=config.enforce_eager, max_caches=config.max_sessions)
    except torch.OutOfMemoryError as error:
        raise ValueError(str(error)) from error
    if config.capture_graphs == "start":
        try:
            with ExitStack() as undone, capturing_bar(enabled=group.ranks.rank == 0) as show:
                undone.callback(driver.drop_graphs)  # free graphs before ranks leave the group
                driver.capture(strategy, show)
                undone.pop_all()
        except torch.OutOfMemoryError as error:
            raise ValueError(
                f"after {driver.graph_count} graphs there is no memory left: lower num_pages or gpu_memory_utilization, or "
                f"give capture_graphs='lazy' ({error})"
            ) from error
    return RankZeroDriver(driver, group) if group.ranks.several and group.ranks.rank == 0 else driver


def _free_memory(kind: type[BaseException] | None, error: BaseException | None, frames: TracebackType | None) -> None:
    """Free what a ValueError's frames refer to, since a notebook keeps the last error alive."""
    rejected = isinstance(error, ValueError)
    while rejected and error is not None:
        clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__

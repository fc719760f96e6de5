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
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

from .. import tiny
from ..core import Config, Driver, Refused, SamplingParams, Spec, State, WeightsDriver, init, least_pages
from ..core.checks import did_you_mean
from ..text.detokenize import Tokenizer
from .buffer_policy import BufferPolicy
from .config import EngineConfig
from .decode import Turn
from .devices import TABLE_ROW_BYTES, check_room, device_of_rank, memory_of, set_threads
from .hub import HubModel, source_of
from .resolve import ResolvedConfig, resolve
from .strategy_choice import embedded_models_for

if TYPE_CHECKING:
    from ..distributed.ranks import Ranks
    from ..distributed.worker_group import RankInfo, WorkerGroup
    from ..models import Checkpoint, Description

LOG = logging.getLogger("dlstep.engine")
Result = TypeVar("Result")


@runtime_checkable
class MeasuringDriver(Driver, Protocol):
    """A driver that knows how much memory is free."""

    def room(self) -> int:
        """Return how many pages one more KV cache may have."""
        ...


@dataclass(frozen=True, slots=True)
class LoadedEngine:
    """Parts of an `LLM`: the state before any request, the driver, and the tokenizer.

    `prompt_end` is appended to text prompts that do not end with it. `chat_template` renders conversations;
    None: the tokenizer's template. Each step of an `LLM` or a session holds the lock `turn`, so no other
    thread can evict its pages during the step. `folder` is the checkpoint's, or None for an engine built by hand.
    `ranks` share the network. Sessions ignore `buffer_policy`.
    `max_tokens` is the maximum length of answers in calls without sampling parameters.
    """

    first: State
    driver: Driver
    tokenizer: Tokenizer | None
    name: str
    prompt_end: str = ""
    chat_template: str | None = None
    folder: Path | None = None
    buffer_policy: BufferPolicy | None = None
    ranks: "Ranks | None" = None
    max_tokens: int = SamplingParams().max_tokens
    turn: Turn = field(default_factory=Turn, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.buffer_policy is not None:
            self.buffer_policy.check(self.first.config, self.first.strategy)

    def pages_of_session(self, needed: int = 0) -> int:
        """Return the number of pages for a session whose requests need `needed` pages.

        It is at least enough for one longest request, and at most the engine's number or what fits into free memory.
        """
        config = self.first.config
        most, longest = config.num_pages, least_pages(self.first.strategy, config.max_model_len, config.page_size)
        if needed and isinstance(self.driver, MeasuringDriver):
            needed = min(needed, self.driver.room())
        pages = max(longest, min(needed, most))
        # Must differ from the LLM's number: drivers recognise KV caches of sessions by it.
        return pages + (pages == most)


def changed(engine: LoadedEngine, change: Callable[[WeightsDriver], Result]) -> tuple[LoadedEngine, Result]:
    """Return the result of a change of the driver, and the engine with the fingerprint of the driver's weights."""
    driver, config = engine.driver, engine.first.config
    if not isinstance(driver, WeightsDriver):
        raise ValueError(f"a {type(driver).__name__} has no weights to change: load a model")
    result = change(driver)
    spec = replace(config.spec, fingerprint=driver.fingerprint)
    return replace(engine, first=init(replace(config, spec=spec), engine.first.strategy)), result


def load_engine(config: EngineConfig) -> LoadedEngine:
    """Return the engine that `config` describes. Imports torch and transformers.

    With several ranks, this process is rank 0 and starts the others. A process that torchrun
    started as a non-zero rank follows rank 0 until it ends, and then exits. Raises ValueError for
    an unusable checkpoint or contradicting options, DlstepError if a rank cannot be started.
    """
    rank_info = None
    if config.tensor_parallel_size > 1:
        from ..distributed.worker_group import torchrun_rank_info

        rank_info = torchrun_rank_info(config.tensor_parallel_size)
        if rank_info is not None and rank_info.rank:
            run_rank(rank_info, config)
            raise SystemExit(0)
    return build_engine(config, partial(_gather_ranks, config, rank_info))


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


Gather = Callable[[ResolvedConfig], "WorkerGroup"]


def build_engine(config: EngineConfig, gather: Gather) -> LoadedEngine:
    """Return the engine of this rank. If loading fails, end the group of ranks and free memory.

    The error's traceback keeps this frame, so only `_load`'s frame may refer to the network.
    """
    with ExitStack() as undone:
        engine = _load(config, gather, undone)
        undone.pop_all()
    return engine


def _describe(config: EngineConfig) -> "Description":
    """Return the facts of the checkpoint that `config` names. Raises ValueError if there is no usable one."""
    source = _source(config)  # before the import, which takes seconds: a wrong name is reported at once
    from ..models import read_description

    return read_description(
        source,
        config.family,
        mask_token_id=config.mask_token_id,
        head_shift=config.head_shift,
        training=config.training,
    )


def _source(config: EngineConfig) -> Path | HubModel:
    models = embedded_models_for(config)
    if not models and config.model is None:
        message = f"no embedded model can be decoded with {config.decoding_strategy!r}: give a checkpoint folder or one of"
        raise Refused("model", "missing", f"{message} {', '.join(tiny.names())}")
    model = models[0] if config.model is None else config.model
    source = tiny.path(model) if model in tiny.names() else source_of(model)
    path = source if isinstance(source, Path) else source.path
    if path.is_file():
        raise Refused("model", "invalid_value", f"{model!r} is a file: give the folder that holds it")
    if not path.is_dir():
        near = did_you_mean(model, tiny.names(), ": ") or "; a model of a hub has a name like org/name"
        message = f"no checkpoint folder at {model!r}, and the embedded models are {', '.join(tiny.names())}{near}"
        raise Refused("model", "unknown_name", message)
    return source


def _load(config: EngineConfig, gather: Gather, undone: ExitStack) -> LoadedEngine:
    """Load the engine in stages. Each stage pushes its cleanup in case of an error on `undone`."""
    options = resolve(config, _describe(config))
    _check_model(options)
    options.model.source.fetch()
    group = gather(options)
    undone.callback(group.end)
    undone.push(_free_memory)
    with group.starting():
        checkpoint = _load_network(options, group.ranks)
        spec = _adapt(options, checkpoint)
        options = _size_pages(options, checkpoint)
        core_config = options.core_config(spec)
        state = init(core_config, options.strategy)
        driver = _build_driver(options, checkpoint, core_config, group)
    # The embedded models were trained on whole lines, so a prompt must end with a newline.
    model, embedded = options.model, tiny.is_embedded(options.model.path)
    if not embedded and group.ranks.rank == 0:
        LOG.info("dlstep: %s", options.choices)
    fallback = tiny.CHAT_TEMPLATE if embedded else model.family.chat_template
    return LoadedEngine(
        state,
        driver,
        model.tokenizer,
        model.name,
        prompt_end="\n" if embedded else "",
        chat_template=None if model.tokenizer.chat_template else fallback,
        folder=model.path,
        buffer_policy=options.buffer_policy,
        ranks=group.ranks,
        max_tokens=options.max_tokens,
    )


def _check_model(options: ResolvedConfig) -> None:
    """Refuse a model that does not fit its network or the memory, before its weights are downloaded.

    Raises ValueError for tensors that do not fit the network, and Refused for weights, pages or page tables that are
    larger than the memory.
    """
    from ..distributed.ranks import Ranks
    from ..models.checkpoint import Layout, placements_of
    from ..models.shapes import in_gib, kv_bytes_per_token, kv_shapes
    from ..models.weights import empty_network

    check_room(options.device, "max_num_reqs", options.max_num_reqs, TABLE_ROW_BYTES)
    # Building the network refuses an invalid config, from which `kv_shapes` could not read sizes.
    network = empty_network(options.model.family.network, options.model.config, options.dtype)
    placements_of(options.model, network, options.model.source.contents())
    weights = Layout.of(network, Ranks(0, options.tensor_parallel_size), quantized=options.quantized_at_once).size
    room = memory_of(options.device)
    if room is not None and weights > room:
        message = (
            f"the weights of {options.model.name} take {in_gib(weights)} as {options.dtype}, and {options.device} has "
            f"{in_gib(room)} of memory: `dlstep models check` shows which dtypes and quantizations fit"
        )
        raise Refused("model", "out_of_range", message)
    if options.num_pages is not None:
        position = kv_bytes_per_token(kv_shapes(network.config, options.tensor_parallel_size), options.kv_dtype)
        check_room(options.device, "num_pages", options.num_pages, options.page_size * position)


def _gather_ranks(config: EngineConfig, rank_info: "RankInfo | None", options: ResolvedConfig) -> "WorkerGroup":
    """Return the group of this process. Without `rank_info` it is rank 0 and starts the others."""
    from ..distributed.ranks import ALONE
    from ..distributed.worker_group import WorkerGroup, start_worker_group

    if rank_info is not None:
        return WorkerGroup(rank_info.join(options.rank_timeout))
    if options.tensor_parallel_size == 1:
        return WorkerGroup(ALONE)
    return start_worker_group(options.tensor_parallel_size, run_rank, config, timeout=options.rank_timeout)


def _load_network(options: ResolvedConfig, ranks: "Ranks") -> "Checkpoint":
    """Return the checkpoint with its weights, or this rank's shard of them, on its device."""
    import torch

    from ..models import load_checkpoint
    from ..views.progress_bars import loading_bar

    device = options.device
    if ranks.several and device == "cuda":
        device = device_of_rank(ranks.rank)
        torch.cuda.set_device(device)
    progress = partial(loading_bar, enabled=ranks.rank == 0)  # only one rank shows progress bars
    checkpoint = load_checkpoint(
        options.model.path,
        device,
        options.dtype,
        description=options.model,
        progress=progress,
        ranks=ranks,
        quantized=options.quantized_at_once,
        kv_dtype=options.kv_dtype,
    )
    if checkpoint.network.device.type == "cpu" or options.num_threads is not None:
        set_threads(sum(parameter.numel() for parameter in checkpoint.network.parameters()), options.num_threads)
    return checkpoint


def _adapt(options: ResolvedConfig, checkpoint: "Checkpoint") -> Spec:
    """Apply the adapter, quantize and compile the layers in place. Return the spec with fingerprint."""
    from ..models import adapt
    from ..models.fingerprint import fingerprint

    adapter, merge, quantization = options.adapter, options.merge_adapter, options.quantization
    if adapter is not None:
        adapt(checkpoint, adapter, merge=merge)
    spec = replace(checkpoint.spec, fingerprint=fingerprint(checkpoint, adapter, merged=merge, quantization=quantization))
    if quantization is not None and adapter is not None:
        from ..models.quantization import quantize

        quantize(checkpoint.network)
    if options.compile_layers:
        from ..models.compiled import compile_layers

        compile_layers(checkpoint.network)
    return spec


def _size_pages(options: ResolvedConfig, checkpoint: "Checkpoint") -> ResolvedConfig:
    """Return options whose number of pages is decided: measured, if it depends on the memory that the weights leave."""
    if options.num_pages is not None:
        return options
    from ..driver.memory import pages_for

    gib, share, captures = options.kv_cache_gib, options.gpu_memory_utilization, options.graphs != "never"
    config = options.core_config(checkpoint.spec)
    pages = pages_for(checkpoint, config, options.strategy, gib=gib, share=share, captures=captures)
    return replace(options, num_pages=min(checkpoint.ranks.gather_objects(pages)))


def _build_driver(options: ResolvedConfig, checkpoint: "Checkpoint", config: Config, group: "WorkerGroup") -> Driver:
    """Return the driver, with its graphs if they are captured at the start. Raises ValueError if memory runs out."""
    import torch

    from ..distributed.rank_zero import RankZeroDriver
    from ..driver import TorchDriver
    from ..models.updating import Weights
    from ..views.progress_bars import capturing_bar

    try:
        weights = Weights(checkpoint, options.adapter, merged=options.merge_adapter, quantization=options.quantization)
        eager, sessions = options.graphs == "never", options.max_sessions
        driver = TorchDriver(checkpoint, config, enforce_eager=eager, max_caches=sessions, weights=weights)
    except torch.OutOfMemoryError as error:
        raise ValueError(str(error)) from error
    if options.graphs == "start":
        try:
            with ExitStack() as undone, capturing_bar(enabled=group.ranks.rank == 0) as show:
                undone.callback(driver.drop_graphs)  # free graphs before ranks leave the group
                driver.capture(options.strategy, show)
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

"""Executors: start a forward pass, and return packed samples once the device is done."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float32, Int64
from torch import Tensor

from ..models.networks import Batch, Memory, PagedNetwork
from .buckets import Bucket
from .lowering import Gathered, LoweringTarget, lower, pack, with_masks
from .profile import region

Packed = Float32[Tensor, "k w"]
Unmask = Callable[[Int64[Tensor, " n"]], None]  # changes the tokens of a pass on the device


@dataclass(frozen=True, slots=True)
class Pending:
    """Packed samples on their way to the host. `packed` is None if no row is sampled; `columns` None means all."""

    packed: Packed | None
    copied: torch.cuda.Event | None = None
    columns: list[int] | None = None

    def wait(self) -> Packed | None:
        """Block until the samples have arrived and return them."""
        if self.copied is not None:
            self.copied.synchronize()
        if self.packed is None or self.columns is None:
            return self.packed
        return self.packed[:, self.columns] if self.columns else None


NOTHING = Pending(None)


class Executor:
    """An executor of forward passes of `network` over `memory`, without padding or graphs."""

    def __init__(self, network: PagedNetwork, memory: Memory, target: LoweringTarget) -> None:
        self._network, self._memory, self._target = network, memory, target
        self.graph_count = 0  # number of captured graphs
        self.answer: Packed | None = None  # of the last forward pass that sampled, on the device

    @torch.inference_mode()
    def submit(self, gathered: Gathered, unmask: Unmask | None = None) -> Pending:
        """Start a forward pass and the sampling of its rows. `unmask` first changes its tokens."""
        batch = self._lowered(gathered)
        if unmask is not None:
            unmask(batch.tokens[0])
        packed = self._step(batch, gathered)
        if packed is None:
            return NOTHING
        self.answer = packed
        return to_host(packed)

    def is_quick(self, gathered: Gathered) -> bool:
        """Return whether the forward pass can start without capturing a graph."""
        return True

    def drop_graphs(self) -> None:
        """Free all graphs; this executor has none."""

    def capture(self, idle: Gathered, bucket: Bucket) -> None:
        """Capture a graph for `bucket`; this executor captures none."""

    def _step(self, batch: Batch, gathered: Gathered) -> Packed | None:
        """Run a forward pass and sample its rows. Token masks are computed while a device runs the network's body."""
        rows = self._forward(batch)
        return None if rows is None else self._sample(with_masks(batch, gathered, self._target), rows)

    @region("lower")
    def _lowered(self, gathered: Gathered) -> Batch:
        return lower(gathered, self._target)

    @region("forward")
    def _forward(self, batch: Batch) -> Tensor | None:
        return self._network.body(batch, self._memory)

    @region("sample")
    def _sample(self, batch: Batch, rows: Tensor) -> Packed:
        """Return samples. All ranks use rank 0's, so that rounding cannot make them diverge."""
        drawn = self._network.sample(batch, self._network.head(batch, rows))
        return self._network.ranks.first_of(pack(drawn))


def to_host(packed: Packed) -> Pending:
    """Start copying `packed` to the host."""
    if packed.device.type != "cuda":
        return Pending(packed)
    received = torch.empty(packed.shape, dtype=packed.dtype, pin_memory=True)
    received.copy_(packed, non_blocking=True)
    copied = torch.cuda.Event()
    copied.record()
    return Pending(received, copied)

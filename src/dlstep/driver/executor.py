"""Executors: they take what was gathered for a forward, and answer with packed samples once the device is done."""

from dataclasses import dataclass

import torch
from jaxtyping import Float32
from torch import Tensor

from ..models.networks import Batch, Memory, PagedNetwork
from ..models.networks.network import Answer
from .buckets import Bucket
from .lowering import Gathered, Target, lower, pack
from .profile import region

Packed = Float32[Tensor, "k w"]


@dataclass(frozen=True, slots=True)
class Pending:
    """An answer on its way to the host, which may work meanwhile. `packed` is None where nothing was wanted."""

    packed: Packed | None
    copied: torch.cuda.Event | None = None

    def wait(self) -> Packed | None:
        """The answer, once it is there."""
        if self.copied is not None:
            self.copied.synchronize()
        return self.packed


NOTHING = Pending(None)


class Executor:
    """Runs forwards of `network` over `memory`, each in its own sizes."""

    def __init__(self, network: PagedNetwork, memory: Memory, target: Target) -> None:
        self._network, self._memory, self._target = network, memory, target
        self.padding = 0  # rows that forwards had too much, so far
        self.graph_count = 0  # graphs that are there

    @torch.inference_mode()
    def submit(self, gathered: Gathered) -> Pending:
        """Start a forward and the sampling of its wanted rows."""
        packed = self._step(self._lowered(gathered))
        return NOTHING if packed is None else to_host(packed)

    def replays(self, gathered: Gathered) -> bool:
        """Whether `submit` only launches a graph, and so never waits for the device."""
        del gathered
        return False

    def drop_graphs(self) -> None:
        """Nothing: there are none."""

    def capture(self, idle: Gathered, bucket: Bucket) -> None:
        """Nothing: forwards in their own sizes are not captured."""

    def _step(self, batch: Batch) -> Packed | None:
        """A forward and the sampling of its wanted rows, on the device: the part that graphs capture."""
        answer = self._forward(batch)
        return None if answer is None else self._sample(batch, answer)

    @region("lower")
    def _lowered(self, gathered: Gathered) -> Batch:
        return lower(gathered, self._target)

    @region("forward")
    def _forward(self, batch: Batch) -> Answer | None:
        return self._network.forward(batch, self._memory)

    @region("sample")
    def _sample(self, batch: Batch, answer: Answer) -> Packed:
        """Samples; of several ranks all take those of the first, so that a last bit cannot part them."""
        return self._network.ranks.first_of(pack(self._network.sample(batch, answer)))


def to_host(packed: Packed, received: Packed | None = None) -> Pending:
    """`packed` on its way to the host, into `received` if that is given, which lies in pinned memory."""
    if packed.device.type != "cuda":
        return Pending(packed)
    if received is None:
        received = torch.empty(packed.shape, dtype=packed.dtype, pin_memory=True)
    received.copy_(packed, non_blocking=True)
    copied = torch.cuda.Event()
    copied.record()
    return Pending(received, copied)

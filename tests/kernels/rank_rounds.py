"""Ranks that exchange tensors, in one thread: each begins anew for every exchange, and finds the earlier ones answered."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from dlstep_kernels.vocabulary import Exchange


class _GivenError(Exception):
    """A rank waits for the others, to whom it gives this tensor."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


def all_ranks(size: int, work: Callable[[int, Exchange], Any]) -> list[Any]:
    """The answers of `work(rank, exchange)`, which must do the same each time, on every rank."""
    rounds: list[list[Tensor]] = []
    while True:
        given: list[Tensor] = []
        found: list[Any] = []
        for rank in range(size):
            answered = iter(list(rounds))

            def exchange(tensor: Tensor, answered: Any = answered) -> list[Tensor]:
                every = next(answered, None)
                if every is None:
                    raise _GivenError(tensor)
                return every

            try:
                found.append(work(rank, exchange))
            except _GivenError as waiting:
                given.append(waiting.tensor)
        if not given:
            return found
        assert len(given) == size, "some ranks exchange something, others do not"
        assert len({tensor.shape for tensor in given}) == 1, "ranks exchange tensors of different shapes"
        rounds.append(given)

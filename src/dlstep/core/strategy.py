"""The contract of a decoding strategy: what it decides, for one sequence at a time."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from .grid import Grid
from .plan import Rows, Span, Statistic, Ties
from .request import Request
from .sequence import Sequence
from .spec import Spec


@dataclass(frozen=True, slots=True)
class Strategy(ABC):
    """Decides what to feed and what to keep. A concrete strategy is a final frozen dataclass of its hyperparameters.

    All methods are pure. Batching, pages, admission, preemption, limits and finish rules are the core's: it feeds final
    positions that are not stored, in front of the window's span where that changes nothing and alone otherwise, and never
    shows a strategy a forward that samples nothing.
    """

    @abstractmethod
    def init(self, sequence: Sequence, spec: Spec) -> Sequence:
        """The state before the first forward: `sequence` as `open_sequence` made it, with its first window and `final`."""

    @abstractmethod
    def schedule(self, sequence: Sequence, spec: Spec) -> Span:
        """The span of the window: what the next sampling forward feeds from `final` on, and wants."""

    @abstractmethod
    def commit(self, sequence: Sequence, span: Span, rows: Rows, spec: Spec) -> Sequence:
        """The state after the forward that ran `span` answered `rows`, entry by entry of `span.wanted`."""

    @abstractmethod
    def grid(self, request: Request) -> Grid:
        """The groups under which the final positions of `request` are stored."""

    @abstractmethod
    def atom(self, request: Request) -> int:
        """The most positions of `request` that must be fed at once."""

    @abstractmethod
    def measure(self, sequence: Sequence) -> int:
        """A number that every sampling forward lowers and that never falls below 0: the bound of `steps`."""

    def forget(self, sequence: Sequence, spec: Spec) -> Sequence:
        """The state when the device may hold nothing of the sequence; all else in `extra` must be true without a device."""
        del spec
        return sequence

    @property
    def wants(self) -> frozenset[Statistic]:
        """Statistics that `commit` reads beside token and probability."""
        return frozenset()

    @property
    def ties(self) -> Ties:
        """Which of equally probable ids greedy sampling takes."""
        return "highest"

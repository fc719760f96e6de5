"""The contract of a decoding strategy: what it decides, for one sequence at a time."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from .grid import Grid
from .plan import PLAIN, Rows, Span, Wants
from .request import Request
from .sequence import Sequence
from .spec import Spec


@dataclass(frozen=True, slots=True)
class Strategy(ABC):
    """Decides what to feed and what to keep. A concrete strategy is a final frozen dataclass of its hyperparameters.

    All methods are pure. Batching, pages, admission, preemption, limits and finish rules are the core's: it feeds final
    positions that are not stored, in front of the window's span where that changes nothing and alone otherwise, and never
    shows a strategy a forward that samples nothing. Requests come in with `max_tokens` cut to what the model's length
    leaves: prompt length + `max_tokens` is the end of the answer.
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
        """The state when the device may hold nothing of the sequence; all else in `extra` must be true without a device.

        A strategy that must do forwards again takes them off `steps`, so that its answer and limits stay the same.
        """
        del spec
        return sequence

    def reach(self, request: Request) -> int:
        """First position that no forward of `request` feeds."""
        return self.grid(request).cover(len(request.prompt) + request.params.max_tokens)

    def unfit(self, spec: Spec) -> str:
        """Why no request of such a model can be decoded this way, in words; empty if they can."""
        del spec
        return ""

    def refuses(self, request: Request) -> str:
        """Why `request` cannot be decoded this way, in words; empty if it can."""
        del request
        return ""

    @property
    def wants(self) -> Wants:
        """Statistics that `commit` reads beside token and probability, and how ties are broken."""
        return PLAIN

    @property
    def exact(self) -> bool:
        """Whether preemption changes no answer; not so if a forward reads what earlier ones stored for other tokens."""
        return True

    @property
    def carries(self) -> bool:
        """Whether the network carries something from one forward of a sequence to its next."""
        return False

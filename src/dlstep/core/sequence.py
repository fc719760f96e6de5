"""One request on its way, and the contract of the strategy that decides its tokens."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain

from rpds import List

from .block import Block, Extra, Sealed
from .grid import Grid
from .ledger import NEW_LEDGER, NOTHING_STORED, Ending, FinishReason, Ledger, Storage, Watch
from .options import Options
from .plan import PLAIN, Rows, Span, Wants
from .request import Request
from .spec import Spec
from .values import maker, value

NO_BLOCKS: "List[Sealed]" = List([])


@value
class Goal:
    """The fixed part of a sequence: its request, and what follows from it and the model.

    The answer ends in front of position `limit` or at one of `stop_ids`; `grid` are the groups of its final positions.
    `strategy` is the state's own value, or another one with the options that the request brings; `shipped` is its property of
    that name, which is read in every step.
    """

    request: Request
    limit: int
    stop_ids: tuple[int, ...]
    grid: Grid
    strategy: "Strategy"
    shipped: bool


@value
class Sequence:
    """Progress of one request.

    The strategy owns `past` (finished blocks, newest first), `window` (unfinished ones), `final` (positions `[0, final)`
    whose token and context can no longer change), `settled` (tokens of positions `[0, settled)` can no longer change,
    `final <= settled`) and `extra`; the core owns `ledger`.

    Blocks cover the positions from `past`'s oldest, or the window's first, on; those before them hold the prompt only.
    """

    goal: Goal
    window: tuple[Block, ...]
    final: int
    settled: int
    past: "List[Sealed]" = NO_BLOCKS
    extra: Extra | None = None
    ledger: Ledger = NEW_LEDGER

    @property
    def id(self) -> int:
        """The request's id."""
        return self.goal.request.id

    @property
    def request(self) -> Request:
        """The request."""
        return self.goal.request

    @property
    def limit(self) -> int:
        """First position past the answer."""
        return self.goal.limit

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """Ids that end the answer, ascending."""
        return self.goal.stop_ids

    @property
    def steps(self) -> int:
        """Forwards that sampled a position of the request."""
        return self.ledger.steps

    @property
    def nfe(self) -> int:
        """All forwards that the request took part in."""
        return self.ledger.nfe

    @property
    def storage(self) -> Storage:
        """Pages and carry slot of the sequence on the device."""
        return self.ledger.storage

    @property
    def ending(self) -> Ending | None:
        """How the answer ended; None while it has not."""
        return self.ledger.ending

    @property
    def stored(self) -> int:
        """Positions `[0, stored)` have their final keys and values in pages."""
        return self.ledger.storage.stored

    @property
    def pages(self) -> tuple[int, ...]:
        """The pages of the sequence, in order of position; costs their number."""
        return tuple(self.ledger.storage.table)[::-1]

    @property
    def finish(self) -> FinishReason | None:
        """Why the answer ended; None while it has not."""
        return self.ending.reason if self.ending else None

    @property
    def error(self) -> str:
        """The error in words; empty if there is none."""
        return self.ending.error if self.ending else ""

    @property
    def answer(self) -> tuple[int, ...]:
        """Emitted tokens: those of the finished answer, or while running the ones that can no longer change."""
        end = self.ending.end if self.ending else max(self.settled, len(self.request.prompt))
        return self.tokens(len(self.request.prompt), end)

    @property
    def probabilities(self) -> tuple[float, ...]:
        """The probability that each token of `answer` had when it was decided."""
        start = len(self.request.prompt)
        return self.probabilities_of(start, start + len(self.answer))

    def probabilities_of(self, start: int, end: int) -> tuple[float, ...]:
        """Probabilities of the answer's positions `[start, end)`; costs the positions from `start` on."""
        if end <= start:
            return ()
        blocks = self._blocks(start, end)
        first = blocks[0].start
        return tuple(p for block in blocks for p in block.probabilities)[start - first : end - first]

    def _blocks(self, start: int, end: int) -> list[Sealed | Block]:
        """The blocks that overlap `[start, end)`, oldest first; costs the number of blocks from `start` on."""
        of_window: list[Sealed | Block] = [block for block in self.window if block.end > start and block.start < end]
        if of_window and of_window[0].start <= start:
            return of_window
        found: list[Sealed | Block] = []
        for block in self.past:
            if block.end <= start:
                break
            if block.start < end:
                found.append(block)
        found.reverse()
        return found + of_window

    def tokens(self, start: int, end: int) -> tuple[int, ...]:
        """Tokens of positions `[start, end)`; costs the positions from `start` on."""
        window = self.window
        if window and window[0].start <= start <= end <= window[0].end:
            return window[0].tokens[start - window[0].start : end - window[0].start]
        prompt = self.goal.request.prompt
        if end <= len(prompt) or start >= end:
            return prompt[start:end]
        blocks = self._blocks(start, end)
        first = blocks[0].start
        # Blocks repeat the prompt tokens that fall into them; positions before the first block hold the prompt only.
        head = prompt[start:first] if start < first else ()
        body = blocks[0].tokens if len(blocks) == 1 else tuple(chain.from_iterable([block.tokens for block in blocks]))
        return head + body[max(start - first, 0) : end - first]

    def answer_cells(self) -> Iterator[tuple[int, int, bool]]:
        """Yield position, token and whether it is decided, for each position of the answer that a block covers."""
        first, limit = len(self.request.prompt), self.limit
        blocks: list[Sealed | Block] = [*reversed(list(self.past)), *self.window]
        for block in blocks:
            undecided = frozenset(block.undecided) if isinstance(block, Block) else frozenset[int]()
            for position, token in enumerate(block.tokens, block.start):
                if first <= position < limit:
                    yield position, token, position not in undecided

    @property
    def decided_tokens(self) -> dict[int, int]:
        """The token of each decided position of the answer, ascending."""
        return {position: token for position, token, known in self.answer_cells() if known}

    def moved(self, past: "List[Sealed]", window: tuple[Block, ...], final: int, settled: int) -> "Sequence":
        """The sequence with what a strategy owns replaced; the call every blockwise `commit` ends with."""
        return _sequence(self.goal, window, final, settled, past, self.extra, self.ledger)

    def with_ledger(self, ledger: Ledger) -> "Sequence":
        """The sequence with another ledger."""
        return Sequence(self.goal, self.window, self.final, self.settled, self.past, self.extra, ledger)

    def counted(self, storage: Storage, steps: int) -> "Sequence":
        """The sequence after a forward that stored what `storage` says; `steps` is 1 if it sampled, else 0."""
        ledger = self.ledger
        ledger = _ledger(storage, ledger.steps + steps, ledger.nfe + 1, ledger.watch, ledger.ending)
        return _sequence(self.goal, self.window, self.final, self.settled, self.past, self.extra, ledger)

    def holding(self, storage: Storage) -> "Sequence":
        """The sequence with another storage."""
        ledger = self.ledger
        return self.with_ledger(Ledger(storage, ledger.steps, ledger.nfe, ledger.watch, ledger.ending))

    def watching(self, watch: Watch) -> "Sequence":
        """The sequence with other remembered tokens."""
        return self.with_ledger(replace(self.ledger, watch=watch))

    def ended(self, ending: Ending) -> "Sequence":
        """The sequence with its answer ended; it holds nothing any more."""
        return self.with_ledger(replace(self.ledger, storage=NOTHING_STORED, ending=ending))

    def asking(self, request: Request) -> "Sequence":
        """The sequence of another request, which differs in its parameters only."""
        return replace(self, goal=replace(self.goal, request=request))

    def decoded_by(self, strategy: "Strategy") -> "Sequence":
        """The sequence with another value of its strategy, which leaves the layout of its blocks as it is."""
        return replace(self, goal=replace(self.goal, strategy=strategy, shipped=strategy.shipped))


_sequence, _ledger = maker(Sequence), maker(Ledger)


@dataclass(frozen=True, slots=True)
class Strategy(Options, ABC):
    """Decides what to feed and what to keep. A concrete strategy is a final frozen dataclass of its hyperparameters.

    A request that brings options of its own is decoded by a value of its own, so a strategy reads nothing but itself.
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
    def shipped(self) -> bool:
        """Whether this package ships the strategy, and its rule; the core checks what others answer."""
        return self.SHIPPED

    @property
    def holds_pins(self) -> bool:
        """Whether requests may pin tokens: `init` and `commit` open blocks with them, and step over blocks without gaps."""
        return False

    @property
    def takes_canvas(self) -> bool:
        """Whether requests may bring a canvas to start from."""
        return False

    @property
    def exact(self) -> bool:
        """Whether preemption changes no answer; not so if a forward reads what earlier ones stored for other tokens."""
        return True

    @property
    def carries(self) -> bool:
        """Whether the network carries something from one forward of a sequence to its next."""
        return False


def open_sequence(request: Request, limit: int, stop_ids: tuple[int, ...], grid: Grid, strategy: "Strategy") -> Sequence:
    """A sequence without blocks; the strategy's `init` gives it its window and `final`."""
    return Sequence(Goal(request, limit, stop_ids, grid, strategy, strategy.shipped), (), 0, len(request.prompt))

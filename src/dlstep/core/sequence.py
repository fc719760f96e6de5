"""One request on its way: what is decided, what is final, what is stored, and what was counted."""

from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal

from rpds import List

from .block import Block, Extra, Sealed
from .grid import Grid
from .request import Request
from .values import value

FinishReason = Literal["stop", "length", "nfe_limit", "repetition", "abort", "rejected", "error"]
NO_BLOCKS: "List[Sealed]" = List([])
NO_PAGES: "List[int]" = List([])


@value
class Storage:
    """Pages and carry slot of a sequence on the device, as the core accounts for them.

    Final keys and values of positions `[0, stored)` are in the pages of `table`, newest first: it grows without being
    copied. The first `published` pages in order of position have a prefix key, `prefix_key` being the last. `slot` is where
    the device keeps what it carries from forward to forward, for strategies that carry something.
    """

    stored: int = 0
    table: "List[int]" = NO_PAGES
    published: int = 0
    prefix_key: bytes = b""
    slot: int | None = None

    def reaching(self, stored: int) -> "Storage":
        """The storage once positions `[0, stored)` are stored."""
        return Storage(stored, self.table, self.published, self.prefix_key, self.slot)

    def growing(self, table: "List[int]") -> "Storage":
        """The storage with more pages."""
        return Storage(self.stored, table, self.published, self.prefix_key, self.slot)

    def publishing(self, published: int, prefix_key: bytes) -> "Storage":
        """The storage with more pages that have a prefix key."""
        return Storage(self.stored, self.table, published, prefix_key, self.slot)


@dataclass(frozen=True, slots=True)
class Watch:
    """Settled tokens that finish rules still need, kept only if a request asks for them.

    `run` counts the equal tokens at the settled end, `tail` are the bytes there that a stop string may still need.
    """

    run: int = 0
    tail: bytes = b""


@dataclass(frozen=True, slots=True)
class Ending:
    """Why an answer ended, in front of which position, and in words if something went wrong."""

    reason: FinishReason
    end: int
    error: str = ""


@value
class Goal:
    """The fixed part of a sequence: its request, and what follows from it and the model.

    The answer ends in front of position `limit` or at one of `stop_ids`; `grid` are the groups of its final positions.
    """

    request: Request
    limit: int
    stop_ids: tuple[int, ...]
    grid: Grid


@value
class Ledger:
    """The core's side of a sequence: what is stored, forwards counted, settled tokens watched, and how it ended.

    `steps` counts the forwards that sampled a position of the request, `nfe` all forwards it took part in.
    """

    storage: Storage = Storage()
    steps: int = 0
    nfe: int = 0
    watch: Watch = Watch()
    ending: Ending | None = None


NOTHING_STORED = Storage()
NEW_LEDGER = Ledger()


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
        prompt = self.goal.request.prompt
        if end <= len(prompt) or start >= end:
            return prompt[start:end]
        blocks = self._blocks(start, end)
        first = blocks[0].start
        # Blocks repeat the prompt tokens that fall into them; positions before the first block hold the prompt only.
        head = prompt[start:first] if start < first else ()
        body = blocks[0].tokens if len(blocks) == 1 else tuple(chain.from_iterable([block.tokens for block in blocks]))
        return head + body[max(start - first, 0) : end - first]

    def moved(self, past: "List[Sealed]", window: tuple[Block, ...], final: int, settled: int) -> "Sequence":
        """The sequence with what a strategy owns replaced; the call every blockwise `commit` ends with."""
        return Sequence(self.goal, window, final, settled, past, self.extra, self.ledger)

    def with_ledger(self, ledger: Ledger) -> "Sequence":
        """The sequence with another ledger."""
        return Sequence(self.goal, self.window, self.final, self.settled, self.past, self.extra, ledger)

    def counted(self, storage: Storage, steps: int) -> "Sequence":
        """The sequence after a forward that stored what `storage` says; `steps` is 1 if it sampled, else 0."""
        ledger = self.ledger
        ledger = Ledger(storage, ledger.steps + steps, ledger.nfe + 1, ledger.watch, ledger.ending)
        return Sequence(self.goal, self.window, self.final, self.settled, self.past, self.extra, ledger)

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


def open_sequence(request: Request, limit: int, stop_ids: tuple[int, ...], grid: Grid) -> Sequence:
    """A sequence without blocks; a strategy's `init` gives it its window and `final`."""
    return Sequence(Goal(request, limit, stop_ids, grid), (), 0, len(request.prompt))

"""The complete state of the engine as one value (KV pages, sequences and the waiting queue), and updates between two states.

The core hands out page numbers; the driver owns the bytes. A page is owned by one or more sequences
(counted), cached (no owner, but findable by its prefix), or free. Allocation takes free pages first,
then evicts the cached page released longest ago.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import chain, islice
from typing import Generic, TypeVar

from rpds import HashTrieMap, List

from .block import Grid
from .config import Config
from .plan import EMPTY_CACHE
from .sequence import FinishInfo, SequenceState, Storage, Strategy
from .spec import Ids, Pages, Probabilities, SeqIds

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class NumberedQueue(Generic[Item]):
    """A queue of items by ascending number, which also removes items in the middle. Calls cost O(log n)."""

    items: "HashTrieMap[int, Item]" = HashTrieMap()
    """The items by number."""
    head: int = 0
    """No number is lower."""
    tail: int = 0
    """All numbers are lower."""

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Item]:
        """Yield the items in order."""
        return (self.items[number] for number in range(self.head, self.tail) if number in self.items)

    def push(self, number: int, item: Item) -> "NumberedQueue[Item]":
        """Return the queue with an item at its end.

        Args:
            number: Number of the item, above all others.
            item: The item.
        """
        return NumberedQueue(self.items.insert(number, item), self.head if self.items else number, number + 1)

    def remove(self, number: int) -> "NumberedQueue[Item]":
        """Return the queue without an item.

        Args:
            number: Number of the item, which must be in the queue.
        """
        items, head = self.items.remove(number), self.head
        # The head never moves back, so skipping numbers costs amortized O(1) per push.
        while head < self.tail and head not in items:
            head += 1
        return NumberedQueue(items, head, self.tail)


@dataclass(frozen=True, slots=True)
class PageQueue:
    """A FIFO queue of distinct pages, which also removes pages in the middle."""

    pages: NumberedQueue[int] = NumberedQueue()
    """The pages, numbered in order of arrival."""
    numbers: "HashTrieMap[int, int]" = HashTrieMap()
    """The number of each page."""

    def __len__(self) -> int:
        return len(self.pages)

    def __contains__(self, page: int) -> bool:
        return page in self.numbers

    def __iter__(self) -> Iterator[int]:
        """Yield the pages, oldest first."""
        return iter(self.pages)

    def push(self, page: int) -> "PageQueue":
        """Return the queue with `page` appended."""
        number = self.pages.tail
        return PageQueue(self.pages.push(number, page), self.numbers.insert(page, number))

    def remove(self, page: int) -> "PageQueue":
        """Return the queue without `page`, which must be in it."""
        return PageQueue(self.pages.remove(self.numbers[page]), self.numbers.remove(page))


@dataclass(frozen=True, slots=True)
class Cache:
    """Ownership of pages, and the index of cached prefixes."""

    num_pages: int
    """Number of pages."""
    fresh: int = 0
    """Pages from this number on were never handed out."""
    free: PageQueue = PageQueue()
    """Released pages without a prefix key."""
    cached: PageQueue = PageQueue()
    """Pages without an owner that a prefix key finds, the one released longest ago first."""
    owners: "HashTrieMap[int, int]" = HashTrieMap()
    """How many sequences hold a page."""
    index: "HashTrieMap[bytes, int]" = HashTrieMap()
    """Prefix keys to pages."""
    keys: "HashTrieMap[int, bytes]" = HashTrieMap()
    """Pages to prefix keys: the inverse of `index`."""
    slots: tuple[int, ...] = ()
    """Free carry slots, the next one first. One per request that may run; none if the strategy carries nothing."""

    @property
    def available(self) -> int:
        """The number of pages that can be handed out now."""
        return self.num_pages - self.fresh + len(self.free) + len(self.cached)

    def next_pages(self, count: int) -> Pages:
        """Return the next pages to hand out: first free pages, then cached pages, in order of their release.

        Args:
            count: How many; at most `available`.
        """
        return tuple(islice(chain(self.free, range(self.fresh, self.num_pages), self.cached), count))

    def take(self, pages: Iterable[int]) -> "Cache":
        """Return the cache with one owner for each of some pages. This evicts cached pages, which lose their keys.

        Args:
            pages: Pages without an owner.
        """
        fresh, free, cached = self.fresh, self.free, self.cached
        owners, index, keys = self.owners, self.index, self.keys
        for page in pages:
            if page >= fresh:
                fresh = page + 1  # plans hand out the pages that were never used in order
            elif page in free:
                free = free.remove(page)
            else:
                cached = cached.remove(page)
                index, keys = index.remove(keys[page]), keys.remove(page)
            owners = owners.insert(page, 1)
        return replace(self, fresh=fresh, free=free, cached=cached, owners=owners, index=index, keys=keys)

    def share(self, pages: Iterable[int], slot: int | None = None) -> "Cache":
        """Return the cache with one more owner of each of some pages.

        Args:
            pages: Pages that are owned or cached.
            slot: A free carry slot to use as well; None for none.
        """
        cached, owners = self.cached, self.owners
        for page in pages:
            count = owners.get(page, 0)
            if not count:
                cached = cached.remove(page)
            owners = owners.insert(page, count + 1)
        slots = self.slots if slot is None else tuple(other for other in self.slots if other != slot)
        return replace(self, cached=cached, owners=owners, slots=slots)

    def release(self, pages: Pages, slot: int | None = None) -> "Cache":
        """Return the cache after one owner of each page has released it, the last page first.

        Args:
            pages: The pages of a sequence, in order of position.
            slot: The carry slot of the sequence; None if it has none.
        """
        free, cached, owners = self.free, self.cached, self.owners
        for page in reversed(pages):
            count = owners[page]
            if count > 1:
                owners = owners.insert(page, count - 1)
                continue
            owners = owners.remove(page)
            if page in self.keys:
                cached = cached.push(page)
            else:
                free = free.push(page)
        slots = self.slots if slot is None else (*self.slots, slot)
        return replace(self, free=free, cached=cached, owners=owners, slots=slots)

    def publish(self, pages: Iterable[tuple[int, bytes]]) -> "Cache":
        """Return the cache with pages findable by a prefix key. An existing key keeps its page.

        Args:
            pages: Pairs of an owned page and its key.
        """
        index, keys = self.index, self.keys
        for page, key in pages:
            if key not in index:
                index, keys = index.insert(key, page), keys.insert(page, key)
        return replace(self, index=index, keys=keys)

    def unpublish(self, pages: Iterable[int]) -> "Cache":
        """Return the cache with pages removed from the prefix index.

        Args:
            pages: Owned pages.
        """
        index, keys = self.index, self.keys
        for page in pages:
            key = keys.get(page)
            if key is not None:
                index, keys = index.remove(key), keys.remove(page)
        return replace(self, index=index, keys=keys)


def prefix_keys(
    grid: Grid, page_size: int, page: int, key: bytes, tokens: Callable[[int, int], Ids], stop: int
) -> Iterator[bytes]:
    """Yield the keys of consecutive pages that the tokens before `stop` determine.

    The last group of a page may reach into the next page. Under the attention rule of `block.py`, all
    tokens up to the end of this group affect the keys and values of the page. The page's key therefore
    depends on these tokens and on the grid, and exists only if the group ends at or before `stop`.
    Keys are 128 bits of blake2b: two prefixes collide with chance 2**-128.

    Args:
        grid: Groups of the request.
        page_size: Positions of a page.
        page: Index of the first page in the page table.
        key: Key of the previous page; for page 0 the salt of the request.
        tokens: Function of `start` and `end` that returns the tokens of the positions `[start, end)`.
        stop: First position whose token is not final.
    """
    if not page:
        key = grid.origin.to_bytes(8, "little") + grid.size.to_bytes(8, "little") + key
    start = grid.end(page * page_size - 1) if page else 0
    while (end := grid.end((page + 1) * page_size - 1)) <= stop:
        key = blake2b(key + array("q", tokens(start, end)).tobytes(), digest_size=16).digest()
        yield key
        start, page = end, page + 1


def new_keys(sequence: SequenceState, held: Storage, stop: int, page_size: int) -> Iterator[bytes]:
    """Yield the prefix keys of the pages of a sequence that come after its published pages.

    Args:
        sequence: The sequence.
        held: Its storage.
        stop: Position from which on tokens are not final.
        page_size: Positions of a page.
    """
    request, page = sequence.request, held.published
    return prefix_keys(request.grid, page_size, page, held.prefix_key if page else request.salt, sequence.tokens, stop)


@dataclass(frozen=True, slots=True)
class WaitingQueue:
    """Sequences without pages, in order of their sequence numbers."""

    front: tuple[SequenceState, ...] = ()
    """Preempted sequences, all older than those in `back`."""
    back: NumberedQueue[SequenceState] = NumberedQueue()
    """The other sequences, by sequence number."""

    def __len__(self) -> int:
        return len(self.front) + len(self.back)

    def __iter__(self) -> Iterator[SequenceState]:
        """Yield the sequences, oldest first."""
        return chain(self.front, self.back)

    def get(self, seq_id: int) -> SequenceState | None:
        """Return the sequence with this sequence number; None if it is not waiting.

        Args:
            seq_id: A sequence number.
        """
        preempted = next((sequence for sequence in self.front if sequence.request.seq_id == seq_id), None)
        return preempted or self.back.items.get(seq_id)

    def push(self, sequence: SequenceState) -> "WaitingQueue":
        """Return the queue with a new sequence at its end.

        Args:
            sequence: A sequence that is younger than all others.
        """
        return WaitingQueue(self.front, self.back.push(sequence.request.seq_id, sequence))

    def push_front(self, sequences: Iterable[SequenceState]) -> "WaitingQueue":
        """Return the queue with preempted sequences at its front.

        Args:
            sequences: Sequences that are older than all others, in order of sequence number.
        """
        return WaitingQueue((*sequences, *self.front), self.back)

    def remove(self, seq_ids: Iterable[int]) -> "WaitingQueue":
        """Return the queue without some sequences.

        Args:
            seq_ids: Sequence numbers to remove; unknown ones are ignored.
        """
        gone, back = set(seq_ids), self.back
        for seq_id in gone:
            if seq_id in back.items:
                back = back.remove(seq_id)
        return WaitingQueue(tuple([sequence for sequence in self.front if sequence.request.seq_id not in gone]), back)


@dataclass(frozen=True, slots=True)
class State:
    """All requests, and the ownership of pages."""

    config: Config
    """Limits of the engine, and the facts of its model."""
    strategy: Strategy
    """Strategy of requests that set no options."""
    cache: Cache
    """Ownership of the pages, and the index of cached prefixes."""
    waiting: WaitingQueue = WaitingQueue()
    """Sequences without pages, in order of sequence number; all come after `running`."""
    running: tuple[SequenceState, ...] = ()
    """Sequences with pages, in order of sequence number."""
    finished: "HashTrieMap[int, SequenceState]" = HashTrieMap()
    """Finished sequences by request id."""
    ended: "List[int]" = List([])
    """Ids of the finished requests, newest first."""
    live: "HashTrieMap[int, int]" = HashTrieMap()
    """Sequence numbers of the unfinished requests by request id."""
    step: int = 0
    """Number of forward passes so far."""
    cache_digest: int = EMPTY_CACHE
    """Cache digest of the KV cache that the next plan needs."""
    next_seq_id: int = 0
    """Sequence number of the next request."""
    releases: SeqIds = ()
    """Sequence numbers that released their pages since the last plan."""

    def sequences(self) -> Iterator[tuple[SequenceState, bool]]:
        """Yield all sequences, each with whether it is waiting."""
        yield from ((sequence, False) for sequence in self.running)
        yield from ((sequence, True) for sequence in self.waiting)
        yield from ((sequence, False) for sequence in self.finished.values())

    @property
    def done(self) -> bool:
        """Whether no request is waiting or running."""
        return not self.running and not self.waiting

    def find(self, request_id: int) -> SequenceState | None:
        """Return the sequence of a request, or None. Linear in the running requests.

        Args:
            request_id: The caller's id of the request.
        """
        seq_id = self.live.get(request_id)
        return self.finished.get(request_id) if seq_id is None else self.sequence(seq_id)

    def with_finished(self, sequences: Iterable[SequenceState]) -> "State":
        """Return the state after sequences have ended.

        Args:
            sequences: The sequences that have ended, oldest first.
        """
        finished, ended, live = self.finished, self.ended, self.live
        for sequence in sequences:
            request_id = sequence.request.id
            finished, ended = finished.insert(request_id, sequence), ended.push_front(request_id)
            live = live.discard(request_id)
        return replace(self, finished=finished, ended=ended, live=live)

    def sequence(self, seq_id: int) -> SequenceState | None:
        """Return the live sequence with this sequence number; None if there is none.

        Args:
            seq_id: A sequence number.
        """
        for sequence in self.running:
            if sequence.request.seq_id == seq_id:
                return sequence
        return self.waiting.get(seq_id)


@dataclass(frozen=True, slots=True)
class Update:
    """The progress of one request.

    The properties compute everything else on demand, in time linear in the new tokens. Concatenating
    the tokens of all updates of a request gives its answer.
    """

    sequence: SequenceState
    """The current sequence of the request."""
    start: int
    """Position of the first newly settled token."""

    @property
    def id(self) -> int:
        """The id of the request."""
        return self.sequence.request.id

    @property
    def stop(self) -> int:
        """Position after the last settled token of the answer."""
        finish_info = self.sequence.finish_info
        return max(self.start, self.sequence.progress.settled if finish_info is None else finish_info.end)

    @property
    def tokens(self) -> Ids:
        """The newly settled tokens."""
        return self.sequence.tokens(self.start, self.stop)

    @property
    def probabilities(self) -> Probabilities:
        """The probability of each of `tokens` when it was unmasked."""
        return self.sequence.probabilities_of(self.start, self.stop)

    @property
    def window(self) -> tuple[tuple[int | None, ...], Probabilities]:
        """Tokens and probabilities of the answer's unsettled positions in the window; empty once the answer has ended.

        A masked position has the token None and the probability 0.
        """
        sequence, stop, window = self.sequence, self.stop, self.sequence.progress.window
        if sequence.finish_info is not None or not window:
            return (), ()
        masked = {position for block in window for position in block.masked}
        end = min(window[-1].end, sequence.request.limit)
        tokens = [None if position in masked else token for position, token in enumerate(sequence.tokens(stop, end), stop)]
        return tuple(tokens), sequence.probabilities_of(stop, end)

    @property
    def finish_info(self) -> FinishInfo | None:
        """How the answer ended; None while it is unfinished."""
        return self.sequence.finish_info


def updates(before: State, after: State) -> tuple[Update, ...]:
    """Return an update for each request that changed; requests that ended come first.

    The cost is linear in the number of requests that run or have just ended.

    Args:
        before: A state.
        after: A later state of the same decode, with no `prune` in between.
    """
    known = {sequence.request.seq_id: sequence for sequence in before.running}

    def update(sequence: SequenceState) -> Update:
        request = sequence.request
        earlier = known.get(request.seq_id) or before.waiting.get(request.seq_id)
        # Pinned tokens may settle positions before the first pass; no update has reported them yet.
        if earlier is None or not earlier.nfe:
            return Update(sequence, request.start)
        return Update(sequence, max(earlier.progress.settled, request.start))

    ended = [after.finished[request_id] for request_id in islice(after.ended, len(after.ended) - len(before.ended))]
    moved = [sequence for sequence in after.running if known.get(sequence.request.seq_id) is not sequence]
    return tuple([update(sequence) for sequence in (*reversed(ended), *moved)])

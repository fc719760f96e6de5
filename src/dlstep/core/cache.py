"""Ownership of KV pages, as a value. The core hands out page numbers; the driver owns the bytes.

A page is owned by one or more sequences (counted), cached (no owner, but findable by its prefix),
or free. Allocation takes free pages first, then evicts the cached page released longest ago.
"""

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b

from rpds import HashTrieMap

from .block import Grid

_NO_STAMPS: "HashTrieMap[int, int]" = HashTrieMap()


@dataclass(frozen=True, slots=True)
class StampedQueue:
    """A FIFO queue of distinct pages with removal from the middle. Calls cost O(log n)."""

    pages: "HashTrieMap[int, int]" = _NO_STAMPS  # stamp to page
    stamps: "HashTrieMap[int, int]" = _NO_STAMPS  # page to stamp
    head: int = 0
    tail: int = 0

    def __len__(self) -> int:
        return len(self.stamps)

    def __contains__(self, page: int) -> bool:
        return page in self.stamps

    def push(self, page: int) -> "StampedQueue":
        """Return the queue with `page` appended."""
        return StampedQueue(self.pages.insert(self.tail, page), self.stamps.insert(page, self.tail), self.head, self.tail + 1)

    def remove(self, page: int) -> "StampedQueue":
        """Return the queue without `page`, which must be in it."""
        stamp = self.stamps[page]
        pages, stamps = self.pages.remove(stamp), self.stamps.remove(page)
        head = self.head
        if stamp == head:
            # The head never moves back, so skipping stamps costs amortized O(1) per push.
            while head < self.tail and head not in pages:
                head += 1
        return StampedQueue(pages, stamps, head, self.tail)

    def __iter__(self) -> Iterator[int]:
        """Yield the pages, oldest first."""
        return (page for stamp in range(self.head, self.tail) if (page := self.pages.get(stamp)) is not None)


@dataclass(frozen=True, slots=True)
class Cache:
    """Ownership of pages, and the index of cached prefixes."""

    num_pages: int
    """Number of pages."""
    fresh: int = 0
    """Pages from this number on were never handed out."""
    free: StampedQueue = StampedQueue()
    """Released pages without a prefix key."""
    cached: StampedQueue = StampedQueue()
    """Pages without an owner that a prefix key finds, the one released longest ago first."""
    owners: "HashTrieMap[int, int]" = _NO_STAMPS
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

    def next_pages(self, count: int) -> tuple[int, ...]:
        """Return the next pages to hand out.

        Args:
            count: How many; at most `available`.
        """
        pages: list[int] = []
        fresh = range(self.fresh, self.num_pages)
        for source in (self.free, fresh, self.cached):
            for page in source:
                if len(pages) == count:
                    return tuple(pages)
                pages.append(page)
        return tuple(pages)

    def take(self, pages: Iterable[int]) -> "Cache":
        """Return the cache with one owner for each of some pages. Cached pages lose their key.

        Args:
            pages: Pages without an owner.
        """
        fresh, free, cached = self.fresh, self.free, self.cached
        owners, index, keys = self.owners, self.index, self.keys
        for page in pages:
            if page >= fresh:
                for skipped in range(fresh, page):
                    free = free.push(skipped)
                fresh = page + 1
            elif page in free:
                free = free.remove(page)
            else:
                cached = cached.remove(page)
                index, keys = index.remove(keys[page]), keys.remove(page)
            owners = owners.insert(page, 1)
        return Cache(self.num_pages, fresh, free, cached, owners, index, keys, self.slots)

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
        return Cache(self.num_pages, self.fresh, self.free, cached, owners, self.index, self.keys, slots)

    def release(self, pages: tuple[int, ...], slot: int | None = None) -> "Cache":
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
        return Cache(self.num_pages, self.fresh, free, cached, owners, self.index, self.keys, slots)

    def publish(self, pages: Iterable[tuple[int, bytes]]) -> "Cache":
        """Return the cache with pages findable by a prefix key. An existing key keeps its page.

        Args:
            pages: Pairs of an owned page and its key.
        """
        index, keys = self.index, self.keys
        for page, key in pages:
            if key not in index:
                index, keys = index.insert(key, page), keys.insert(page, key)
        return self._indexed(index, keys)

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
        return self._indexed(index, keys)

    def _indexed(self, index: "HashTrieMap[bytes, int]", keys: "HashTrieMap[int, bytes]") -> "Cache":
        return Cache(self.num_pages, self.fresh, self.free, self.cached, self.owners, index, keys, self.slots)

    def unowned(self, pages: Iterable[int]) -> int:
        """Return how many of `pages` have no owner.

        Args:
            pages: Any pages.
        """
        return sum(page not in self.owners for page in pages)


def prefix_keys(grid: Grid, page_size: int, page: int, key: bytes, start: int, tokens: tuple[int, ...]) -> Iterator[bytes]:
    """Yield the keys of consecutive pages, as far as `tokens` determine them.

    A page has a key if its last group ends within `tokens`. Under the attention rule, tokens up to
    there affect the page's keys and values, so its key depends on these tokens and on the grid.
    Keys are 128 bits of blake2b: two prefixes collide with chance 2**-128.

    Args:
        grid: Groups of the request.
        page_size: Positions of a page.
        page: Index of the first page in the page table.
        key: Key of the previous page; for page 0 the salt of the request.
        start: Position of the first token, the end of the previous page's last group.
        tokens: Final tokens from `start` on.
    """
    begin, stop = start, start + len(tokens)
    if not page:
        key = grid.origin.to_bytes(8, "little") + grid.size.to_bytes(8, "little") + key
    while (end := grid.end((page + 1) * page_size - 1)) <= stop:
        key = blake2b(key + array("q", tokens[begin - start : end - start]).tobytes(), digest_size=16).digest()
        yield key
        begin, page = end, page + 1

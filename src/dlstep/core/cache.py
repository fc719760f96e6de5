"""Ownership of KV pages, as a value. The core hands out page numbers; the driver owns the bytes.

A page is owned by one or more sequences (counted), cached (no owner, but findable by its prefix),
or free. Allocation takes free pages first, then evicts the cached page released longest ago.
"""

from array import array
from collections.abc import Iterable, Iterator
from hashlib import blake2b

from rpds import HashTrieMap

from .grid import Grid
from .values import value

_NO_STAMPS: "HashTrieMap[int, int]" = HashTrieMap()


@value
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


@value
class Cache:
    """Ownership of `num_pages` pages, and the index of cached prefixes.

    Pages from `fresh` on were never handed out. `owners` counts the sequences that hold a page,
    `index` maps a prefix key to its page, and `keys` is its inverse. `slots` are the free carry
    slots, the next one first: one per request that may run, none if the strategy carries nothing.
    """

    num_pages: int
    fresh: int = 0
    free: StampedQueue = StampedQueue()
    cached: StampedQueue = StampedQueue()
    owners: "HashTrieMap[int, int]" = _NO_STAMPS
    index: "HashTrieMap[bytes, int]" = HashTrieMap()
    keys: "HashTrieMap[int, bytes]" = HashTrieMap()
    slots: tuple[int, ...] = ()

    @property
    def available(self) -> int:
        """The number of pages that can be handed out now."""
        return self.num_pages - self.fresh + len(self.free) + len(self.cached)

    def next_pages(self, count: int) -> tuple[int, ...]:
        """Return the next `count` pages to hand out; `count` is at most `available`."""
        pages: list[int] = []
        fresh = range(self.fresh, self.num_pages)
        for source in (self.free, fresh, self.cached):
            for page in source:
                if len(pages) == count:
                    return tuple(pages)
                pages.append(page)
        return tuple(pages)

    def take(self, pages: Iterable[int]) -> "Cache":
        """Return the cache with one owner for `pages`, all unowned; cached ones lose their key."""
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
        """Return the cache with one more owner of `pages`, owned or cached, and `slot` in use."""
        cached, owners = self.cached, self.owners
        for page in pages:
            count = owners.get(page, 0)
            if not count:
                cached = cached.remove(page)
            owners = owners.insert(page, count + 1)
        slots = self.slots if slot is None else tuple(other for other in self.slots if other != slot)
        return Cache(self.num_pages, self.fresh, self.free, cached, owners, self.index, self.keys, slots)

    def release(self, pages: tuple[int, ...], slot: int | None = None) -> "Cache":
        """Return the cache after one owner releases `slot` and, last first, `pages`."""
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
        """Return the cache with owned pages findable by key. An existing key keeps its page."""
        index, keys = self.index, self.keys
        for page, key in pages:
            if key not in index:
                index, keys = index.insert(key, page), keys.insert(page, key)
        return self._indexed(index, keys)

    def unpublish(self, pages: Iterable[int]) -> "Cache":
        """Return the cache with owned `pages` removed from the prefix index."""
        index, keys = self.index, self.keys
        for page in pages:
            key = keys.get(page)
            if key is not None:
                index, keys = index.remove(key), keys.remove(page)
        return self._indexed(index, keys)

    def _indexed(self, index: "HashTrieMap[bytes, int]", keys: "HashTrieMap[int, bytes]") -> "Cache":
        return Cache(self.num_pages, self.fresh, self.free, self.cached, self.owners, index, keys, self.slots)

    def unowned(self, pages: Iterable[int]) -> int:
        """Return how many of `pages` have no owner."""
        return sum(page not in self.owners for page in pages)


def prefix_keys(grid: Grid, page_size: int, page: int, key: bytes, start: int, tokens: tuple[int, ...]) -> Iterator[bytes]:
    """Yield the keys of the pages from number `page` on, as far as `tokens` determine them.

    `key` is the previous page's, or the request's salt for page 0. `tokens` start at `start`, the
    end of the previous page's last group. A page has a key if its last group ends within them.
    Under the attention rule, tokens up to there affect the page's keys and values, so its key
    depends on these tokens and on the grid. Keys are 128 bits of blake2b: two prefixes collide with
    chance 2**-128.
    """
    begin, stop = start, start + len(tokens)
    if not page:
        key = grid.origin.to_bytes(8, "little") + grid.size.to_bytes(8, "little") + key
    while (end := grid.end((page + 1) * page_size - 1)) <= stop:
        key = blake2b(key + array("q", tokens[begin - start : end - start]).tobytes(), digest_size=16).digest()
        yield key
        begin, page = end, page + 1

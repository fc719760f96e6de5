"""Placement of requests: the replica with the longest cached prefix, unless it is overloaded."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from itertools import islice
from math import ceil
from typing import NamedTuple

from ...core import Request, State
from ...core.lifecycle import sized
from ...core.state import prefix_keys

SHARE = 1.5  # maximum number of requests of a replica, as a multiple of the mean
MOST_PAGES = 256  # pages of a prompt that are considered


class Candidate(NamedTuple):
    """A replica with room: its number of requests, and its number of leading prompt pages."""

    number: int
    requests: int
    known: int


def choose(candidates: Sequence[Candidate]) -> int:
    """Return the number of the replica for a request.

    A replica may get at most `SHARE` times the mean number of requests, rounded up, as in consistent
    hashing with bounded loads. At least one candidate is always below that. Among those, prefer the
    one with the most prompt pages, then the one with the fewest requests, then the first. So equal
    prompts stay together until their replica is full, then spread to more replicas.
    """
    most = ceil(SHARE * (sum(candidate.requests for candidate in candidates) + 1) / len(candidates))
    allowed = [candidate for candidate in candidates if candidate.requests < most]
    return min(allowed, key=lambda candidate: (-candidate.known, candidate.requests, candidate.number)).number


def page_keys(first: State, request: Request) -> tuple[bytes, ...]:
    """Return the prefix-cache keys of a prompt's first pages; empty without prefix caching."""
    config = first.config
    if not config.enable_prefix_caching:
        return ()
    grid = first.strategy.grid(sized(request, config.max_model_len))
    prompt = request.prompt
    keys = prefix_keys(grid, config.page_size, 0, request.salt, lambda start, end: prompt[start:end], len(prompt))
    return tuple(islice(keys, MOST_PAGES))


class Pages:
    """The newest `most` pages that a replica was sent. It may have evicted some of them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._keys: OrderedDict[bytes, None] = OrderedDict()

    def known(self, keys: Iterable[bytes]) -> int:
        """Return the number of leading keys that are known."""
        count = 0
        for key in keys:
            if key not in self._keys:
                break
            count += 1
        return count

    def learn(self, keys: Sequence[bytes]) -> None:
        """Add keys, and forget the oldest ones above the limit."""
        for key in reversed(keys):  # so the first page is forgotten last
            self._keys[key] = None
            self._keys.move_to_end(key)
        while len(self._keys) > self._most:
            self._keys.popitem(last=False)

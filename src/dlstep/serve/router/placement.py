"""Which replica answers a request: the one that has most of its prompt in pages, unless that one has too much to do."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence as Items
from dataclasses import dataclass
from itertools import islice
from math import ceil

from ...core import Request, State
from ...core.cache import prefix_keys
from ...core.lifecycle import sized

SHARE = 1.5  # a replica may have this many times the requests that it would have if all had equally many
MOST_PAGES = 256  # of a prompt that are looked at


@dataclass(frozen=True, slots=True)
class Standing:
    """A replica that takes requests: how many it has, and how many pages of the prompt it knows from the first on."""

    number: int
    requests: int
    known: int


def choose(standings: Items[Standing], most: int) -> int:
    """The number of the replica for a request, of at least one that has fewer than `most` requests.

    Of those it is the one that knows most pages; of equals the one with the fewest requests, then the first. So equal prompts
    stay together until their replica has its share, and more replicas come to know a beginning that is frequent.
    """
    within = [standing for standing in standings if standing.requests < most]
    return min(within, key=lambda standing: (-standing.known, standing.requests, standing.number)).number


def bound(requests: int, replicas: int) -> int:
    """Most requests of a replica when these replicas, which have so many in all, get one more.

    It is `SHARE` times their mean, rounded up, as in consistent hashing with bounded loads. One replica is always below it.
    """
    return ceil(SHARE * (requests + 1) / replicas)


def page_keys(first: State, request: Request) -> tuple[bytes, ...]:
    """The core's keys of the first pages of a prompt, on an engine that begins in state `first`; none if it shares none."""
    config = first.config
    if not config.enable_prefix_caching:
        return ()
    grid = first.strategy.grid(sized(request, config.max_model_len))
    return tuple(islice(prefix_keys(grid, config.page_size, 0, request.salt, 0, request.prompt), MOST_PAGES))


class Pages:
    """The pages that a replica was asked to compute, the newest `most` of them. It may have lost some of them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._keys: OrderedDict[bytes, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._keys)

    def known(self, keys: Iterable[bytes]) -> int:
        """How many of the keys are known, from the first on."""
        count = 0
        for key in keys:
            if key not in self._keys:
                break
            count += 1
        return count

    def learn(self, keys: Items[bytes]) -> None:
        """Know these keys from now on, and forget the oldest ones where that is too many."""
        for key in reversed(keys):  # the first page is the last to go
            self._keys[key] = None
            self._keys.move_to_end(key)
        while len(self._keys) > self._most:
            self._keys.popitem(last=False)

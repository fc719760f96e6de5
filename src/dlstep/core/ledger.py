"""The core's side of a sequence: pages, counts, and how it ended."""

from dataclasses import dataclass
from typing import Literal

from rpds import List

from .values import value

FinishReason = Literal["stop", "length", "nfe_limit", "repetition", "abort", "rejected", "error"]
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

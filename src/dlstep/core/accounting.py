"""The fields of a sequence that the core owns: pages, counts, and how it ended."""

from dataclasses import dataclass
from typing import Literal

from rpds import List

from .values import value

FinishReason = Literal["stop", "length", "nfe_limit", "repetition", "abort", "rejected", "error"]
NO_PAGES: "List[int]" = List([])


@value
class Storage:
    """Pages and carry slot of a sequence on the device.

    `table` holds the pages, newest first so that it grows without a copy, with the final keys and
    values of positions `[0, stored)`. The first `published` pages have a prefix key, the last one
    `prefix_key`. `slot` is where the device keeps carried state between forward passes.
    """

    stored: int = 0
    table: "List[int]" = NO_PAGES
    published: int = 0
    prefix_key: bytes = b""
    slot: int | None = None

    def with_stored(self, stored: int) -> "Storage":
        """Return the storage with positions `[0, stored)` stored."""
        return Storage(stored, self.table, self.published, self.prefix_key, self.slot)

    def with_table(self, table: "List[int]") -> "Storage":
        """Return the storage with more pages."""
        return Storage(self.stored, table, self.published, self.prefix_key, self.slot)

    def with_published(self, published: int, prefix_key: bytes) -> "Storage":
        """Return the storage with more pages that have a prefix key."""
        return Storage(self.stored, self.table, published, prefix_key, self.slot)


@dataclass(frozen=True, slots=True)
class StopState:
    """Settled tokens that finish rules still need; kept only if the request sets such a rule.

    `run` counts equal tokens at the end; `tail` are the last bytes, which may begin a stop string.
    """

    run: int = 0
    tail: bytes = b""


@dataclass(frozen=True, slots=True)
class FinishInfo:
    """Why an answer ended and before which position; `error` explains a failure."""

    reason: FinishReason
    end: int
    error: str = ""


@value
class Accounting:
    """The fields of a sequence that the core owns.

    `steps` counts the passes that sampled a position of the request, `nfe` all with a span of it.
    """

    storage: Storage = Storage()
    steps: int = 0
    nfe: int = 0
    stop_state: StopState = StopState()
    finish_info: FinishInfo | None = None


NOTHING_STORED = Storage()
NEW_ACCOUNTING = Accounting()

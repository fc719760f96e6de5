"""The fields of a sequence that the core owns: pages, counts, and how it ended."""

from dataclasses import dataclass
from typing import Literal

from rpds import HashTrieMap, List

from .values import value

FinishReason = Literal["stop", "length", "nfe_limit", "repetition", "abort", "rejected", "error"]
NO_PAGES: "List[int]" = List([])
Best = tuple[tuple[int, float], ...]  # the most probable ids of a position and their probabilities


@value
class Storage:
    """Pages and carry slot of a sequence on the device."""

    stored: int = 0
    """End of the positions `[0, stored)` whose final keys and values are in pages."""
    table: "List[int]" = NO_PAGES
    """The pages, newest first so that the list grows without a copy."""
    published: int = 0
    """How many of the first pages have a prefix key."""
    prefix_key: bytes = b""
    """Prefix key of the last of these pages."""
    slot: int | None = None
    """Where the device keeps carried state between forward passes; None if there is none."""

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
    """Settled tokens that finish rules still need; kept only if the request sets such a rule."""

    run: int = 0
    """Number of equal tokens at the end."""
    tail: bytes = b""
    """The last bytes, which may begin a stop string."""
    state: int = 0
    """State of the constraint's automaton."""


@dataclass(frozen=True, slots=True)
class FinishInfo:
    """How an answer ended."""

    reason: FinishReason
    """Why it ended."""
    end: int
    """Position before which it ended."""
    error: str = ""
    """Message that explains a failure; else empty."""


@value
class Accounting:
    """The fields of a sequence that the core owns."""

    storage: Storage = Storage()
    """Pages and carry slot."""
    steps: int = 0
    """Number of forward passes that sampled a position of the request."""
    nfe: int = 0
    """Number of forward passes with a span of the request."""
    stop_state: StopState = StopState()
    """What finish rules remember."""
    finish_info: FinishInfo | None = None
    """How the answer ended; None while it is unfinished."""
    best: "HashTrieMap[int, Best]" = HashTrieMap()
    """By position, the most probable ids of the pass that set its token; only with `SamplingParams.top_logprobs`."""


NOTHING_STORED = Storage()
NEW_ACCOUNTING = Accounting()

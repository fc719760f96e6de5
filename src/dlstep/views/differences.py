"""Differences of two states or traces as values: positions and counts that changed.

A difference is false exactly if the two values are equal. Its `str` fits 80 columns. It shows
`others`, the names of further fields that differ, only if nothing else differs.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Literal

from ..core import Spec
from ..text.words import clipped, counted, more, packed, piece, run_text

Kind = Literal["unmasked", "changed", "remasked"]
Fate = Literal["added", "removed", "ended", "continued"]
MOST_REQUESTS, MOST_RUNS = 8, 12  # shown by `str`


@dataclass(frozen=True, slots=True)
class Position:
    """A position of an answer whose token differs. None: masked, or not in the window yet."""

    position: int
    old: int | None
    new: int | None

    @property
    def kind(self) -> Kind:
        """`unmasked`, `changed` or `remasked`."""
        if self.old is None:
            return "unmasked"
        return "remasked" if self.new is None else "changed"


@dataclass(frozen=True, slots=True)
class Move:
    """A count, option or status that differs."""

    name: str
    old: Any
    new: Any

    def __str__(self) -> str:
        return f"{self.name} {_shown(self.old)} -> {_shown(self.new)}"


@dataclass(frozen=True, slots=True)
class RequestDiff:
    """The difference of a request in two states: positions (ascending), counts, other field names.

    `drafts` counts positions that are masked in both states but fed as different tokens (canvases).
    """

    id: int
    seq_id: int
    fate: Fate
    positions: tuple[Position, ...] = ()
    moves: tuple[Move, ...] = ()
    drafts: int = 0
    others: tuple[str, ...] = ()

    def of_kind(self, kind: Kind) -> tuple[Position, ...]:
        """Return the positions of one kind."""
        return tuple([position for position in self.positions if position.kind == kind])

    @property
    def parts(self) -> list[str]:
        """The parts of the difference as texts, without tokens."""
        parts = [f"{len(positions)} {kind}" for kind in _KINDS if (positions := self.of_kind(kind))]
        parts += [f"{self.drafts} redrafted"] if self.drafts else []
        parts += [str(move.new) if self.fate == "added" else str(move) for move in self.moves]
        return parts or [f"other {name}" for name in self.others]

    @property
    def title(self) -> str:
        """The request and its fate, as a prefix of `parts`."""
        fate = "" if self.fate == "continued" else f" {self.fate}"
        return f"request {self.id}{fate}{': ' if self.parts else ''}"

    def lines(self, spec: Spec) -> Iterator[str]:
        """Yield the lines of the difference. Tokens of adjacent positions are joined."""
        yield from packed(self.parts, self.title)
        runs = list(grouped(self.positions))
        for run in runs[:MOST_RUNS]:
            yield clipped(f"  {run_words(run, spec)}")
        yield from (f"  {line}" for line in more(len(runs) - MOST_RUNS, "run of positions"))


_KINDS: tuple[Kind, ...] = ("unmasked", "changed", "remasked")


@dataclass(frozen=True, slots=True)
class StateDiff:
    """The difference of two states."""

    moves: tuple[Move, ...] = ()
    """Counts and options that differ."""
    requests: tuple[RequestDiff, ...] = ()
    """Requests that differ, by sequence number."""
    others: tuple[str, ...] = ()
    """Names of further fields that differ."""
    spec: Spec = field(default=Spec(None, (), 1), repr=False, compare=False)
    """Facts of the model, to show tokens as text."""

    def __bool__(self) -> bool:
        return bool(self.moves or self.requests or self.others)

    def find(self, request_id: int) -> RequestDiff | None:
        """Return the difference of a request; None if it is equal in both states.

        Args:
            request_id: Id of the request.
        """
        return next((request for request in self.requests if request.id == request_id), None)

    @property
    def parts(self) -> list[str]:
        """The parts of the difference as texts, without requests."""
        if self.moves or self.requests:
            return [*map(str, self.moves)]
        return [f"other {name}" for name in self.others]

    def __str__(self) -> str:
        if not self:
            return "no difference"
        lines = packed(self.parts) if self.parts else []
        for request in self.requests[:MOST_REQUESTS]:
            lines += request.lines(self.spec)
        return "\n".join(lines + more(len(self.requests) - MOST_REQUESTS, "request"))


@dataclass(frozen=True, slots=True)
class TraceDiff:
    """The difference of two traces. If the first states differ, `there` compares those."""

    same: int
    """How many first events are equal; 0 if the first states differ."""
    old: str
    """Description of the first different event of the old trace; empty if it has ended or the first states differ."""
    new: str
    """The same for the new trace."""
    there: StateDiff
    """Difference of the states after that event."""
    end: StateDiff
    """Difference of the last states."""
    equal: bool
    """Whether nothing differs."""

    def __bool__(self) -> bool:
        return not self.equal

    @property
    def place(self) -> str:
        """A description of where the traces diverge."""
        if not (self.old or self.new):
            return "the first states differ"
        return f"the same for {counted(self.same, 'event')}, then different at event {self.same}"

    def __str__(self) -> str:
        if not self:
            return f"no difference in {counted(self.same, 'event')}"
        lines = [self.place]
        if self.old or self.new:
            lines += [clipped(f"  old: {self.old or 'ended'}"), clipped(f"  new: {self.new or 'ended'}")]
        lines += ["there:" if self.place.startswith("the first") else "after it:", *_indented(self.there)]
        return "\n".join([*lines, "at the end:", *_indented(self.end)])


def _indented(value: StateDiff) -> list[str]:
    return [clipped(f"  {line}") for line in str(value).splitlines()]


def _shown(value: object) -> str:
    match value:
        case (int(first), int(last)):
            return f"{first} to {last - 1}"
        case float():
            return f"{value:g}"
        case _:
            return str(value)


def grouped(positions: Iterable[Position]) -> Iterator[tuple[Position, ...]]:
    """Yield runs of adjacent positions of one kind."""
    for _, run in groupby(enumerate(positions), lambda item: (item[1].position - item[0], item[1].kind)):
        yield tuple([position for _, position in run])


def run_words(run: tuple[Position, ...], spec: Spec) -> str:
    """Return a description of a run of adjacent positions of one kind, with their tokens."""
    old, new = (
        "".join([piece(spec, token) for token in tokens]) for tokens in zip(*((p.old, p.new) for p in run), strict=True)
    )
    place, kind = run_text(run[0].position, run[-1].position), run[0].kind
    tokens = {"unmasked": new, "changed": f"{old} -> {new}", "remasked": old}[kind]
    return f"{place} {kind}: {tokens}"

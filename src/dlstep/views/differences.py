"""Differences of two states or traces, as values: positions decided, changed or taken back, and counts that moved.

A difference is false exactly if the two values are equal. `str` of it is for people and fits 80 columns; `others`, what
differs besides, is shown only where nothing else does.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Literal

from ..core import Spec
from ..text.words import clipped, counted, more, packed, piece, run_text

Kind = Literal["decided", "changed", "taken back"]
Fate = Literal["came", "gone", "ended", "went on"]
MOST_REQUESTS, MOST_RUNS = 8, 12  # shown by `str`


@dataclass(frozen=True, slots=True)
class Position:
    """A position of an answer whose token differs; None where it is undecided, or not there yet."""

    position: int
    old: int | None
    new: int | None

    @property
    def kind(self) -> Kind:
        """`decided`, `changed`, or `taken back`: undecided again."""
        if self.old is None:
            return "decided"
        return "taken back" if self.new is None else "changed"


@dataclass(frozen=True, slots=True)
class Move:
    """A count, an option or a word that differs."""

    name: str
    old: Any
    new: Any

    def __str__(self) -> str:
        return f"{self.name} {_shown(self.old)} -> {_shown(self.new)}"


@dataclass(frozen=True, slots=True)
class RequestDiff:
    """A request in two states: its positions in ascending order, its counts, and names of what else differs.

    `drafts` counts the positions that are undecided in both, but fed as another token (canvases).
    """

    id: int
    arrival: int
    fate: Fate
    positions: tuple[Position, ...] = ()
    moves: tuple[Move, ...] = ()
    drafts: int = 0
    others: tuple[str, ...] = ()

    def of_kind(self, kind: Kind) -> tuple[Position, ...]:
        """The positions of one kind."""
        return tuple([position for position in self.positions if position.kind == kind])

    @property
    def said(self) -> list[str]:
        """The difference in words, without tokens."""
        said = [f"{len(found)} {kind}" for kind in _KINDS if (found := self.of_kind(kind))]
        said += [f"{self.drafts} drafted anew"] if self.drafts else []
        said += [str(move.new) if self.fate == "came" else str(move) for move in self.moves]
        return said or [f"other {name}" for name in self.others]

    @property
    def title(self) -> str:
        """The request and its fate, in front of what is said of it."""
        fate = "" if self.fate == "went on" else f" {self.fate}"
        return f"request {self.id}{fate}{': ' if self.said else ''}"

    def lines(self, spec: Spec) -> Iterator[str]:
        """The difference in words; the tokens of neighbouring positions stand together."""
        yield from packed(self.said, self.title)
        found = list(grouped(self.positions))
        for run in found[:MOST_RUNS]:
            yield clipped(f"  {run_words(run, spec)}")
        yield from (f"  {line}" for line in more(len(found) - MOST_RUNS, "run of positions"))


_KINDS: tuple[Kind, ...] = ("decided", "changed", "taken back")


@dataclass(frozen=True, slots=True)
class StateDiff:
    """Two states: their counts, and each request that differs, in order of arrival."""

    moves: tuple[Move, ...] = ()
    requests: tuple[RequestDiff, ...] = ()
    others: tuple[str, ...] = ()
    spec: Spec = field(default=Spec(None, (), 1), repr=False, compare=False)

    def __bool__(self) -> bool:
        return bool(self.moves or self.requests or self.others)

    def find(self, request_id: int) -> RequestDiff | None:
        """The difference of a request; None if it is the same in both."""
        return next((each for each in self.requests if each.id == request_id), None)

    @property
    def said(self) -> list[str]:
        """The difference in words, without the requests."""
        if self.moves or self.requests:
            return [*map(str, self.moves)]
        return [f"other {name}" for name in self.others]

    def __str__(self) -> str:
        if not self:
            return "no difference"
        lines = packed(self.said) if self.said else []
        for each in self.requests[:MOST_REQUESTS]:
            lines += each.lines(self.spec)
        return "\n".join(lines + more(len(self.requests) - MOST_REQUESTS, "request"))


@dataclass(frozen=True, slots=True)
class TraceDiff:
    """Two traces: `same` events are equal, then comes the one that parts them.

    `old` and `new` say that event in words, and where it differs; empty for a trace that has ended. `there` is how the states
    after it differ, `end` how the last ones do. Where already the first states differ, `same` is 0, no event parts the traces
    and `there` is how the first states differ. `equal` says that nothing differs at all.
    """

    same: int
    old: str
    new: str
    there: StateDiff
    end: StateDiff
    equal: bool

    def __bool__(self) -> bool:
        return not self.equal

    @property
    def place(self) -> str:
        """Where the traces part, in words."""
        if not (self.old or self.new):
            return "the first states differ"
        return f"the same for {counted(self.same, 'event')}, parted by event {self.same}"

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
    """Neighbouring positions of one kind together."""
    for _, found in groupby(enumerate(positions), lambda item: (item[1].position - item[0], item[1].kind)):
        yield tuple([position for _, position in found])


def run_words(run: tuple[Position, ...], spec: Spec) -> str:
    """Neighbouring positions of one kind and their tokens."""
    old, new = (
        "".join([piece(spec, token) for token in tokens]) for tokens in zip(*((p.old, p.new) for p in run), strict=True)
    )
    place, kind = run_text(run[0].position, run[-1].position), run[0].kind
    tokens = {"decided": new, "changed": f"{old} -> {new}", "taken back": old}[kind]
    return f"{place} {kind}: {tokens}"

"""Differences of two states or traces, as values: positions decided, changed or taken back, and counts that moved.

A difference is false exactly if the two values are equal. `str` of it is for people and fits 80 columns; `others`, what
differs besides, is shown only where nothing else does.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from itertools import groupby
from operator import attrgetter, eq
from typing import Any, Literal

from .block import Block, Sealed
from .checks import short
from .request import Request
from .sequence import Sequence
from .spec import Spec
from .words import clipped, counted, more, packed, piece, run_text

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


def decided(sequence: Sequence) -> dict[int, int]:
    """The token of each decided position of the answer, ascending."""
    return {position: token for position, token, known in _positions(sequence) if known}


def _positions(sequence: Sequence) -> Iterator[tuple[int, int, bool]]:
    """Position, token and whether it is decided, for each position of the answer that a block covers."""
    first, limit = len(sequence.request.prompt), sequence.limit
    blocks: list[Sealed | Block] = [*reversed(list(sequence.past)), *sequence.window]
    for block in blocks:
        undecided = frozenset(block.undecided) if isinstance(block, Block) else frozenset[int]()
        for position, token in enumerate(block.tokens, block.start):
            if first <= position < limit:
                yield position, token, position not in undecided


def _drafts(sequence: Sequence) -> dict[int, int]:
    return {position: token for position, token, known in _positions(sequence) if not known}


def _status(sequence: Sequence, waits: bool) -> str:
    return f"ended by {sequence.finish}" if sequence.finish else ("waiting" if waits else "running")


def _counts(sequence: Sequence, waits: bool) -> dict[str, object]:
    """Counts of a request, by the names they are shown under."""
    window = sequence.window
    return {
        "status": _status(sequence, waits),
        "window": (window[0].start, window[-1].end) if window else "none",
        "final": sequence.final,
        "settled": sequence.settled,
        "steps": sequence.steps,
        "forwards": sequence.nfe,
        "pages": len(sequence.storage.table),
        "stored": sequence.stored,
        "answer length": len(sequence.answer),
    }


def check_same_kind(one: object, other: object) -> None:
    """Raise ValueError unless `other` is of the class of `one`, so that they can be compared."""
    kind = type(one).__name__
    if type(other) is not type(one):
        raise ValueError(f"a {kind} is compared with another {kind}, got {short(other)}")


def moves_of(old: Mapping[str, object], new: Mapping[str, object]) -> tuple[Move, ...]:
    """The entries that differ."""
    return tuple([Move(name, value, new[name]) for name, value in old.items() if value != new[name]])


def differing(old: Any, new: Any, names: Iterable[str]) -> list[str]:
    """The fields among `names` that differ."""
    # Not by `!=`: persistent maps define equality only.
    return [name for name in names if not eq(attrgetter(name)(old), attrgetter(name)(new))]


def names_of(value: Any) -> list[str]:
    """The names of a dataclass's fields."""
    return [each.name for each in fields(value)]


def request_diff(old: Sequence, new: Sequence, waited: bool, waits: bool) -> RequestDiff | None:
    """How a request differs that is in both states; None if it does not. The flags say whether it waits."""
    moves = moves_of(_counts(old, waited), _counts(new, waits))
    if old == new and not moves:
        return None
    before, after = decided(old), decided(new)
    positions = tuple(
        [
            Position(position, before.get(position), after.get(position))
            for position in sorted(before.keys() | after.keys())
            if before.get(position) != after.get(position)
        ]
    )
    drawn, drafted = _drafts(old), _drafts(new)
    drafts = sum(drafted.get(position, token) != token for position, token in drawn.items())
    others = differing(old.request, new.request, names_of(Request))
    others += differing(old.goal, new.goal, ("limit", "stop_ids", "grid", "strategy"))
    others += differing(old, new, ("extra",)) + differing(old.ledger, new.ledger, ("watch", "storage", "ending"))
    if not (positions or drafts or moves):
        others += differing(old, new, ("window", "past"))
    elsewhere = {"storage": ("stored", "pages"), "ending": ("status", "answer length")}
    moved = {move.name for move in moves}
    kept = tuple([name for name in others if not moved.intersection(elsewhere.get(name, ()))])
    fate: Fate = "ended" if new.ending is not None and old.ending is None else "went on"
    return RequestDiff(new.id, new.request.arrival, fate, positions, moves, drafts, kept)


def _key(sequence: Sequence) -> tuple[int, int, tuple[int, ...]]:
    return sequence.request.arrival, sequence.id, sequence.request.prompt


def requests_diff(old: Iterable[tuple[Sequence, bool]], new: Iterable[tuple[Sequence, bool]]) -> tuple[RequestDiff, ...]:
    """How two collections of requests differ, each with whether it waits. Equal arrival, id and prompt make one request."""
    before, after = ({_key(sequence): (sequence, waits) for sequence, waits in each} for each in (old, new))
    found: list[RequestDiff] = []
    for key in sorted(before.keys() | after.keys()):
        arrival, request_id, _ = key
        if key not in after:
            found.append(RequestDiff(request_id, arrival, "gone"))
        elif key not in before:
            sequence, waits = after[key]
            positions = tuple([Position(position, None, token) for position, token in decided(sequence).items()])
            status = Move("status", None, _status(sequence, waits))
            found.append(RequestDiff(request_id, arrival, "came", positions, (status,)))
        else:
            (one, waited), (two, waits) = before[key], after[key]
            each = request_diff(one, two, waited, waits)
            found += [each] if each is not None else []
    return tuple(found)

"""Differences of two states, as text and positions."""

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import NamedTuple

from ..core import AddedRequest, Json, Progress, SequenceState, Spec, State, Texts, short
from ..core.trace import differing, field_names
from ..text.words import clipped, piece, print_pretty
from .frames import shown_options
from .lines import more, packed, run_text
from .texts import MOST, status

_WORDS = {"cache_digest": "KV cache", "cache": "pages", "live": "ids in use", "ended": "order of endings", "config": "spec"}


class ValueDiff(NamedTuple):
    """The difference of two values, which is false if they are equal. Its `str` fits 80 columns."""

    title: str = ""
    """The heading."""
    parts: Texts = ()
    """Counts and options that differ, as text; if nothing else differs, the names of fields."""
    runs: Texts = ()
    """Adjacent positions whose tokens differ. A masked position has no token."""
    inner: tuple["ValueDiff", ...] = ()
    """Differences of what the values contain, such as requests."""

    def __bool__(self) -> bool:
        return bool(self.parts or self.runs or self.inner)

    def __str__(self) -> str:
        if not self:
            return "no difference"
        head = f"{self.title}: " if self.title and self.parts else self.title
        lines = packed(self.parts, head) if head or self.parts else []
        inner = [*self.runs[:MOST], *more(len(self.runs) - MOST, "run of positions")]
        inner += [line for value in self.inner[:MOST] for line in str(value).splitlines()]
        inner += more(len(self.inner) - MOST, "request")
        indent = "  " if self.title else ""
        return "\n".join([*lines, *(clipped(f"{indent}{line}") for line in inner)])

    _repr_pretty_ = print_pretty


def diff(old: State, new: State) -> ValueDiff:
    """Return the difference from one state to another, which is false if they are equal.

    States are compared request by request, in time linear in their positions.

    Args:
        old: A state.
        new: Another state.

    Raises:
        ValueError: Unless both are states.
    """
    for given in (old, new):
        if not isinstance(given, State):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"only states can be compared, got {short(given)}: give the `state` of a trace or a session")
    moves = _moves(_facts(old), _facts(new))
    requests = tuple(_requests_diff(old, new))
    if not (moves or requests):
        moves = [f"other {_WORDS.get(name, name)}" for name in differing(old, new, field_names(old))]
    return ValueDiff("", tuple(moves), (), requests)


def _facts(state: State) -> Json:
    """Return the counts of a state, and the options of its strategy and engine."""
    config = {name: getattr(state.config, name) for name in field_names(state.config) if name != "spec"}
    counts = {"step": state.step, "pages held": len(state.cache.owners), "strategy": type(state.strategy).__name__}
    return counts | shown_options(state.strategy) | config


def _moves(old: Json, new: Json) -> list[str]:
    """Return the changes of the entries that both have."""
    common = [name for name in old if name in new and old[name] != new[name]]
    return [f"{name} {_shown(old[name])} -> {_shown(new[name])}" for name in common]


def _shown(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _requests_diff(old: State, new: State) -> Iterator[ValueDiff]:
    """Yield the differences of requests, matched by sequence number, id and prompt."""
    before, after = (
        {(one.request.seq_id, one.request.id, one.request.prompt): (one, waits) for one, waits in state.sequences()}
        for state in (old, new)
    )
    for key in sorted(before.keys() | after.keys()):
        title = f"request {key[1]}"
        if key not in after:
            yield ValueDiff(title, ("removed",))
        elif key not in before:
            sequence, waits = after[key]
            numbers, runs = _runs({}, sequence.unmasked_tokens, new.config.spec)
            yield ValueDiff(title, ("added", *numbers, status(sequence, waits)), tuple(runs))
        elif before[key] != after[key]:
            yield _request_diff(title, before[key], after[key], new.config.spec)


def _request_diff(title: str, old: tuple[SequenceState, bool], new: tuple[SequenceState, bool], spec: Spec) -> ValueDiff:
    """Return the difference of a request in two states. The flags: is it waiting?"""
    (one, _), (two, _) = old, new
    numbers, runs = _runs(one.unmasked_tokens, two.unmasked_tokens, spec)
    drafts = _drafts(two)
    redrafted = sum(drafts.get(position, token) != token for position, token in _drafts(one).items())
    parts = [*numbers, *([f"{redrafted} redrafted"] if redrafted else []), *_moves(_counts(*old), _counts(*new))]
    if not parts:
        parts_of = ((one.request, two.request, AddedRequest), (one.progress, two.progress, Progress), (one, two, SequenceState))
        others = next(filter(None, (differing(was, now, field_names(kind)) for was, now, kind in parts_of)))
        parts = [f"other {name}" for name in others]
    return ValueDiff(title, tuple(parts), tuple(runs))


def _drafts(sequence: SequenceState) -> dict[int, int]:
    """Return the masked positions that are fed as tokens, as in canvases."""
    return {position: token for position, token, _, known in sequence.answer_cells() if not known}


def _counts(sequence: SequenceState, waits: bool) -> Json:
    """Return the counts of a request by their display names."""
    window = sequence.progress.window
    return {
        "status": status(sequence, waits),
        "window": run_text(window[0].start, window[-1].end - 1) if window else "none",
        "final": sequence.progress.final,
        "settled": sequence.progress.settled,
        "steps": sequence.steps,
        "forward passes": sequence.nfe,
        "pages": len(sequence.storage.table),
        "stored": sequence.storage.stored,
        "answer length": len(sequence.answer),
    }


def _runs(old: Mapping[int, int], new: Mapping[int, int], spec: Spec) -> tuple[list[str], list[str]]:
    """Return how many positions changed in each way, and the runs of positions whose tokens differ."""
    kinds = {
        position: "unmasked" if position not in old else "changed" if position in new else "remasked"
        for position in sorted(old.keys() | new.keys())
        if old.get(position) != new.get(position)
    }
    runs: list[str] = []
    for (_, kind), group in groupby(enumerate(kinds.items()), lambda item: (item[1][0] - item[0], item[1][1])):
        run = [position for _, (position, _) in group]
        was, now = ("".join(piece(spec, side.get(position)) for position in run) for side in (old, new))
        tokens = {"unmasked": now, "changed": f"{was} -> {now}", "remasked": was}[kind]
        runs.append(f"{run_text(run[0], run[-1])} {kind}: {tokens}")
    return [f"{number} {kind}" for kind, number in Counter(kinds.values()).items()], runs

"""Find the differences of two states or two traces."""

from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter
from typing import overload

from ..core import Event, ReplayDiverged, Request, Samples, SequenceState, State, Trace
from ..core.checks import short
from ..core.options import shown_options
from ..core.trace import INAPPLICABLE, applied, folded, reason_of
from ..core.values import differing, names_of
from ..text.words import listed
from .differences import Fate, Move, Position, RequestDiff, StateDiff, TraceDiff
from .texts import event_text, status

_WORDS = {"cache_digest": "KV cache", "cache": "pages", "live": "ids in use", "ended": "order of endings"}


@overload
def diff(old: State, new: State) -> StateDiff: ...
@overload
def diff(old: Trace, new: Trace) -> TraceDiff: ...
def diff(old: State | Trace, new: State | Trace) -> StateDiff | TraceDiff:
    """Return the difference from `old` to `new`, which is false if they are equal.

    States are compared request by request, in time linear in their positions. For traces, the
    result has the first different event, and the differences of the states after it and at the end.

    Args:
        old: A state or a trace.
        new: Another value of the same type.

    Raises:
        ValueError: Unless both are states or both are traces.
        ReplayDiverged: If a trace from an edited file cannot be replayed or compared.
    """
    if isinstance(old, State) and isinstance(new, State):
        return _state_diff(old, new)
    if isinstance(old, Trace) and isinstance(new, Trace):
        try:
            return _trace_diff(old, new)
        except ReplayDiverged:
            raise
        except INAPPLICABLE as error:
            reason = reason_of(error)
            raise ReplayDiverged(f"the traces cannot be compared: one contains a value of a wrong type: {reason}") from error
    kind = "Trace" if isinstance(old, Trace) else "State"
    raise ValueError(
        f"a {kind} can only be compared with another {kind}, got {short(new if isinstance(old, State | Trace) else old)}"
    )


def _state_diff(old: State, new: State) -> StateDiff:
    counts = ({"step": state.step, "pages held": len(state.cache.owners)} for state in (old, new))
    moves = (*_moves(*counts), *_options(old, new))
    requests = _requests_diff(old.sequences(), new.sequences())
    queues = differing(old, new, ("waiting", "running", "finished", "ended", "live"))
    others = [] if requests else queues
    others += differing(old, new, ("cache", "cache_digest", "next_seq_id", "releases"))
    others += differing(old.config, new.config, ("spec",))
    return StateDiff(moves, requests, tuple(_WORDS.get(name, name) for name in others), new.config.spec)


def _options(old: State, new: State) -> Iterator[Move]:
    """Yield the options of strategy and engine that differ."""
    if type(old.strategy) is not type(new.strategy):
        yield Move("strategy", type(old.strategy).__name__, type(new.strategy).__name__)
    else:
        shown, now = shown_options(old.strategy), shown_options(new.strategy)
        yield from _moves({name: option for name, option in shown.items() if name in now}, now)
    one, two = old.config, new.config
    names = [name for name in names_of(one) if name != "spec"]
    yield from (Move(name, attrgetter(name)(one), attrgetter(name)(two)) for name in differing(one, two, names))


def _drafts(sequence: SequenceState) -> dict[int, int]:
    return {position: token for position, token, known in sequence.answer_cells() if not known}


def _counts(sequence: SequenceState, waits: bool) -> dict[str, object]:
    """Return the counts of a request by their display names."""
    window = sequence.window
    return {
        "status": status(sequence, waits),
        "window": (window[0].start, window[-1].end) if window else "none",
        "final": sequence.final,
        "settled": sequence.settled,
        "steps": sequence.steps,
        "forward passes": sequence.nfe,
        "pages": len(sequence.storage.table),
        "stored": sequence.stored,
        "answer length": len(sequence.answer),
    }


def _moves(old: Mapping[str, object], new: Mapping[str, object]) -> tuple[Move, ...]:
    """Return the entries that differ."""
    return tuple([Move(name, value, new[name]) for name, value in old.items() if value != new[name]])


def _request_diff(old: SequenceState, new: SequenceState, waited: bool, waits: bool) -> RequestDiff | None:
    """Return the difference of a request in two states; None if equal. The flags: is it waiting?"""
    moves = _moves(_counts(old, waited), _counts(new, waits))
    if old == new and not moves:
        return None
    before, after = old.unmasked_tokens, new.unmasked_tokens
    positions = tuple(
        [
            Position(position, before.get(position), after.get(position))
            for position in sorted(before.keys() | after.keys())
            if before.get(position) != after.get(position)
        ]
    )
    old_drafts, new_drafts = _drafts(old), _drafts(new)
    drafts = sum(new_drafts.get(position, token) != token for position, token in old_drafts.items())
    others = differing(old.request, new.request, names_of(Request))
    others += differing(old.request_spec, new.request_spec, ("limit", "stop_ids", "grid", "strategy"))
    others += differing(old, new, ("extra",)) + differing(
        old.accounting, new.accounting, ("stop_state", "storage", "finish_info")
    )
    if not (positions or drafts or moves):
        others += differing(old, new, ("window", "past"))
    shown_by = {"storage": ("stored", "pages"), "finish_info": ("status", "answer length")}
    moved = {move.name for move in moves}
    kept = tuple([name for name in others if not moved.intersection(shown_by.get(name, ()))])
    fate: Fate = "ended" if new.finish_info is not None and old.finish_info is None else "continued"
    return RequestDiff(new.id, new.request.seq_id, fate, positions, moves, drafts, kept)


def _key(sequence: SequenceState) -> tuple[int, int, tuple[int, ...]]:
    return sequence.request.seq_id, sequence.id, sequence.request.prompt


def _requests_diff(
    old: Iterable[tuple[SequenceState, bool]], new: Iterable[tuple[SequenceState, bool]]
) -> tuple[RequestDiff, ...]:
    """Return the differences of (sequence, waits) pairs, matched by sequence number, id and prompt."""
    before, after = ({_key(sequence): (sequence, waits) for sequence, waits in side} for side in (old, new))
    diffs: list[RequestDiff] = []
    for key in sorted(before.keys() | after.keys()):
        seq_id, request_id, _ = key
        if key not in after:
            diffs.append(RequestDiff(request_id, seq_id, "removed"))
        elif key not in before:
            sequence, waits = after[key]
            positions = tuple([Position(position, None, token) for position, token in sequence.unmasked_tokens.items()])
            moves = (Move("status", None, status(sequence, waits)),)
            diffs.append(RequestDiff(request_id, seq_id, "added", positions, moves))
        else:
            (one, waited), (two, waits) = before[key], after[key]
            changed = _request_diff(one, two, waited, waits)
            diffs += [changed] if changed is not None else []
    return tuple(diffs)


def _trace_diff(old: Trace, new: Trace) -> TraceDiff:
    first = _state_diff(old.first, new.first)
    if first:
        one, two = _folded("old", old.first, old.events), _folded("new", new.first, new.events)
        return TraceDiff(0, "", "", first, _state_diff(one, two), equal=False)
    state, same = old.first, 0
    while same < min(len(old.events), len(new.events)) and old.events[same] == new.events[same]:
        state = applied(state, old.events[same], same)
        same += 1
    rest, others = old.events[same:], new.events[same:]
    if not (rest or others):
        return TraceDiff(same, "", "", first, first, equal=True)
    texts = _first_difference(rest[0], others[0]) if rest and others else (event_text(*rest[:1]), event_text(*others[:1]))
    # The states after the first different event are compared before any later event is applied.
    one, two = _folded("old", state, rest[:1], same), _folded("new", state, others[:1], same)
    there = _state_diff(one, two)
    one, two = _folded("old", one, rest[1:], same + 1), _folded("new", two, others[1:], same + 1)
    return TraceDiff(same, *texts, there, _state_diff(one, two), equal=False)


def _folded(side: str, state: State, events: Iterable[Event], first: int = 0) -> State:
    """Fold the events of one of two traces. ReplayDiverged names the trace (`side`)."""
    try:
        return folded(state, events, first)
    except ReplayDiverged as error:
        raise ReplayDiverged(f"{side} trace: {error}") from error


def _first_difference(old: Event, new: Event) -> tuple[str, str]:
    """Return the descriptions of two different events, with their first difference."""
    if not (isinstance(old, Samples) and isinstance(new, Samples)):
        return event_text(old), event_text(new)
    if old.plan != new.plan:
        names = ["KV cache" if name == "cache_digest" else name for name in differing(old.plan, new.plan, names_of(old.plan))]
        return f"{event_text(old)}, another plan ({listed(names)})", f"{event_text(new)}, another plan"
    for span, one, two in zip(old.plan.spans, old.rows, new.rows, strict=True):
        was = tuple(zip(span.sampled, one.tokens, one.probabilities, strict=True))
        now = tuple(zip(span.sampled, two.tokens, two.probabilities, strict=True))
        for answer, other in zip(was, now, strict=True):
            if answer != other:
                place = f"step {old.plan.step}, request {span.id}, position {answer[0]}"
                first, second = (f"{place}: token {token}, probability {p:.4g}" for _, token, p in (answer, other))
                return first, second
    return f"{event_text(old)}, other statistics", f"{event_text(new)}, other statistics"

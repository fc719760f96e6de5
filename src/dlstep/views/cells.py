"""Display data as plain values: positions with phases, pages with holders, events with effects.

The HTML and terminal views are both rendered from these values, so they agree.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf
from typing import Literal, NamedTuple

from ..core.block import Block
from ..core.lifecycle import Abort, Add, Adopt, Event, Fail, apply
from ..core.plan import Samples
from ..core.sequence import SequenceState
from ..core.spec import Spec
from ..core.state import State
from ..core.trace import Trace

# final: can no longer change; held: final, still in the window; open: unmasked, in an open block;
# draft: masked, fed as a token; masked: fed as a mask; void: after the answer's end.
Phase = Literal["prompt", "final", "held", "open", "draft", "masked", "void"]
Use = Literal["owned", "shared", "cached", "free"]


class PictureCell(NamedTuple):
    """One position. `token` is None for a mask; `probability`: at unmasking (0 if masked)."""

    position: int
    token: int | None
    phase: Phase
    probability: float


class PageCell(NamedTuple):
    """One page, its use, and the ids of the requests that hold it."""

    page: int
    use: Use
    holders: tuple[int, ...]


class EventRow(NamedTuple):
    """The effect of one trace event: rows fed and sampled, and counts after it."""

    event: int
    kind: str
    step: int
    requests: tuple[int, ...]
    fed: int
    sampled: int
    emitted_so_far: int
    running: int
    waiting: int
    pages_owned: int


def cells(sequence: SequenceState, spec: Spec) -> tuple[PictureCell, ...]:
    """Return all positions of a request, up to the end of its window or finished answer."""
    prompt = sequence.request.prompt
    pictured = [PictureCell(position, token, "prompt", 1.0) for position, token in enumerate(prompt)]
    end = len(prompt) + len(sequence.answer) if sequence.finish else inf
    for block in (*reversed(list(sequence.progress.past)), *sequence.progress.window):
        for position, (token, chance) in enumerate(zip(block.tokens, block.probabilities, strict=True), block.start):
            if len(prompt) <= position < end:
                phase = _phase(sequence, block, position, spec)
                if phase in ("draft", "masked", "void"):
                    pictured.append(PictureCell(position, token if phase == "draft" else None, phase, 0.0))
                else:
                    pictured.append(PictureCell(position, token, phase, chance))
    return tuple(pictured)


def _phase(sequence: SequenceState, block: Block, position: int, spec: Spec) -> Phase:
    """Return the phase of a position of the answer."""
    if not sequence.finish and position >= sequence.request.limit:
        return "void"
    if sequence.finish or block not in sequence.progress.window:
        return "final"
    if position < sequence.progress.final:
        return "held"
    if position not in block.masked:
        return "open"
    return "draft" if spec.mask_id is None else "masked"


def page_cells(state: State) -> tuple[PageCell, ...]:
    """Return a cell for each page that was ever allocated, by page number. Pages without a cell were never used."""
    holders: dict[int, list[int]] = {}
    for sequence in state.running:
        for page in sequence.pages:
            holders.setdefault(page, []).append(sequence.request.id)
    pages: list[PageCell] = []
    for page in range(state.cache.fresh):
        use: Use = "cached" if page in state.cache.cached else "free"
        if page in holders:
            use = "owned" if len(holders[page]) == 1 else "shared"
        pages.append(PageCell(page, use, tuple(holders.get(page, ()))))
    return tuple(pages)


def status(sequence: SequenceState, waits: bool) -> str:
    """Return `ended by` and the reason, `waiting` or `running`."""
    return f"ended by {sequence.finish}" if sequence.finish else ("waiting" if waits else "running")


def in_order(state: State) -> list[tuple[SequenceState, bool]]:
    """Return all requests of a state by sequence number, each with whether it waits."""
    return sorted(state.sequences(), key=lambda item: item[0].request.seq_id)


def event_rows(trace: Trace) -> Iterator[EventRow]:
    """Yield one row per event of a trace, replaying the trace in the process."""
    state = trace.first
    for number, event in enumerate(trace.events):
        state = apply(state, event)
        fed = sampled = 0
        match event:
            case Samples(plan):
                requests = tuple(span.who.id for span in plan.spans)
                fed = sum(len(span.rows.tokens) for span in plan.spans)
                sampled = sum(len(span.wanted.sampled) for span in plan.spans)
            case Add(request):
                requests = (request.id,)
            case Adopt() | Abort() | Fail():
                requests = (event.id,)
            case _:
                requests = ()
        emitted = sum(len(sequence.answer) for sequence, _ in state.sequences())
        counts = (len(state.running), len(state.waiting), len(state.cache.owners))
        yield EventRow(number, kind_of(event), state.step, requests, fed, sampled, emitted, *counts)


def kind_of(event: Event) -> str:
    """Return `step` for samples, else the name of the event."""
    return "step" if isinstance(event, Samples) else type(event).__name__.lower()


@dataclass(frozen=True, slots=True)
class Stay:
    """The time for which a position of an answer holds a token. Sampling forward passes count from 1."""

    offset: int
    """Offset of the position in the answer."""
    token: int
    """Token id."""
    since: int
    """Forward pass that unmasked the token; 0 for a pinned token."""
    until: int | None = None
    """Forward pass that removed the token; None if none did."""
    replaced: bool = False
    """Whether another token replaced it; otherwise it was remasked."""


def stays(trace: Trace, request_id: int = 0) -> tuple[Stay, ...]:
    """Return all tokens ever in or after a request's answer, in order of `since` and offset.

    Args:
        trace: The trace of a decode.
        request_id: Id of the request.

    Raises:
        KeyError: If the trace does not contain the request.
    """
    current: dict[int, Stay] = {}
    gone: list[Stay] = []
    steps = -1
    for state in trace.states():
        sequence = state.find(request_id)
        if sequence is None or sequence.steps <= steps:
            continue
        start = len(sequence.request.prompt)
        steps, now = sequence.steps, {position - start: token for position, token in sequence.unmasked_tokens.items()}
        for offset, stay in list(current.items()):
            if now.get(offset) != stay.token:
                gone.append(replace(stay, until=steps, replaced=offset in now))
                del current[offset]
        for offset, token in now.items():
            current.setdefault(offset, Stay(offset, token, steps))
    if steps < 0:
        raise KeyError(f"the trace contains no request {request_id}")
    return tuple(sorted([*gone, *current.values()], key=lambda stay: (stay.since, stay.offset)))


def fill_order(trace: Trace, request_id: int = 0) -> tuple[int, ...]:
    """Return, per answer token, the sampling forward pass (from 1) that set its final value.

    Args:
        trace: The trace of a decode.
        request_id: Id of the request.

    Raises:
        KeyError: If the trace does not contain the request.
    """
    seen = [sequence for state in trace.states() if (sequence := state.find(request_id)) is not None]
    if not seen:
        raise KeyError(f"the trace contains no request {request_id}")
    answer, start = seen[-1].answer, len(seen[-1].request.prompt)
    order = [1] * len(answer)
    for sequence in seen:  # also the tokens that a canvas feeds at masked positions
        known = sequence.tokens(start, start + len(answer))
        for place, token in enumerate(answer):
            if known[place : place + 1] != (token,):
                order[place] = sequence.steps + 1
    return tuple(order)

"""The tokens that each position of an answer held, and for which forward passes, from a trace."""

from typing import NamedTuple

from ..core import Trace
from ..core.block import moved


class Stay(NamedTuple):
    """The time for which a position of an answer holds a token. Sampling forward passes count from 1."""

    offset: int
    """Offset of the position in the answer; the last offset, if positions before it were added or removed."""
    token: int
    """Token id."""
    since: int
    """Forward pass that unmasked the token; 0 for a pinned token."""
    until: int | None = None
    """Forward pass that removed the token; None if none did."""
    replaced: bool = False
    """Whether another token replaced it; otherwise it was remasked."""


def stays(trace: Trace, request_id: int = 0) -> tuple[Stay, ...]:
    """Return every token that a position of a request's answer, or a position after its end, ever held, by `since` and offset.

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
        start, places = sequence.request.start, sequence.progress.replaced
        current = {
            at: stay._replace(offset=at) for offset, stay in current.items() for at in [moved(start + offset, places) - start]
        }
        steps, now = sequence.steps, {position - start: token for position, token in sequence.unmasked_tokens.items()}
        for offset, stay in list(current.items()):
            if now.get(offset) != stay.token:
                gone.append(stay._replace(until=steps, replaced=offset in now))
                del current[offset]
        for offset, token in now.items():
            current.setdefault(offset, Stay(offset, token, steps))
    if steps < 0:
        raise KeyError(f"the trace contains no request {request_id}")
    return tuple(sorted([*gone, *current.values()], key=lambda stay: (stay.since, stay.offset)))

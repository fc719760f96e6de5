"""Forks of kept requests: new requests that continue from a step of a kept sequence."""

import re

from ...core import RequestFault, Sequence, adopt
from ...core.faults import UserCodeTimeout, described
from ...core.options import sorted_options
from ...engine.overrides import with_changes, with_params
from ...engine.watchdog import limited
from ...views.frames import joined
from ..facts import Facts
from ..messages import Origin, Submit
from ..router.kept import KeptRequest
from ..router.tickets import Ticket
from .errors import ApiError, mentions
from .schema import ForkRequest
from .translate import Asked, strategy_options


def forked(facts: Facts, kept: KeptRequest, body: ForkRequest) -> Asked:
    """Translate a fork's body. Raises ApiError that names the invalid field."""
    if body.index >= len(kept.tickets):
        raise ApiError(400, f"index must be below {len(kept.tickets)}, the answers of the request", param="index")
    ticket = kept.tickets[body.index]
    _check_step(kept, ticket, body.seq)
    given = strategy_options(body.dlstep.model_extra or {})
    opening = _changed(facts, ticket, body, given)
    frame = joined(ticket.frames[: body.seq - ticket.frames[0].seq + 1])
    origin = Origin(ticket.id, body.seq, sorted_options("dlstep", given), body.seed, body.temperature)
    submit = Submit(
        0,
        ticket.submit.prompt,
        opening.request.params,
        probabilities=ticket.submit.probabilities,
        steps=True,
        keeps=facts.most_kept > 0,
        origin=origin,
    )
    return Asked((submit,), (), opening.request.params.stop, ((opening, frame),))


def _check_step(kept: KeptRequest, ticket: Ticket, seq: int) -> None:
    """Raise ApiError for a step that no fork can start from."""
    first, last = ticket.frames[0].seq, ticket.frames[-1]
    if seq < first:
        assert kept.head.origin is not None, "the steps of other requests begin with the first"
        said = f"seq must be at least {first}: for earlier steps, fork request {kept.head.origin['request']}"
        raise ApiError(400, said, param="seq")
    if ticket.sent is None:
        said = "the request has not begun" if ticket.ended is None else "the request ended before it began"
        raise ApiError(400, f"seq: {said}, so no fork can begin there", param="seq")
    if last.ending is not None and seq >= last.seq:
        said = f"seq must be below {last.seq}, the last step of the answer (finish reason: {last.ending.reason})"
        raise ApiError(400, said, param="seq")
    if seq > last.seq:
        raise ApiError(400, f"seq must be at most {last.seq}, the last step so far", param="seq")


def _changed(facts: Facts, ticket: Ticket, body: ForkRequest, given: dict[str, object]) -> Sequence:
    """Return the answer's first sequence, changed. The changes fit all later steps, too."""
    assert ticket.opening is not None, "kept requests have one"
    first, opening = facts.first, ticket.opening

    def changed() -> Sequence:
        sequence = with_params(opening, seed=body.seed, temperature=body.temperature)
        sequence = with_changes(sequence, dict(sorted_options("dlstep", given)), first.config, first.strategy)
        adopt(first, sequence, 0)
        return sequence

    try:
        return limited(facts.card.user_code_timeout, changed)
    except (RequestFault, UserCodeTimeout) as error:
        raise ApiError(400, described(error) if isinstance(error, UserCodeTimeout) else str(error), param="dlstep") from error
    except ValueError as error:
        said = re.sub(r"request \d+(, which is under way)?", "this request", str(error)).replace("SamplingParams.", "")
        names = [f"dlstep.{name}" for name in given if mentions(said, name)]
        names += [name for name in ("seed", "temperature") if mentions(said, name)]
        raise ApiError(400, said, param=names[0] if names else "dlstep") from error

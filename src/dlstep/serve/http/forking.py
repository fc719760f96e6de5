"""Forks of kept requests: new requests that continue from a step of a kept sequence."""

import re

from ...core import RequestFault, SequenceState, adopt
from ...core.faults import UserCodeTimeout, described
from ...core.options import sorted_options
from ...engine.overrides import with_changes
from ...engine.watchdog import limited
from ...views.frames import joined
from ..facts import Facts
from ..messages import Origin, Submit
from ..router.pending_requests import PendingRequest
from ..router.recording_store import KeptRequest
from .errors import ApiError, mentions
from .schema import ForkRequest
from .translate import TranslatedBody, strategy_options


def forked(facts: Facts, kept: KeptRequest, body: ForkRequest) -> TranslatedBody:
    """Translate a fork's body. Raises ApiError that names the invalid field."""
    if body.index >= len(kept.pending_requests):
        raise ApiError(400, f"index must be below {len(kept.pending_requests)}, the answers of the request", param="index")
    pending = kept.pending_requests[body.index]
    _check_step(kept, pending, body.seq)
    changes = strategy_options(facts.first.strategy, body.dlstep.model_extra or {})
    opening = _changed(facts, pending, body, changes)
    frame = joined(pending.frames[: body.seq - pending.frames[0].seq + 1])
    origin = Origin(pending.id, body.seq, sorted_options("dlstep", changes), body.seed, body.temperature)
    submit = Submit(
        0,
        pending.submit.prompt,
        opening.request.params,
        probabilities=pending.submit.probabilities,
        steps=True,
        keeps=facts.most_kept > 0,
        origin=origin,
        constraint=pending.submit.constraint,
    )
    return TranslatedBody((submit,), (), opening.request.params.stop, ((opening, frame),))


def _check_step(kept: KeptRequest, pending: PendingRequest, seq: int) -> None:
    """Raise ApiError for a step that no fork can start from."""
    first, last = pending.frames[0].seq, pending.frames[-1]
    if seq < first:
        assert kept.head.origin is not None, "the steps of other requests begin with the first"
        message = f"seq must be at least {first}: for earlier steps, fork request {kept.head.origin['request']}"
        raise ApiError(400, message, param="seq")
    if pending.sent is None:
        message = "the request has not started" if pending.ended is None else "the request ended before it started"
        raise ApiError(400, f"seq: {message}, so it has no step to fork from", param="seq")
    if last.finish_info is not None and seq >= last.seq:
        message = f"seq must be below {last.seq}, the last step of the answer (finish reason: {last.finish_info.reason})"
        raise ApiError(400, message, param="seq")
    if seq > last.seq:
        raise ApiError(400, f"seq must be at most {last.seq}, the last step so far", param="seq")


def _changed(facts: Facts, pending: PendingRequest, body: ForkRequest, changes: dict[str, object]) -> SequenceState:
    """Return the answer's first sequence, changed. The changes are valid for all later steps, too."""
    assert pending.opening is not None, "kept requests have one"
    first, opening = facts.first, pending.opening

    def changed() -> SequenceState:
        options = dict(sorted_options("dlstep", changes))
        sequence = with_changes(opening, first.config, first.strategy, options, seed=body.seed, temperature=body.temperature)
        adopt(first, sequence, 0)
        return sequence

    try:
        return limited(facts.info.user_code_timeout, changed)
    except (RequestFault, UserCodeTimeout) as error:
        raise ApiError(400, described(error) if isinstance(error, UserCodeTimeout) else str(error), param="dlstep") from error
    except ValueError as error:
        message = re.sub(r"request \d+(, which is under way)?", "this request", str(error)).replace("SamplingParams.", "")
        names = [f"dlstep.{name}" for name in changes if mentions(message, name)]
        names += [name for name in ("seed", "temperature") if mentions(message, name)]
        raise ApiError(400, message, param=names[0] if names else "dlstep") from error

"""Kept requests as clients see them: recordings, the list of an API key's requests, and forks."""

import json
from collections.abc import Iterable

from ...core import Refused, RequestFault, SequenceState, adopt
from ...core.options import sorted_options
from ...engine.overrides import with_changes
from ...text.detokenize import cut, decode
from ...views.frames import VERSION, FrameEncoder, joined
from ..messages import Facts, Origin, Submit
from ..router.pending_requests import Head, PendingRequest
from ..router.recording_store import KeptRequest
from ..router.router import Router
from ..shapes import RequestList, RequestRow
from .answers import AnswerJob
from .replies import answer_head, encoded_frame
from .schema import ForkRequest
from .translate import TranslatedBody, named, strategy_options


def kept_of(router: Router, request_id: str, owner: str) -> KeptRequest:
    """Return a kept request. Raises the same Refused if it does not exist or has another owner."""
    kept = router.recording_store.find(request_id, owner)
    if kept is None:
        limit = f"the newest {router.recording_store.most} answers with `stream: steps`, until their engine ends"
        raise Refused("request_id", "request_not_found", f"no steps are kept for this id: the server keeps those of {limit}")
    return kept


def recording(facts: Facts, kept: KeptRequest, after: int = -1) -> str:
    """Return the JSON text of the recording of a kept request, with the frames whose `seq` is above `after`."""
    runs = [_run(facts, kept.head, index, pending, after) for index, pending in enumerate(kept.pending_requests)]
    return f'{{"dlstep_recording": {VERSION}, "runs": [{", ".join(runs)}]}}'


def _run(facts: Facts, head: Head, index: int, pending: PendingRequest, after: int) -> str:
    spec = facts.first.config.spec
    encoder = FrameEncoder(index, pending.request.start, spec.pieces)
    # The event loop appends concurrently, to `times` last: the first `count` frames are complete.
    count = len(pending.times)
    last, begin = pending.frames[count - 1], min(count, max(0, after + 1 - pending.frames[0].seq))
    if begin:
        encoder.skip(pending.frames[:begin])
    # Frame by frame: garbage collection would traverse the lists of all frames again and again, which takes seconds.
    frames = ", ".join(json.dumps(encoded_frame(encoder, pending, number, head, spec)) for number in range(begin, count))
    text = cut(decode(facts.tokenizer, pending.tokens[: last.settled]), pending.request.params.stop)
    rest = {"head": answer_head(pending, head, spec), "text": text, "ended": last.finish_info is not None}
    return f'{{"index": {index}, "frames": [{frames}], {json.dumps(rest)[1:]}'


def listed(router: Router, owner: str, running: Iterable[AnswerJob]) -> RequestList:
    """Return the requests of an API key, newest first."""
    kept = {request.head.id: (request.head, request.pending_requests) for request in router.recording_store.of(owner)}
    both = kept | {job.head.id: (job.head, tuple(job.pending_requests)) for job in running}
    ordered = sorted(both.values(), key=lambda item: item[0].created)
    return RequestList(
        object="list", data=[_row(head, pending_requests, head.id in kept) for head, pending_requests in reversed(ordered)]
    )


def _row(head: Head, pending_requests: tuple[PendingRequest, ...], kept: bool) -> RequestRow:
    running = any(pending.ended is None for pending in pending_requests)
    return RequestRow(
        id=head.id,
        status="running" if running else "ended",
        answers=len(pending_requests),
        steps=kept,
        created=head.created,
        prompt_tokens=sum(len(pending.request.prompt) for pending in pending_requests),
        tokens=sum(len(pending.tokens) for pending in pending_requests),
        nfe=sum(pending.nfe for pending in pending_requests),
        forked_from=head.origin,
    )


def forked(facts: Facts, kept: KeptRequest, body: ForkRequest) -> TranslatedBody:
    """Translate a fork's body. Raises Refused that names the invalid field."""
    if body.index >= len(kept.pending_requests):
        raise Refused("index", "out_of_range", f"must be below {len(kept.pending_requests)}, the answers of the request")
    pending = kept.pending_requests[body.index]
    _check_step(pending, body.seq)
    with named(body):
        changes = strategy_options(facts.first.strategy, body.dlstep.model_extra or {})
        opening = _changed(facts, pending, body, changes)
    frame = joined(pending.frames[: body.seq - pending.frames[0].seq + 1])
    origin = Origin(pending.id, body.seq, sorted_options("dlstep", changes), body.seed, body.temperature)
    keeps, probabilities = facts.most_kept > 0, pending.submit.probabilities
    submit = Submit(opening.request, probabilities=probabilities, steps=True, keeps=keeps, origin=origin)
    return TranslatedBody([submit], [""], [(opening, frame)])


def _check_step(pending: PendingRequest, seq: int) -> None:
    """Raise Refused for a step that no fork can start from."""
    last = pending.frames[-1]
    steps = range(pending.frames[0].seq, last.seq + (last.finish_info is None)) if pending.sent is not None else range(0)
    if seq not in steps:
        ends = f"must be from {steps.start} to {steps.stop - 1}, the steps of this request before its end"
        raise Refused("seq", "out_of_range", ends if steps else "the request has no step to fork from")


def _changed(facts: Facts, pending: PendingRequest, body: ForkRequest, changes: dict[str, object]) -> SequenceState:
    """Return the answer's first sequence, changed. The changes are valid for all later steps, too."""
    assert pending.opening is not None, "kept requests have one"
    first, options = facts.first, dict(sorted_options("dlstep", changes))
    try:
        sequence = with_changes(
            pending.opening, first.config, first.strategy, options, seed=body.seed, temperature=body.temperature
        )
        adopt(first, sequence, 0)
        return sequence
    except RequestFault as error:
        raise Refused("dlstep", "strategy_failed", str(error)) from error

"""Kept requests as clients see them: recordings, and the list of an API key's requests."""

import json
from collections.abc import Iterable

from ...text.detokenize import cut, decode
from ...views.frames import VERSION, FrameEncoder
from ..facts import Facts
from ..router.heads import Head
from ..router.pending_requests import PendingRequest
from ..router.recording_store import KeptRequest
from ..router.router import Router
from ..shapes import RequestList, RequestRow
from .answers import AnswerJob
from .choices import answer_head, encoded_frame
from .errors import ApiError


def kept_of(router: Router, request_id: str, owner: str) -> KeptRequest:
    """Return a kept request. Raises the same ApiError if it does not exist or has another owner."""
    kept = router.recording_store.find(request_id, owner)
    if kept is None:
        limit = f"the server keeps the steps of the newest {router.recording_store.most} answers with `stream: steps`"
        deaths = f"; its engine has died {router.deaths} times and lost its kept steps" if router.deaths else ""
        message = f"no steps are kept for this id: {limit}{deaths}"
        raise ApiError(404, message, param="request_id", code="request_not_found")
    return kept


def recording(facts: Facts, kept: KeptRequest, after: int = -1) -> str:
    """Return the JSON text of the recording of a kept request, with the frames whose `seq` is above `after`."""
    runs = [_run(facts, kept.head, index, pending, after) for index, pending in enumerate(kept.pending_requests)]
    return f'{{"dlstep_recording": {VERSION}, "runs": [{", ".join(runs)}]}}'


def _run(facts: Facts, head: Head, index: int, pending: PendingRequest, after: int) -> str:
    spec = facts.info.config.spec
    encoder = FrameEncoder(index, len(pending.submit.prompt), spec.pieces)
    # The event loop appends concurrently, to `times` last: the first `count` frames are complete.
    count = len(pending.times)
    last, begin = pending.frames[count - 1], min(count, max(0, after + 1 - pending.frames[0].seq))
    if begin:
        encoder.skip(pending.frames[:begin])
    # Frame by frame: garbage collection would traverse the lists of all frames again and again, which takes seconds.
    frames = ", ".join([json.dumps(encoded_frame(encoder, pending, number, head, spec)) for number in range(begin, count)])
    text = cut(decode(facts.texts.tokenizer, pending.tokens[: last.settled]), pending.submit.params.stop)
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
        prompt_tokens=sum(len(pending.submit.prompt) for pending in pending_requests),
        tokens=sum(len(pending.tokens) for pending in pending_requests),
        nfe=sum(pending.nfe for pending in pending_requests),
        forked_from=head.origin,
    )

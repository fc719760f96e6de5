"""Kept requests as clients see them: recordings, and the list of an API key's requests."""

from collections.abc import Iterable

from ...text.detokenize import cut, decode
from ...views.frames import VERSION, Teller
from ..facts import Facts
from ..router.front import Front
from ..router.heads import Head
from ..router.kept import KeptRequest
from ..router.tickets import Ticket
from ..shapes import Recording, RequestList, RequestRow, RunOfRecording
from .answers import Job
from .choices import answer_head, told_frame
from .errors import ApiError


def kept_of(front: Front, request_id: str, owner: str) -> KeptRequest:
    """Return a kept request. Raises the same ApiError if it does not exist or has another owner."""
    found = front.kept.find(request_id, owner)
    if found is None:
        said = f"the server keeps the steps of the newest {front.kept.most} answers that asked for steps"
        deaths = f"; its engine has died {front.deaths} times and lost its kept steps" if front.deaths else ""
        message = f"no steps of such a request are kept: {said}{deaths}"
        raise ApiError(404, message, param="request_id", code="request_not_found")
    return found


def recording(facts: Facts, kept: KeptRequest, after: int = -1) -> Recording:
    """Return the recording of a kept request, with the frames whose `seq` is above `after`."""
    runs = [_run(facts, kept.head, index, ticket, after) for index, ticket in enumerate(kept.tickets)]
    return Recording(dlstep_recording=VERSION, runs=runs)


def _run(facts: Facts, head: Head, index: int, ticket: Ticket, after: int) -> RunOfRecording:
    spec = facts.card.config.spec
    teller = Teller(index, len(ticket.submit.prompt), spec.pieces)
    # The event loop appends concurrently, to `times` last: the first `count` frames are complete.
    count = len(ticket.times)
    last, begin = ticket.frames[count - 1], min(count, max(0, after + 1 - ticket.frames[0].seq))
    if begin:
        teller.skip(ticket.frames[:begin])
    told = [told_frame(teller, ticket, number, head, spec) for number in range(begin, count)]
    text = cut(decode(facts.texts.tokenizer, ticket.tokens[: last.settled]), ticket.submit.params.stop)
    ended = last.ending is not None
    return RunOfRecording(index=index, head=answer_head(ticket, head, spec), frames=told, text=text, ended=ended)


def listed(front: Front, owner: str, under_way: Iterable[Job]) -> RequestList:
    """Return the requests of an API key, newest first."""
    kept = {request.head.id: (request.head, request.tickets) for request in front.kept.of(owner)}
    both = kept | {job.head.id: (job.head, tuple(job.tickets)) for job in under_way}
    ordered = sorted(both.values(), key=lambda each: each[0].created)
    return RequestList(object="list", data=[_row(head, tickets, head.id in kept) for head, tickets in reversed(ordered)])


def _row(head: Head, tickets: tuple[Ticket, ...], kept: bool) -> RequestRow:
    running = any(ticket.ended is None for ticket in tickets)
    return RequestRow(
        id=head.id,
        status="running" if running else "ended",
        answers=len(tickets),
        steps=kept,
        created=head.created,
        prompt_tokens=sum(len(ticket.submit.prompt) for ticket in tickets),
        tokens=sum(len(ticket.tokens) for ticket in tickets),
        nfe=sum(ticket.nfe for ticket in tickets),
        forked_from=head.origin,
    )

"""Short texts of the core's values for `str` and messages. Lines fit 80 columns."""

from collections import Counter
from collections.abc import Iterator

from ..core import Abort, Add, Adopt, Event, Fail, Plan, Prune, Rebuild, Samples, SequenceState, State, Trace
from ..text.words import clipped, clipped_front, counted, piece, printable
from .cells import in_order, kind_of, status
from .lines import fitting, listed, more, runs_text

MOST_REQUESTS = 8
WIDEST_ANSWER = 76


def text_of(value: State | Plan | Samples | Trace) -> str:
    """Return the text that `str` returns for a value of the core."""
    match value:
        case State():
            return _state_text(value)
        case Plan():
            return _plan_text(value)
        case Samples():
            return _samples_text(value)
        case Trace():
            return _trace_text(value)


def _state_text(state: State) -> str:
    pages = f"{len(state.cache.owners)} of {state.config.num_pages} pages held"
    lines = [f"State at step {state.step}: {counts(state)}, {pages}"]
    requests = in_order(state)
    for sequence, waits in requests[-MOST_REQUESTS:]:
        lines += _request_lines(state, sequence, waits)
    return "\n".join(lines + more(len(requests) - MOST_REQUESTS, "request"))


def counts(state: State) -> str:
    """Return how many requests are running, waiting and finished."""
    return f"{len(state.running)} running, {len(state.waiting)} waiting, {len(state.finished)} finished"


def _request_lines(state: State, sequence: SequenceState, waits: bool) -> Iterator[str]:
    """Yield two lines: counts, and the answer with a dot for each masked position."""
    head = f"  request {sequence.request.id}, {status(sequence, waits)}"
    forwards = counted(sequence.nfe, "forward pass")
    if sequence.error:
        yield clipped(f"{head}: {printable(sequence.error)}")
        return
    known, start = sequence.unmasked_tokens, len(sequence.request.prompt)
    if sequence.finish:
        end = start + len(sequence.answer)
        yield f"{head} after {forwards}: {counted(end - start, 'token')}"
    else:
        end = min(max([start, *(block.end for block in sequence.progress.window)]), sequence.request.limit)
        yield f"{head}, {forwards}: {len(known)} unmasked, {end - start - len(known)} masked"
    if end > start:
        text = "".join([piece(state.config.spec, known.get(position)) for position in range(start, end)])
        yield f"    {clipped_front(text, WIDEST_ANSWER)}"


def plan_head(plan: Plan) -> str:
    """Return the first line of a plan's text: its step, and counts of requests, rows and changes."""
    fed = sum(len(span.rows.tokens) for span in plan.spans)
    pages = sum(len(grant.pages) for grant in plan.grants)
    head = f"Plan of step {plan.step}: {counted(len(plan.spans), 'request')}, {counted(fed, 'row')}"
    changes = {"new page": pages, "admission": len(plan.admissions), "preemption": len(plan.preemptions)}
    return ", ".join([head, *(counted(number, noun) for noun, number in changes.items() if number)])


def _plan_text(plan: Plan) -> str:
    lines = [plan_head(plan)]
    for span in plan.spans[:MOST_REQUESTS]:
        sampled = (
            f"samples {len(span.wanted.sampled)}: {runs_text(span.wanted.sampled)}" if span.wanted.sampled else "samples none"
        )
        lines.append(clipped(f"  request {span.who.id}: feeds {span.rows.start} to {span.rows.stop - 1}, {sampled}"))
    return "\n".join(lines + more(len(plan.spans) - MOST_REQUESTS, "request"))


def _samples_text(samples: Samples) -> str:
    sampled = sum(len(rows.tokens) for rows in samples.rows)
    tokens = f"{counted(sampled, 'token')} of {counted(len(samples.rows), 'request')}"
    lines = [f"Samples of step {samples.plan.step}: {tokens}, as position: token (probability)"]
    for span, rows in list(zip(samples.plan.spans, samples.rows, strict=True))[:MOST_REQUESTS]:
        sampled_tokens = zip(span.wanted.sampled, rows.tokens, rows.probabilities, strict=True)
        shown = [f"{position}: {token} ({probability:.2f})" for position, token, probability in sampled_tokens]
        lines.append(fitting(shown, f"  request {span.who.id}  ") if shown else f"  request {span.who.id}  none")
    return "\n".join(lines + more(len(samples.rows) - MOST_REQUESTS, "request"))


def _trace_text(trace: Trace) -> str:
    kinds = [counted(number, kind) for kind, number in Counter(map(kind_of, trace.events)).items()]
    head = f"Trace of {counted(len(trace.events), 'event')}: "
    return fitting(kinds, head) if kinds else "Trace without events"


def event_text(event: Event | None = None) -> str:
    """Return a short description of an event; empty for None."""
    match event:
        case None:
            return ""
        case Add():
            return f"add request {event.request.id} of {counted(len(event.request.prompt), 'token')}"
        case Adopt():
            return f"adopt request {event.id}"
        case Abort():
            return f"abort request {event.id}" + (f": {printable(event.reason)}" if event.reason else "")
        case Fail():
            return f"fail request {event.id}: {printable(event.error)}"
        case Rebuild():
            return "rebuild: the KV cache was lost"
        case Prune():
            return "prune: finished requests were removed"
        case Samples():
            ids = [span.who.id for span in event.plan.spans]
            return f"step {event.plan.step} of request{'s' if len(ids) > 1 else ''} {listed(ids) or 'none'}"

"""The core's values as lines of text, which `str` clips to 80 columns. Notebooks show states in colour."""

from collections import Counter, deque
from collections.abc import Iterator
from itertools import islice

from rich.text import Text

from ..core import Abort, Add, Adopt, Event, Fail, Grow, Plan, Prune, Rebuild, Samples, SequenceState, Span, State, Trace
from ..text.words import clipped, counted, printable
from .frames import framed
from .lines import listed, more, packed, runs_text
from .terminal import BLUE, ORANGE, PURPLE, answer_text, answer_title

MOST, WIDEST_ANSWER = 8, 76  # maximum number of items of each kind that `str` shows, and of characters of an answer
MOST_EVENTS, MOST_PAGES = 32, 400
USES = {"owned": ("■", BLUE), "shared": ("▣", PURPLE), "cached": ("▤", ORANGE), "free": ("□", "dim")}


def text_of(value: State | Plan | Samples | Trace) -> str:
    """Return the text that `str` returns for a value of the core."""
    match value:
        case State():
            lines = [line.plain for line in state_lines(value)]
        case Plan():
            lines = _plan_lines(value)
        case Samples():
            lines = _samples_lines(value)
        case Trace():
            lines = _trace_lines(value)
    return "\n".join(map(clipped, lines))


def state_lines(state: State, most: int = MOST, width: int = WIDEST_ANSWER) -> Iterator[Text]:
    """Yield the lines of a state.

    Args:
        state: The state.
        most: Number of requests to show.
        width: Number of characters to show of the end of an answer.
    """
    yield Text(f"State at step {state.step}: {counts(state)}")
    requests = sorted(state.sequences(), key=lambda item: item[0].request.seq_id)
    for sequence, waits in requests[-most:]:
        shown = framed(sequence, state.config.spec)
        yield Text(f"  {answer_title(*shown, status(sequence, waits))}")
        if answer := answer_text(*shown, prompt=False):
            yield Text("    ...").append(answer[3 - width :]) if len(answer) > width else Text("    ").append(answer)
    yield from map(Text, more(len(requests) - most, "request"))


def status(sequence: SequenceState, waits: bool) -> str:
    """Return `ended by` and the reason, `waiting` or `running`."""
    return f"ended by {sequence.finish}" if sequence.finish else ("waiting" if waits else "running")


def counts(state: State) -> str:
    """Return how many requests are running, waiting and finished, and how many pages they hold."""
    requests = f"{len(state.running)} running, {len(state.waiting)} waiting, {len(state.finished)} finished"
    return f"{requests}, {len(state.cache.owners)} of {state.config.num_pages} pages held"


def pages_line(state: State) -> Text:
    """Return one character for each page that was ever allocated, by page number, and a legend."""
    held, cache = Counter(page for sequence in state.running for page in sequence.pages), state.cache
    owned = [("free", "owned", "shared")[min(held[page], 2)] for page in range(cache.fresh)]
    uses = ["cached" if page in cache.cached else use for page, use in enumerate(owned)]
    line = Text("  pages ").append_tokens(USES[use] for use in uses[:MOST_PAGES])
    return line.append_tokens((f"  {sign} {use}", style) for use, (sign, style) in USES.items() if use in uses)


def _plan_lines(plan: Plan) -> Iterator[str]:
    new_pages = {grant.seq_id: grant.pages for grant in plan.grants}
    head = f"Plan of step {plan.step}: {counted(len(plan.spans), 'request')}, {counted(plan.num_rows, 'row')}"
    changes = {"new page": sum(map(len, new_pages.values())), "admission": len(plan.admissions)}
    changes |= {"preemption": len(plan.preemptions)}
    yield ", ".join([head, *(counted(number, noun) for noun, number in changes.items() if number)])
    for span in plan.spans[:MOST]:
        yield from _span_lines(span, new_pages.get(span.who.seq_id, ()))
    yield from more(len(plan.spans) - MOST, "request")


def _span_lines(span: Span, pages: tuple[int, ...]) -> list[str]:
    """Return the positions that a span feeds, samples and attends to, and its new pages."""
    rows, sampled = span.rows, span.wanted.sampled
    window = len(rows.tokens) - rows.query_only - rows.final_rows
    kinds = {"only as queries": rows.query_only, "final": rows.final_rows, "of the window": window}
    parts = [f"feeds {rows.start} to {rows.stop - 1}"]
    parts += [f"in the order {runs_text(rows.positions)}"] if rows.positions else []
    parts += [f"{number} {kind}" for kind, number in kinds.items() if number]
    parts += [f"samples {len(sampled)}: {runs_text(sampled)}" if sampled else "samples none", f"sees below {rows.end}"]
    parts += [f"new pages {runs_text(pages)}"] if pages else []
    return packed(parts, f"  request {span.who.id}: ")


def _samples_lines(samples: Samples) -> Iterator[str]:
    sampled = sum(len(rows.tokens) for rows in samples.spans)
    tokens = f"{counted(sampled, 'token')} of {counted(len(samples.spans), 'request')}"
    yield f"Samples of step {samples.plan.step}: {tokens}, as position: token (probability)"
    for span, rows in list(zip(samples.plan.spans, samples.spans, strict=True))[:MOST]:
        sampled_tokens = zip(span.wanted.sampled, rows.tokens, rows.probabilities, strict=True)
        shown = [f"{position}: {token} ({probability:.2f})" for position, token, probability in sampled_tokens]
        rest = [f"and {len(shown) - MOST} more"] if len(shown) > MOST else []
        yield from packed([*shown[:MOST], *rest] or ["none"], f"  request {span.who.id}: ")
    yield from more(len(samples.spans) - MOST, "request")


def _trace_lines(trace: Trace) -> Iterator[str]:
    """Yield the number of events of each kind, and the last events, each with the counts after it."""
    kinds = Counter("step" if isinstance(event, Samples) else type(event).__name__.lower() for event in trace.events)
    yield from packed([f"Trace of {counted(len(trace.events), 'event')}", *(counted(kinds[kind], kind) for kind in kinds)])
    states = islice(trace.states(), 1, None)
    for number, (event, state) in deque(enumerate(zip(trace.events, states, strict=True)), MOST_EVENTS):
        pages = counted(len(state.cache.owners), "page")
        yield f"{number:5}  {event_text(event)}: {len(state.running)} running, {len(state.waiting)} waiting, {pages} held"


def event_text(event: Event) -> str:
    """Return a short description of an event."""
    match event:
        case Samples():
            ids = [span.who.id for span in event.plan.spans]
            return f"step {event.plan.step} of request{'s' if len(ids) > 1 else ''} {listed(ids) or 'none'}"
        case Add():
            return f"add request {event.request.id} of {counted(len(event.request.prompt), 'token')}"
        case Rebuild():
            return "rebuild: the KV cache was lost"
        case Prune():
            return "prune: finished requests were removed"
        case Grow():
            return f"grow to {counted(event.num_pages, 'page')}"
        case Adopt() | Abort() | Fail():
            reason = event.reason if isinstance(event, Abort) else event.error if isinstance(event, Fail) else ""
            return f"{type(event).__name__.lower()} request {event.id}" + (f": {printable(reason)}" if reason else "")

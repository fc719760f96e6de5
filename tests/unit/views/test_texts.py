"""Lines of values: what they show is what the values hold, and `str` fits a terminal."""

# Strategies are found by name.
# pyright: reportCallIssue=false

import pytest

from dlstep import Config, Request, Spec, Trace, add, init, strategies
from dlstep.core import Abort, Add, Adopt, Fail, Grow, Prune, Rebuild, Samples
from dlstep.strategies import load
from dlstep.text.words import counted
from dlstep.views import answer_text, framed
from dlstep.views.terminal import SURE, answer_title
from dlstep.views.texts import pages_line, state_lines

from ...helpers.recorded import recorded

STYLES = {"dim": "masked", "bold": "settled"}


def held(sequence, spec):
    """The positions of an answer, read from its blocks."""
    found, known, prompt = [], sequence.unmasked_tokens, len(sequence.request.prompt)
    progress, settled = sequence.progress, sequence.progress.settled
    stop = min(max([settled, *(block.end for block in progress.window)]), sequence.request.limit)
    if sequence.finish:
        settled = stop = prompt + len(sequence.answer)
    chances = {p: c for b in (*progress.past, *progress.window) for p, c in enumerate(b.probabilities, b.start)}
    for position in range(prompt, stop):
        token = known.get(position)
        shown = "\N{END OF PROOF}" if token in spec.eos_ids else f"#{token} "
        kind = "masked" if token is None else "settled" if position < settled else "unmasked"
        found.append(("·" if token is None else shown, kind, token is not None and chances[position] < SURE))
    return found


def shown(head, frames):
    """The positions of an answer as they are drawn."""
    text = answer_text(head, frames, prompt=False)
    found = []
    for part in text.spans:
        style = str(part.style).split()
        found.append((text.plain[part.start : part.end], STYLES.get(style[0], "unmasked"), "underline" in style))
    return found


def check(state):
    """Answers, counts, pages and lines of a state."""
    spec, lines = state.config.spec, [line.plain for line in state_lines(state, most=1000)]
    for sequence, waits in state.sequences():
        head, frames = framed(sequence, spec)
        positions = held(sequence, spec)
        assert shown(head, frames) == positions
        masked, passes = sum(kind == "masked" for _, kind, _ in positions), counted(sequence.nfe, "forward pass")
        now = f"{'waiting' if waits else 'running'}, {passes}: {len(positions) - masked} unmasked, {masked} masked"
        if sequence.finish:
            now = f"ended by {sequence.finish} after {passes}: {sequence.error or counted(len(positions), 'token')}"
        assert f"  request {sequence.request.id}, {now}" in lines
    owners, cache = [*state.cache.owners.values()], state.cache
    numbers = {"■": owners.count(1), "▣": sum(owner > 1 for owner in owners), "▤": len(cache.cached)}
    signs = pages_line(state).plain.split("  ")[1].removeprefix("pages ")
    assert {sign: signs.count(sign) for sign in numbers} == numbers and len(signs) == cache.fresh


@pytest.mark.parametrize("name", strategies.available())
def test_lines_show_what_a_state_holds_and_fit_a_terminal(name):
    for seed in range(3):
        trace, _ = recorded(name, seed)
        for state in trace.states():
            check(state)
        samples = [event for event in trace.events if isinstance(event, Samples)]
        for value in (trace, *trace.states(), *samples, *(each.plan for each in samples)):
            for line in str(value).splitlines():
                assert len(line) <= 80 and line.isprintable()
        for plan in [each.plan for each in samples]:
            reordered = [span for span in plan.spans if span.rows.positions]
            assert str(plan).count("in the order") == len(reordered)
            assert all(f"in the order {span.rows.positions[0]}" in str(plan) for span in reordered)
        lines, last = str(trace).splitlines(), trace.state
        counts = f": {len(last.running)} running, {len(last.waiting)} waiting, {counted(len(last.cache.owners), 'page')} held"
        assert lines[-1].endswith(counts) and lines[-1][:6].strip() == str(len(trace.events) - 1)


def test_a_plan_shows_the_rows_of_its_spans(session):
    plan, text = session.plan, str(session.plan).replace(",\n    ", ", ")
    for span, line in zip(plan.spans, text.splitlines()[1:], strict=True):
        start, stop, sampled = span.rows.start, span.rows.stop, span.wanted.sampled
        assert f"request {span.who.id}: feeds {start} to {stop - 1}, " in line and f"sees below {span.rows.end}" in line
        assert f"samples {len(sampled)}: {sampled[0]}" in line
        numbers = [int(part.split()[0]) for part in line.split(", ") if part.endswith(("queries", "final", "window"))]
        assert sum(numbers) == len(span.rows.tokens)


def test_every_kind_of_event_has_a_line():
    config = Config(Spec(mask_id=0, eos_ids=(1,), vocab_size=9), max_model_len=64, num_pages=4)
    trace = Trace(init(config, load("multi_bd")(block_size=4)))
    (waiting,) = add(trace.first, Request(7, (3, 4))).waiting
    events = {
        "add request 0 of 2 tokens": Add(Request(0, (7, 8))), "adopt request 2": Adopt(waiting, 2), "rebuild": Rebuild(),
        "fail request 0": Fail(0, "gone\x1b"), "abort request 2": Abort(2, "late"), "prune": Prune(),
        "grow to 5 pages": Grow(5),
    }  # fmt: skip
    for event in events.values():
        trace = trace.extended(event)
    title, *lines = str(trace).splitlines()
    assert title == "Trace of 7 events, 1 add, 1 adopt, 1 rebuild, 1 fail, 1 abort, 1 prune, 1 grow"
    assert [line[7:].partition(": ")[0] for line in lines] == [*events]
    failed = answer_title(*framed([*trace.states()][4].finished[0], config.spec))
    assert failed == "request 0, ended by error after 0 forward passes: gone\N{REPLACEMENT CHARACTER}"

"""The order of filling: what is drawn is what the states of the decode hold."""

import pytest

from dlstep import Request, SamplingParams, Spec
from dlstep.strategies.dreamon import DreamOn
from dlstep.testing.generators import EOS, MASK, PIECES, VOCABULARY
from dlstep.testing.harness import alone
from dlstep.views import filling_picture, stays

from ...helpers.shadow_llm import make_llm

REPLACES = "multi_bd_edit"
ASKED = 1  # id of the drawn request
REMASK = ("remdm", "running_confidence")


@pytest.fixture(params=["threshold", "quota", *REMASK, REPLACES])
def rule(request):
    """The rule of an answer, or a strategy that replaces tokens."""
    return request.param


@pytest.fixture
def trace(rule):
    """A trace of two requests; the second is drawn."""
    session = make_llm(rule if rule == REPLACES else "multi_bd").session()
    options = {} if rule == REPLACES else {"rule": rule} | ({"steps_per_block": 2} if rule == "quota" else {})
    session.submit("a prompt", SamplingParams(max_tokens=3))
    assert session.submit("a prompt", SamplingParams(max_tokens=20, ignore_eos=True, strategy_options=options)) == ASKED
    session.run()
    return session.trace


def test_a_stay_covers_exactly_the_states_between_its_forward_passes(trace, rule):
    found, seen = stays(trace, ASKED), set()
    for state in trace.states():
        sequence = state.find(ASKED)
        if sequence is None or sequence.steps in seen:
            continue
        seen.add(sequence.steps)
        start, step = len(sequence.request.prompt), sequence.steps
        blocks = [*sequence.progress.past, *sequence.progress.window]
        held = {
            p: t for block in blocks for p, t in enumerate(block.tokens, block.start) if start <= p < sequence.request.limit
        }
        masked = {position for block in sequence.progress.window for position in block.masked}
        expected = {p - start: t for p, t in held.items() if p not in masked}
        assert {s.offset: s.token for s in found if s.since <= step and (s.until is None or step < s.until)} == expected
    assert {stay.offset for stay in found if stay.until is None} == set(range(20))
    assert any(stay.until for stay in found) == (rule in (*REMASK, REPLACES))
    assert any(stay.replaced for stay in found) == (rule == REPLACES)


def test_a_token_stays_when_positions_before_it_are_added_or_removed():
    moves = 0
    for seed in range(30):
        params = SamplingParams(max_tokens=16, temperature=1.0, seed=seed)
        strategy = DreamOn(expand_token_id=3, initial_masks=8, delete_right=False)
        run = alone(Spec(MASK, (EOS,), VOCABULARY, pieces=PIECES), strategy, Request(0, (1, 2), params))
        found = sorted(stays(run.trace), key=lambda stay: stay.offset)
        assert tuple(stay.token for stay in found) == run.state.finished[0].answer
        assert [(stay.offset, stay.until) for stay in found] == [(offset, None) for offset in range(len(found))]
        replaced = [step.after.find(0).progress.replaced for step in run.steps]
        assert sorted(stay.since for stay in found) == [number for number, each in enumerate(replaced, 1) if not each]
        moves += sum(map(bool, replaced))
    assert moves > 10


def test_the_picture_has_a_mark_for_everything_that_happened(trace):
    picture, found = filling_picture(trace, "<one> & $more", request=ASKED), stays(trace, ASKED)
    (axes,) = picture.figure.axes
    cells = axes.images[0].get_array().tolist()
    for row, line in enumerate(cells, start=1):
        kept = {stay.offset for stay in found if max(stay.since, 1) <= row and (stay.until is None or row < stay.until)}
        made = {stay.offset for stay in found if stay.since == row}
        assert [bool(value) + (value > 0.5) for value in line] == [(at in kept) + (at in made) for at in range(20)]
    marks = [tuple(line.get_xydata()[0]) for line in axes.lines if line.get_marker() == "x"]
    assert marks == [(stay.offset, stay.until) for stay in found if stay.until and not stay.replaced]
    edges = [line.get_xdata()[0] + 0.5 for line in axes.lines if line.get_marker() != "x"]
    sequence = trace.state.finished[ASKED]
    starts = {block.start - len(sequence.request.prompt) for block in (*sequence.progress.past, *sequence.progress.window)}
    assert {*edges} == starts
    svg = picture._repr_svg_()
    assert "&lt;one&gt; &amp; $more" in svg and "forward pass" in svg

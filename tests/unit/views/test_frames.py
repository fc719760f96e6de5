"""Frames of a decode: after each forward pass, the folded frames equal the folded updates."""

import json

import pytest
from hypothesis import given, strategies as st

from dlstep import strategies
from dlstep.core import (
    Abort,
    Add,
    Adopt,
    Fail,
    Prune,
    Samples,
    SamplingParams,
    Trace,
    Update,
    updates,
)
from dlstep.core.lifecycle import apply
from dlstep.testing.generators import cases
from dlstep.testing.harness import run_case
from dlstep.views.frames import Feeding, Frame, FrameEncoder, FrameRecorder, recording

from ...helpers.recorded import recorded
from ...helpers.serving import tiny_llm


class Known:
    """An answer as the fold of its updates, with its stages: after each forward pass and at its end."""

    def __init__(self, sequence):
        self.prompt, self.nfe = len(sequence.request.prompt), sequence.nfe
        self.tokens, self.chances, self.stages = [], [], []

    def take(self, update):
        self.tokens += update.tokens
        self.chances += update.probabilities
        if update.sequence.nfe == self.nfe and update.finish_info is None:
            return  # it has been admitted, or has lost its pages
        self.nfe = update.sequence.nfe
        window = list(zip(*update.window, strict=True))
        reason = None if update.finish_info is None else update.finish_info.reason
        self.stages.append(([*self.tokens], [*self.chances], window, update.sequence.steps, update.sequence.nfe, reason))


def added(state, event):
    """The sequence that an event has added to a state."""
    return state.find(event.request.id if isinstance(event, Add) else event.id)


def by_updates(trace):
    """The fold of the updates between every two states of a trace, by sequence number."""
    state, found = trace.first, {}
    first = [sequence for sequence, _ in state.sequences()]

    def opened(sequence):
        known = Known(sequence)
        over = sequence in first and sequence.finish is not None
        if sequence.nfe or over:  # no update reports what was settled before
            known.tokens, known.chances = [*sequence.answer], [*sequence.probabilities]
        if over:  # it ended before the trace begins
            known.take(Update(sequence, known.prompt + len(sequence.answer)))
        found[sequence.request.seq_id] = known

    for sequence in first:
        opened(sequence)
    for event in trace.events:
        before, state = state, apply(state, event)
        if isinstance(event, Add | Adopt):
            opened(added(state, event))
        if not isinstance(event, Prune):
            for update in updates(before, state):
                found[update.sequence.request.seq_id].take(update)
    return dict(sorted(found.items()))


def by_frames(frames):
    """The stages of JSON frames, by the simplest possible fold."""
    tokens, chances, found = [], [], []
    for seq, frame in enumerate(frames, frames[0]["seq"]):
        assert frame["seq"] == seq
        for place, token, chance, text in frame["tokens"]:
            assert place == len(tokens) and isinstance(text, str)
            tokens.append(token)
            chances.append(chance)
        assert frame["settled"] == len(tokens)
        assert [cell[0] for cell in frame["cells"]] == [*range(len(tokens), len(tokens) + len(frame["cells"]))]
        window = [(token, chance) for _, token, chance, _ in frame["cells"]]
        assert all((token is None) == (text is None) for _, token, _, text in frame["cells"])
        found.append(([*tokens], [*chances], window, frame["step"], frame["nfe"], frame.get("finish_reason")))
    return found[1:]


def check(trace):
    """The frames of a trace are its updates, and JSON holds them."""
    parsed = json.loads(json.dumps(recording(trace), allow_nan=False))
    assert parsed["dlstep_recording"] == 1
    known = by_updates(trace)
    assert [int(run["head"]["request"]) for run in parsed["runs"]] == [*known]
    for run, each in zip(parsed["runs"], known.values(), strict=True):
        assert by_frames(run["frames"]) == each.stages
        assert run["frames"][0]["head"] == run["head"] and run["head"]["prompt_tokens"] == each.prompt
        assert run["ended"] == ("finish_reason" in run["frames"][-1])


@pytest.mark.parametrize("name", strategies.own())
@given(data=st.data())
def test_folded_frames_are_folded_updates(name, data):
    case = data.draw(cases(strategies.load(name), pinned=data.draw(st.booleans())))
    check(run_case(case).trace)


@pytest.mark.parametrize("name", strategies.own())
def test_so_they_are_with_events_of_every_kind_and_from_the_middle_on(name):
    for seed in range(4):
        trace, _ = recorded(name, seed)
        check(trace)
        half = len(trace.events) // 4
        check(Trace(Trace(trace.first, trace.events[:half]).state, trace.events[half:]))


def watched(trace):
    """Every frame of a forward pass, with the samples that made it and the state after it."""
    state, recorder, found = trace.first, FrameRecorder(), []
    for event in trace.events:
        state = apply(state, event)
        if isinstance(event, Add | Adopt):
            recorder.open(added(state, event))
        for sequence, frame in recorder.record(event, state):
            if isinstance(event, Samples):
                found.append((state, event, sequence, frame))
            else:
                assert isinstance(event, Abort | Fail) and frame.fed is None and frame.finish_info is not None
    assert not recorder._answers
    return found


@pytest.mark.parametrize("name", strategies.own())
def test_a_frame_tells_its_part_of_the_plan(name):
    lost = best = 0
    for seed in range(6):
        gone = set()
        trace, _ = recorded(name, seed)
        for state, samples, sequence, frame in watched(trace):
            plan, fed, seq_id = samples.plan, frame.fed, sequence.request.seq_id
            (span,) = [span for span in plan.spans if span.who.seq_id == seq_id]
            assert (fed.rows, fed.start, fed.sampled) == (len(span.rows.tokens), span.rows.start, span.wanted.sampled)
            assert (fed.batch_requests, fed.batch_rows) == (len(plan.spans), sum(len(span.rows.tokens) for span in plan.spans))
            assert fed.pages >= -(-max(fed.stored, 1) // state.config.page_size) or sequence.finish_info is not None
            if sequence.finish_info is None:
                assert (fed.pages, fed.stored) == (len(sequence.pages), sequence.storage.stored)
            gone |= {*plan.preemptions}
            lost += fed.preempted
            assert fed.preempted or seq_id not in gone
            gone.discard(seq_id)
            rows = samples.spans[plan.spans.index(span)]
            assert fed.best_ids == rows.best_ids
            best += bool(fed.best_ids)
    assert lost, "no request lost its pages"
    assert bool(best) == (name in ("dmax", "diffusion_gemma"))


def test_rivals_are_at_the_offset_that_they_were_sampled_for():
    fed = Feeding(4, 8, 0, 8, (10, 12), 3, False, 1, 4, best_ids=(1, 2, 3, 4), best_probabilities=(0.5, 0.25, 0.75, 0.125))
    told = FrameEncoder(0, 10, (b"", b"a", b"b", b"\xc3", b"d")).encode(Frame(1, 1, 1, 0, (), (), fed=fed))
    assert told["rivals"] == {"0": [[1, 0.5, "a"], [2, 0.25, "b"]], "2": [[3, 0.75, "\ufffd"], [4, 0.125, "d"]]}
    assert (told["plan"]["start"], told["plan"]["sampled"], told["plan"]["stored"]) == (-2, [0, 2], 8)


@pytest.mark.parametrize("regex", [r"\d+[+-]\d+=\d+ shells\.", "ab{3}", None])
def test_masked_cells_have_the_number_of_ids_that_the_next_plan_allows(regex):
    session = tiny_llm().session()
    session.submit("Max has 53 shells. Later Max buys 39 more.", SamplingParams(max_tokens=24, regex=regex))
    plans = []
    while not session.state.done:
        plans.append(session.plan)
        session.step()
    (run,) = recording(session.trace)["runs"]
    prompt = run["head"]["prompt_tokens"]
    for plan, frame in zip(plans, run["frames"][:-1], strict=True):
        (span,) = plan.spans
        masked = [str(cell[0]) for cell in frame["cells"] if cell[1] is None]
        assert [*frame["allowed"]] == (masked if regex else [])
        for position, mask in zip(span.wanted.sampled, span.wanted.masks, strict=bool(span.wanted.masks)):
            assert frame["allowed"].get(str(position - prompt), len(mask.ids())) == len(mask.ids())

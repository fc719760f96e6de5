"""Differences of states and traces: false exactly for equal values, complete enough to go from one to the other, and short."""

from dataclasses import replace
from itertools import pairwise, product

import pytest

from dlstep import strategies
from dlstep.core import (
    Config,
    Plan,
    Rebuild,
    Request,
    Samples,
    SamplingParams,
    SequenceState,
    Spec,
    State,
    Trace,
    add,
    commit,
    init,
    schedule,
    with_options,
)
from dlstep.rules.quota import Quota
from dlstep.strategies import load
from dlstep.testing import ShadowDriver
from dlstep.views import diff
from dlstep.views.differences import Move, Position

from ...helpers.recorded import recorded

NAMES = strategies.available()
SPEC = Spec(mask_id=49, eos_ids=(48,), vocab_size=50, pieces=tuple(b"%c" % (32 + token) for token in range(50)))


def tokens(sequence: SequenceState) -> dict[int, int]:
    """The unmasked tokens of an answer, read position by position."""
    blocks = [*sequence.past, *sequence.window]
    masked = {position for block in sequence.window for position in block.masked}
    stop = min(max(block.end for block in blocks), sequence.limit) if blocks else 0
    answered = range(len(sequence.request.prompt), stop)
    return {position: sequence.tokens(position, position + 1)[0] for position in answered if position not in masked}


def requests(state: State) -> dict[tuple[int, int], SequenceState]:
    """The requests of a state by sequence number and id."""
    found = (*state.running, *state.waiting, *state.finished.values())
    return {(sequence.request.seq_id, sequence.id): sequence for sequence in found}


def check_text(value: object) -> None:
    """Lines of `str` fit a terminal and hold nothing that it would act on."""
    for line in str(value).splitlines():
        assert len(line) <= 80 and line.isprintable(), line


def check_difference(old: State, new: State) -> None:
    """Positions lead from one state's tokens to the other's, counts are those of the states, others are named."""
    found = diff(old, new)
    assert bool(found) == (old != new)
    check_text(found)
    before, after = requests(old), requests(new)
    diffs = {(request.seq_id, request.id): request for request in found.requests}
    assert {key for key, request in diffs.items() if request.fate == "added"} == after.keys() - before.keys()
    assert {key for key, request in diffs.items() if request.fate == "removed"} == before.keys() - after.keys()
    for key, sequence in after.items():
        known = tokens(before[key]) if key in before else {}
        if key in diffs:
            for change in diffs[key].positions:
                assert known.get(change.position) == change.old != change.new
                known = {**known, change.position: change.new}
            counts = {move.name: move.new for move in diffs[key].moves}
            assert counts.get("settled", sequence.settled) == sequence.settled
            assert counts.get("forward passes", sequence.nfe) == sequence.nfe
            assert counts.get("pages", len(sequence.pages)) == len(sequence.pages)
        else:
            assert sequence == before[key]
        assert {position: token for position, token in known.items() if token is not None} == tokens(sequence)


@pytest.mark.parametrize("name", NAMES)
def test_a_difference_leads_from_one_state_to_another(name: str) -> None:
    for seed in range(4):
        trace, _ = recorded(name, seed)
        states = [*trace.states()]
        for old, new in pairwise(states):
            check_difference(old, new)
        some = states[:: max(1, len(states) // 6)]
        for old, new in product(some, some):
            check_difference(old, new)


@pytest.mark.parametrize("name", NAMES)
def test_short_texts_fit_a_terminal(name: str) -> None:
    for seed in range(4):
        trace, _ = recorded(name, seed)
        check_text(trace)
        assert str(trace).startswith(f"Trace of {len(trace.events)} events: ")
        for event, state in zip(trace.events, list(trace.states())[1:], strict=True):
            check_text(state)
            assert str(state).startswith(f"State at step {state.step}: {len(state.running)} running")
            if isinstance(event, Samples):
                check_text(event)
                check_text(event.plan)
                assert str(event.plan).startswith(f"Plan of step {event.plan.step}: ")
                assert str(event).startswith(f"Samples of step {event.plan.step}: ")


def test_fields_that_nothing_else_shows_are_named() -> None:
    """Each field of a state, changed alone, is part of the difference."""
    state = start()
    (sequence,) = state.waiting
    other = replace(sequence.request, params=replace(sequence.request.params, temperature=0.5))
    waiting = state.waiting.remove([0]).push_front([sequence.with_request(other)])
    for changed, name in (
        (replace(state, cache_digest=5), "KV cache"),
        (replace(state, releases=(3,)), "releases"),
        (replace(state, next_seq_id=9), "next_seq_id"),
        (replace(state, ended=state.ended.push_front(5)), "order of endings"),
        (replace(state, cache=replace(state.cache, fresh=3)), "pages"),
        (replace(state, config=replace(state.config, spec=replace(SPEC, head_shift=1))), "spec"),
    ):
        assert diff(state, changed).others == (name,)
        assert str(diff(state, changed)) == f"other {name}"
    (found,) = diff(state, replace(state, waiting=waiting)).requests
    assert (found.fate, found.others) == ("continued", ("params",))
    block = sequence.window[0]
    surer = replace(block, probabilities=tuple([1.0] * len(block.probabilities)))
    blocks = state.waiting.remove([0]).push_front([replace(sequence, window=(surer, *sequence.window[1:]))])
    (found,) = diff(state, replace(state, waiting=blocks)).requests
    assert (found.positions, found.moves, found.others) == ((), (), ("window",))
    assert str(diff(state, replace(state, waiting=blocks))) == "request 0: other window"
    assert diff(state, replace(state, config=replace(state.config, num_pages=8))).moves == (Move("num_pages", 16, 8),)
    options = with_options(state.strategy, {"accept_threshold": 0.25})
    assert diff(state, replace(state, strategy=options)).moves == (Move("accept_threshold", 0.9, 0.25),)
    other_rule = replace(state.strategy, rule=Quota(2))
    assert diff(state, replace(state, strategy=other_rule)).moves == (Move("rule", "Threshold", "Quota"),)
    decoded = state.waiting.remove([0]).push_front([sequence.with_strategy(options)])
    (found,) = diff(state, replace(state, waiting=decoded)).requests
    assert (found.positions, found.moves, found.others) == ((), (), ("strategy",))


def start() -> State:
    """One request on a small engine."""
    config = Config(SPEC, page_size=4, num_pages=16, max_model_len=64)
    return add(init(config, load("multi_bd")(block_size=4, buffer_size=2)), Request(0, (5, 6), SamplingParams(max_tokens=9)))


def answered(state: State, plan: Plan, token: int, probability: float) -> State:
    """The state after every sampled position got the same token."""
    samples = ShadowDriver(4, 16, SPEC).run(plan)
    rows = tuple(
        replace(r, tokens=(token,) * len(r.tokens), probabilities=(probability,) * len(r.tokens)) for r in samples.rows
    )
    return commit(state, Samples(plan, rows))


def test_texts_of_a_step() -> None:
    state = start()
    after = answered(state, schedule(state), 33, 0.99)
    found = diff(state, after).find(0)
    assert found is not None
    assert found.positions == tuple(Position(position, None, 33) for position in range(2, 8))
    assert [change.kind for change in found.positions] == ["unmasked"] * 6
    assert str(diff(state, after)).splitlines()[-1] == "  2 to 7 unmasked: AAAAAA"
    back = diff(after, state).find(0)
    assert back is not None and {change.kind for change in back.positions} == {"remasked"}
    other = answered(state, schedule(state), 34, 0.99)
    assert str(diff(after, other)) == "request 0: 6 changed\n  2 to 7 changed: AAAAAA -> BBBBBB"


@pytest.mark.parametrize("name", NAMES)
def test_traces_differ_at_the_event_that_was_changed(name: str) -> None:
    trace, state = recorded(name, 1)
    assert not diff(trace, trace) and str(diff(trace, trace)) == f"no difference in {len(trace.events)} events"
    for place in range(0, len(trace.events), 3):
        short = Trace(trace.first, trace.events[:place])
        found = diff(trace, short)
        assert found and found.same == place and found.new == "" and found.old
        assert found.end == diff(state, short.state)
        check_text(found)
        event = trace.events[place]
        if isinstance(event, Samples) and any(rows.tokens for rows in event.rows):
            rows = tuple(replace(r, probabilities=tuple(p / 2 for p in r.probabilities)) for r in event.rows)
            if rows != event.rows:
                other = Trace(trace.first, (*trace.events[:place], Samples(event.plan, rows)))
                found = diff(trace, other)
                assert found.same == place and "probability" in found.old != found.new
        longer = Trace(trace.first, (*trace.events[:place], Rebuild()))
        if not isinstance(event, Rebuild):
            assert diff(trace, longer).same == place and "rebuild" in diff(trace, longer).new
            check_text(diff(trace, longer))


def test_traces_that_begin_differently_share_no_event() -> None:
    trace, _ = recorded("multi_bd", 1)
    other = Trace(replace(trace.first, cache_digest=7))
    found = diff(trace, other)
    assert found and found.same == 0 and found.there.others == ("KV cache",)
    assert found.place == "the first states differ"


@pytest.mark.parametrize("other", [None, 5, "a state", (), State])
def test_a_value_of_another_kind_is_refused(other: object) -> None:
    trace, state = recorded("multi_bd", 0)
    for value, kind in ((state, "State"), (trace, "Trace")):
        with pytest.raises(ValueError, match=f"a {kind} can only be compared with another {kind}, got "):
            diff(value, other)
    with pytest.raises(ValueError, match="a State can only be compared with another State, got "):
        diff(state, trace)

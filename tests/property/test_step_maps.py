"""Step maps equal what the trace says, whatever happens to a decode, and change no answer."""

# What a request did not ask for is None.
# pyright: reportOptionalMemberAccess=false, reportOperatorIssue=false, reportArgumentType=false

import json
import os
from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from dlstep import StepMap, Trace, strategies
from dlstep.core.step_map import step_map_of
from dlstep.core.trace import from_json, to_json
from dlstep.rules.remdm import ReMDM
from dlstep.strategies.d2f import D2F
from dlstep.strategies.dual_cache import DualCache
from dlstep.strategies.multi_bd import MultiBD
from dlstep.testing.generators import cases
from dlstep.testing.harness import answered_alone, disturbed, outcomes, run_case

KINDS = [*map(strategies.load, strategies.available()), MultiBD(rule=ReMDM()), D2F(rule=ReMDM()), DualCache(rule=ReMDM())]
MANY = settings(max_examples=200) if os.environ.get("HYPOTHESIS_PROFILE") == "seeds" else settings()


def asking(case, choose=lambda request: True):
    chosen = [replace(request, params=replace(request.params, step_map=choose(request))) for request in case.requests]
    return replace(case, requests=tuple(chosen))


def from_trace(run):
    """Return the changes of each request by its id: step, offset, token, and the numbers of the samples."""
    found = {}
    for step in run.steps:
        rows = Trace(step.before, (step.samples,)).rows()
        for (span, before, after), samples in zip(step.served(), step.samples.spans, strict=True):
            kept = [change for change in found.get(span.who.id, []) if change[0] < before.steps]  # others were lost
            best, width = step.plan.sample_spec.best, 3 + 2 * step.plan.sample_spec.best
            for row in rows:
                if row["request"] != span.who.id:
                    continue
                numbers, position = (None, None, None), row["offset"] + len(before.request.prompt)
                if row["token_id"] is not None and position in span.wanted.sampled:
                    at = span.wanted.sampled.index(position)
                    ids = [samples.tokens[at], *samples.best_ids[at * best : (at + 1) * best]]
                    if row["token_id"] in ids:
                        own, place = samples.policy[at * width : (at + 1) * width], ids.index(row["token_id"])
                        numbers = own[1 + place], own[1 + len(ids) + place], own[0]
                kept.append((after.steps - 1, row["offset"], row["token_id"], *numbers))
            found[span.who.id] = kept
    return found


@pytest.mark.parametrize("kind", KINDS, ids=str)
@MANY
@given(data=st.data())
def test_step_maps_equal_the_trace(kind, data):
    run = run_case(asking(data.draw(cases(kind, forks=True))))
    expected, spec = from_trace(run), run.case.config.spec
    assert from_json(to_json(run.state)) == run.state
    for request_id, sequence in run.state.finished.items():
        own = step_map_of(sequence, spec)
        assert own.suffix_ids == sequence.request.params.suffix and own.prompt_ids == sequence.request.prompt
        assert StepMap.from_json(json.loads(json.dumps(own.to_json()))) == own
        cells = {position - len(own.prompt_ids): token for position, token in sequence.unmasked_tokens.items()}
        assert {at: token for at, token in enumerate(own.token_ids) if token is not None} == cells
        assert own.token_ids[: len(sequence.answer)] == sequence.answer
        *_, (last, _) = own.played()
        assert tuple(getattr(cell, "token_id", cell) for cell in last) == own.token_ids
        if any(change.masks is not None for change in own.changes):
            continue  # positions moved, which the rows of a trace do not say
        changes = [(each.step, each.offset, each.token_id, *each_numbers(each)) for each in own.changes]
        assert changes == expected.get(request_id, [])


def each_numbers(change):
    return change.log_probability, change.plain_log_probability, change.entropy


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS, ids=str)
@MANY
@given(data=st.data())
def test_played_maps_feed_what_passes_were_fed(kind, data):
    run = run_case(asking(data.draw(cases(kind))))
    fed = {}
    for step in run.steps:
        for span, before, after in step.served():
            if span.wanted.sampled and before.finish_info is None and after.finish != "error":
                length = len(before.request.prompt)
                cells = [(at - length, token if known else None) for at, token, _, known in before.answer_cells()]
                fed[span.who.id, after.steps - 1] = cells
    for request_id, sequence in run.state.finished.items():
        for cells, changes in [*step_map_of(sequence, run.case.config.spec).played()][:-1]:
            for offset, token in fed[request_id, changes[0].step]:
                assert getattr(cells[offset], "token_id", cells[offset]) == token


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS, ids=str)
@MANY
@given(data=st.data())
def test_step_maps_change_no_answer_and_survive_preemption(kind, data):
    case = data.draw(cases(kind, aborts=False))
    odd = asking(case, lambda request: request.id % 2 == 1)
    plain, mixed = run_case(asking(case, lambda request: False)), run_case(odd)
    assert outcomes(mixed.state) == outcomes(plain.state)
    for step, other in zip(plain.steps, mixed.steps, strict=True):
        assert [span.rows for span in step.plan.spans] == [span.rows for span in other.plan.spans]
    assert all("policy" not in step.plan.sample_spec.statistics for step in plain.steps)
    spared = set() if case.strategy.exact and not case.rebuilds else disturbed(mixed) | set(range(9 * bool(case.rebuilds)))
    for request in odd.requests:
        sequence = mixed.state.finished[request.id]
        own = step_map_of(sequence, case.config.spec)
        assert (own is not None) == request.params.step_map and len(sequence.passes) == sequence.steps * (own is not None)
        if own is not None and sequence.finish != "rejected" and (case.strategy.exact or request.id not in spared):
            alone = step_map_of(answered_alone(case.config.spec, case.strategy, request), case.config.spec)
            assert own == alone

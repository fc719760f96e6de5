"""Traces with events of every kind; and ids that are used again while a forward of their first owner is under way."""

# Values of other types are given on purpose.
# pyright: reportArgumentType=false, reportOptionalMemberAccess=false

import pickle
import random
import re
from collections import Counter
from dataclasses import replace

import pytest

from dlstep import strategies
from dlstep.core import (
    Add,
    ReplayDiverged,
    Request,
    Samples,
    SamplingParams,
    Trace,
    abort,
    add,
    commit,
    fail,
    init,
    prune,
    schedule,
    with_options,
)
from dlstep.core.trace import field_names, from_json, to_json
from dlstep.rules.remdm import ReMDM
from dlstep.testing.harness import check_ownership, shadow

from ...helpers.decoding import by_driver, decoded, with_requests
from ...helpers.recorded import recorded, setting

KINDS = ("Add", "Adopt", "Abort", "Fail", "Rebuild", "Prune", "Grow", "Samples")


@pytest.mark.full
@pytest.mark.parametrize("name", strategies.available())
def test_a_trace_of_every_event_folds_saves_loads_and_replays(name, tmp_path):
    counts = Counter()
    for seed in range(8):
        trace, state = recorded(name, seed)
        counts.update(type(event).__name__ for event in trace.events)
        path = tmp_path / f"{seed}.jsonl"
        trace.save(path)
        loaded = Trace.load(path)
        assert loaded == trace == pickle.loads(pickle.dumps(trace))
        assert trace.state == trace.replay() == loaded.state == loaded.replay() == state
        assert [*trace.states()][-1] == state
        again = tmp_path / "again.jsonl"
        loaded.save(again)
        assert again.read_bytes() == path.read_bytes()
        for between in loaded.states():
            check_ownership(between)
    assert set(counts) == set(KINDS)


@pytest.mark.parametrize("name", strategies.available())
@pytest.mark.parametrize("end", ["abort", "fail"])
@pytest.mark.parametrize("waited", [0, 1, 2, 4])
def test_request_never_gets_the_samples_of_another_one_with_its_id(name, end, waited):
    config, value = setting(name, random.Random(waited))
    params = SamplingParams(max_tokens=12, ignore_eos=True)
    old, mate = Request(0, (1, 2, 3), params), Request(1, (7, 8), params)
    new = Request(0, (4, 5, 6, 9), replace(params, temperature=0.5))
    runs = [decoded(with_requests(config, value, [each]), by_driver(shadow(config, value))) for each in (new, mate)]
    expected = {number: run.finished[number].answer for number, run in enumerate(runs)}
    state, device = with_requests(config, value, [old, mate]), shadow(config, value)
    for _ in range(waited):
        state = commit(state, device.run(schedule(state)))
    samples = device.run(schedule(state))
    assert 0 in [span.who.id for span in samples.plan.spans], "the plan has no span of request 0"
    state = prune(abort(state, 0) if end == "abort" else fail(state, 0, "gone"))
    state = commit(add(state, new), samples)
    fresh = state.find(0)
    assert (fresh.nfe, fresh.request.prompt, fresh.answer) == (0, new.prompt, ())
    while not state.done:
        check_ownership(state)
        state = commit(state, device.run(schedule(state)))
    assert {number: done.answer for number, done in state.finished.items()} == expected


def values_in(data):
    """Yield the data of each value of a class of the core."""
    if isinstance(data, dict) and str(data.get("class")).startswith("dlstep.core:"):
        yield data
    for part in data if isinstance(data, list) else [*data.values()] if isinstance(data, dict) else ():
        yield from values_in(part)


def test_a_field_of_another_type_is_refused_by_its_name(tmp_path):
    trace, _ = recorded("multi_bd", 1)
    refused = set()
    for data in map(to_json, (*trace.states(), *trace.events)):
        for value in values_in(data):
            cls, given = value["class"], dict(value)
            for name in field_names(from_json(value)):
                if f"{cls}.{name}" not in refused:
                    value[name] = {"class": "dlstep.core:Prune"}
                    with pytest.raises(ValueError, match=name):
                        from_json(data)
                    refused.add(f"{cls}.{name}")
                    value.clear()
                    value.update(given)
    assert len(refused) > 60 and {"dlstep.core:Cache.owners", "dlstep.core:Progress.past"} <= refused
    for forged, name in (
        (Trace(replace(trace.first, config=5)), "config: must be a Config, got 5"),
        (Trace(replace(trace.first, cache=trace.first.config)), "cache: must be a Cache"),
        (Trace(trace.first, (trace.first,)), "events: must be"),
        (Trace(trace.events[0]), "first: must be a State"),
    ):
        forged.save(tmp_path / "forged.jsonl")
        with pytest.raises(ValueError, match=f"forged.jsonl.*{re.escape(name)}"):
            Trace.load(tmp_path / "forged.jsonl")


def test_a_changed_plan_diverges():
    trace, _ = recorded("multi_bd", 0, choices=20)
    number, event = next((n, event) for n, event in enumerate(trace.events) if isinstance(event, Samples))
    spec = event.plan.sample_spec
    ties = replace(spec, ties="lowest" if spec.ties == "highest" else "highest")
    other = replace(event, plan=replace(event.plan, sample_spec=ties))
    with pytest.raises(ReplayDiverged, match=f"event {number}, "):
        Trace(trace.first, (*trace.events[:number], other)).replay()


@pytest.mark.parametrize("name", strategies.available())
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_rows_of_a_trace_add_up_to_its_answers(name, seed):
    config, value = setting(name, random.Random(seed))
    if name == "multi_bd":
        value = with_options(value, {"rule": ReMDM(steps_per_block=3)})
    trace, device = Trace(init(config, value)), shadow(config, value)
    for request_id, prompt in enumerate([(1, 2, 3), (7, 8)]):
        trace = trace.extended(Add(Request(request_id, prompt, SamplingParams(max_tokens=12, ignore_eos=True))))
    while not trace.state.done:
        trace = trace.extended(device.run(schedule(trace.state)))
    shown = {}
    for row in trace.rows():
        key, cell = (row["request"], row["offset"]), (row["token_id"], row["probability"])
        assert shown.get(key) != cell and (row["token_id"] is not None or key in shown), "each row is a change"
        shown[key] = cell
    for sequence in trace.state.finished.values():
        cells = [shown[sequence.request.id, offset] for offset in range(len(sequence.answer))]
        assert len(cells) == 12 or name == "dreamon"
        assert cells == list(zip(sequence.answer, sequence.probabilities, strict=True))
    steps = [row["step"] for row in trace.rows()]
    assert steps == sorted(steps) and set(steps) <= set(range(trace.state.step))
    if name == "multi_bd":
        assert any(row["token_id"] is None for row in trace.rows())

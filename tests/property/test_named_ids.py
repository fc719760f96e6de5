"""Named ids: laws of strategies whose rule names some, and what the core says of ids that do not fit."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from dlstep.core import (
    PLAIN,
    Config,
    DlstepError,
    Plan,
    Request,
    Rows,
    Samples,
    SamplesMismatch,
    SamplingParams,
    Span,
    Spec,
    State,
    Strategy,
    Trace,
    Wants,
    add,
    commit,
    init,
    schedule,
)
from dlstep.core.codec import from_json, to_json
from dlstep.core.plan import next_line
from dlstep.strategies.dual_cache import DualCache
from dlstep.strategies.multi_bd import MultiBD
from dlstep.testing import ScriptedDriver, ShadowDriver
from dlstep.testing.generators import EOS, MASK, VOCABULARY
from dlstep.testing.laws import (
    LAWS,
    Law,
    batch_is_its_members,
    functions,
    overrides,
    progress,
    spans_are_sound,
    traces,
    transparency,
)
from dlstep.testing.scripted import named_row, sample_row

from ..helpers.naming import Loyal, Said

SPEC = Spec(MASK, (EOS,), VOCABULARY)
CONFIG = Config(SPEC, page_size=4, num_pages=64, max_model_len=64, max_num_batched_tokens=256, max_num_reqs=8)
# Those that could tell named ids from none; `make night` holds the rule to all.
FEW = (functions, spans_are_sound, progress, transparency, batch_is_its_members, traces, overrides)
CHOSEN = LAWS if os.environ.get("HYPOTHESIS_PROFILE") in ("seeds", "night") else FEW
CARRIERS = (MultiBD(rule=Loyal()), DualCache(rule=Loyal()), DualCache(cache="none", rule=Loyal()))
ASKED = SamplingParams(max_tokens=12, ignore_eos=True)


@pytest.mark.parametrize("value", CARRIERS, ids=["grid", "canvas, dual", "canvas"])
@pytest.mark.parametrize("law", CHOSEN, ids=lambda law: law.__name__)
@given(data=st.data())
def test_law(law: Law, value: Strategy, data: st.DataObject) -> None:
    law(value, data)


def rows_of(span: Span) -> Rows:
    """Row of position p: token p, of probability 0.5; what is named has a probability of its position and place."""
    width = len(span.named) // len(span.wanted)
    named = [(position + place / 10) / 100 for position in span.wanted for place in range(width)]
    return Rows(span.wanted, (0.5,) * len(span.wanted), named_probabilities=tuple(named))


def spans_of(strategy: Strategy, driver: ScriptedDriver, count: int) -> list[Span]:
    """The first spans of a request."""
    state, found = add(init(CONFIG, strategy), Request(0, (1, 2, 3, 4), ASKED)), list[Span]()
    for _ in range(count):
        plan = schedule(state)
        found += plan.spans
        state = commit(state, driver.run(plan))
    return found


@pytest.mark.parametrize("carrier", [MultiBD(4, 2), DualCache(4)], ids=["grid", "canvas"])
def test_ids_are_named_for_each_wanted_position_in_order(carrier: Strategy) -> None:
    """Of the network's answers, which stay the same, all are named in the forward after."""
    strategy = replace(carrier, rule=Loyal(1.0))
    first, second, third, *_ = (span for span in spans_of(strategy, ScriptedDriver(rows_of), 4) if span.wanted)
    assert first.named == (-1, -1) * len(first.wanted)
    known = [position for position in second.wanted if position in first.wanted]
    assert second.named[: 2 * len(known)] == tuple(each for position in known for each in (position, position + 1))
    assert second.named[2 * len(known) :] == (-1, -1) * (len(second.wanted) - len(known))
    assert len(third.named) == 2 * len(third.wanted)


def test_a_rule_reads_the_probabilities_of_its_own_rows() -> None:
    """Two blocks are open; what is named at position 8 and above is probable, which the second block begins with."""

    def rows(span: Span) -> Rows:
        named = tuple(0.9 * (position >= 8 and place == 0) for position in span.wanted for place in range(2))
        return Rows(span.wanted, (0.5,) * len(span.wanted), named_probabilities=named)

    spans = spans_of(MultiBD(4, 2, rule=Loyal(0.5)), ScriptedDriver(rows), 4)
    both = next(index for index, span in enumerate(spans) if 8 in span.wanted)
    assert {8, 9, 10, 11} <= set(spans[both + 1].wanted)
    assert not {8, 9, 10, 11} & set(spans[both + 2].wanted)
    assert set(spans[both + 2].wanted) & {4, 5, 6, 7}


def test_a_rule_that_names_nothing_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Loyal, "named", lambda *_: pytest.fail("asked for ids"))
    for carrier in (MultiBD(4, 2), DualCache(4)):
        spans = spans_of(replace(carrier, rule=Loyal(names=False)), ScriptedDriver(rows_of), 5)
        assert all(span.named == () for span in spans)


def plan_of(named: tuple[int, ...], wants: Wants) -> Plan:
    state = add(init(CONFIG, MultiBD(4, 1)), Request(0, (1, 2, 3, 4), ASKED))
    plan = schedule(state)
    (span,) = plan.spans
    assert len(span.wanted) == 4
    return replace(plan, spans=(replace(span, named=named),), wants=wants)


def answered(plan: Plan, *named: float) -> Samples:
    return Samples(plan, (Rows((1,) * 4, (0.5,) * 4, named_probabilities=named),))


def test_samples_have_a_probability_for_each_named_id() -> None:
    plan = plan_of((1, 2) * 4, Wants(named=2))
    assert answered(plan, *(0.1,) * 8).rows[0].named_probabilities == (0.1,) * 8
    for count in (0, 4, 7, 9):
        with pytest.raises(SamplesMismatch, match=f"step 0, request 0: 8 named_probabilities were wanted, {count} came back"):
            answered(plan, *(0.1,) * count)
    assert answered(plan_of((1,) * 4, Wants(named=2)), *(0.1,) * 4).rows  # of a request whose rule names fewer
    assert answered(plan_of((), Wants(named=2))).rows
    for named, wants in (((1,) * 3, Wants(named=2)), ((1,) * 12, Wants(named=2)), ((1,) * 4, Wants(best=0, ties="lowest"))):
        with pytest.raises(
            DlstepError, match=rf"request 0: {len(named)} ids are named for 4 wanted positions; .*named={wants.named}"
        ):
            answered(plan_of(named, wants), *(0.1,) * len(named))


def test_wants_cover_no_more_names_than_they_have() -> None:
    assert Wants(named=2).covers(Wants(named=2)) and Wants(named=2).covers(PLAIN)
    assert not Wants(named=1).covers(Wants(named=2))
    assert not PLAIN.covers(Wants(named=1))


def test_trimmed_rows_keep_what_was_named() -> None:
    rows = Rows((1, 2), (0.5, 0.5), best_ids=(1, 2), best_probabilities=(0.5, 0.5), named_probabilities=(0.1, 0.2))
    assert rows.trimmed(Wants(best=1, named=2), Wants(named=1)) == replace(rows, best_ids=(), best_probabilities=())


def test_a_request_may_name_less_than_its_mates_but_not_more() -> None:
    own = replace(ASKED, strategy_options={"names": False})
    state = add(init(CONFIG, MultiBD(4, 2, rule=Loyal())), Request(0, (1, 2, 3, 4), ASKED))
    state = add(state, Request(1, (1, 2, 3, 4), own))
    device = ShadowDriver(4, 64, SPEC)
    while not state.done:
        plan = schedule(state)
        assert all(len(span.named) == (2 * len(span.wanted) if span.id == 0 else 0) for span in plan.spans)
        state = commit(state, device.run(plan))
    assert {sequence.finish for sequence in state.finished.values()} == {"length"}
    more = replace(own, strategy_options={"names": True})
    refused = add(init(CONFIG, MultiBD(4, 2, rule=Loyal(names=False))), Request(0, (1,), more)).finished[0]
    assert refused.finish == "rejected" and "named=2" in refused.error


def test_names_put_nothing_on_the_device() -> None:
    """They are no part of a line: what is stored is the same whatever is asked."""
    one, other = plan_of((1, 2) * 4, Wants(named=2)), plan_of((3, 4) * 4, Wants(named=2))
    assert next_line(one, ()) == next_line(other, ())
    assert answered(one, *(0.1,) * 8).line == answered(other, *(0.2,) * 8).line


def test_named_ids_stay_in_front_of_final_rows_and_in_files(tmp_path: Path) -> None:
    plan = plan_of((1, 2) * 4, Wants(named=2))
    (span,) = plan.spans
    assert span.behind(0, (1, 2)).named == span.named
    samples = answered(plan, *(0.25,) * 8)
    assert from_json(to_json(samples)) == samples
    state = first = add(init(CONFIG, MultiBD(4, 2, rule=Loyal())), Request(0, (1, 2, 3), ASKED))
    device, trace = ShadowDriver(4, 64, SPEC), Trace(first)
    while not state.done:
        samples = device.run(schedule(state))
        state, trace = commit(state, samples), trace.extended(samples)
    trace.save(tmp_path / "named.jsonl")
    loaded = Trace.load(tmp_path / "named.jsonl")
    assert loaded == trace and loaded.replay() == state
    assert '"named_probabilities"' in (tmp_path / "named.jsonl").read_text()


def shadow_rows(named: tuple[int, ...], wants: Wants, prompt: tuple[int, ...] = (1, 2, 3, 4), heat: float = 0.0) -> Rows:
    state: State = init(CONFIG, MultiBD(4, 1))
    plan = schedule(add(state, Request(0, prompt, replace(ASKED, temperature=heat))))
    plan = replace(plan, spans=(replace(plan.spans[0], named=named),), wants=wants)
    return ShadowDriver(4, 64, SPEC).run(plan).rows[0]


@pytest.mark.parametrize("heat", [0.0, 1.0])
def test_a_shadow_answers_by_content_and_agrees_with_what_it_lists(heat: float) -> None:
    best = shadow_rows((), Wants(best=3), heat=heat)
    ids = tuple(each for i in range(4) for each in (*best.best_ids[3 * i : 3 * i + 3], best.tokens[i], -1, MASK, VOCABULARY, 7))
    found = shadow_rows(ids, Wants(named=8), heat=heat)
    assert found.tokens == best.tokens
    for i in range(4):
        own, listed = found.named_probabilities[8 * i : 8 * i + 8], best.best_probabilities[3 * i : 3 * i + 3]
        told = dict(reversed(list(zip(best.best_ids[3 * i : 3 * i + 3], listed, strict=True))))
        told[best.tokens[i]] = best.probabilities[i]
        assert own[:4] == tuple(told[token] for token in ids[8 * i : 8 * i + 4])
        assert own[4:7] == (0.0, 0.0, 0.0) and 0.0 < own[7] < 1.0
    left = zip(found.named_probabilities[7::8], found.probabilities, strict=True)
    assert len({round(own / (1 - drawn), 9) for own, drawn in left}) == 4  # each row has an answer of its own
    other = shadow_rows((7,) * 4, Wants(named=1), prompt=(1, 2, 3, 5), heat=heat).named_probabilities
    assert not set(other) & set(found.named_probabilities)
    assert shadow_rows(ids, Wants(named=8, best=2), heat=heat).named_probabilities == found.named_probabilities


def test_a_shadow_refuses_names_that_do_not_fit() -> None:
    for named, most in (((1,) * 5, 2), ((1,) * 8, 1), ((1,) * 4, 0)):
        with pytest.raises(DlstepError, match=rf"{len(named)} ids are named for 4 wanted positions; .*named={most}"):
            shadow_rows(named, Wants(named=most, best=1))


@pytest.mark.parametrize("heat", [0.0, 0.5])
def test_a_scripted_row_has_the_softmax_of_its_names(heat: float) -> None:
    """Halves and quarters: ln 2 apart, at temperature 0.5 twice that."""
    spec = Spec(mask_id=3, eos_ids=(0,), vocab_size=5)
    logits = [0.0, 0.6931471805599453, 0.0, 9.0, float("-1e9"), 50.0]
    (span,) = plan_of((), PLAIN).spans
    span = replace(span, params=replace(span.params, temperature=heat))
    token, probability = sample_row(logits, span, 4, 0, spec)
    found = named_row(logits, (1, 0, 2, 3, 4, 5, -1, token), heat, spec)
    shares = (0.5, 0.25, 0.25) if not heat else (4 / 6, 1 / 6, 1 / 6)
    assert found == pytest.approx((*shares, 0.0, 0.0, 0.0, 0.0, probability))
    assert named_row([1.0, float("nan")], (0, 1), heat, spec) == (0.0, 0.0)


def test_what_the_rule_keeps_is_a_value() -> None:
    assert from_json(to_json(Said((1, 2)))) == Said((1, 2))

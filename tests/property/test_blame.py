"""Blame: a strategy or a rule that fails ends the request that brought it, and changes no other request's answer."""

import re
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import Phase, given, settings, strategies as st

from dlstep.core import Config, DlstepError, Request, SamplingParams, Trace, init
from dlstep.engine.decode import Decode
from dlstep.strategies.dual_cache import DualCache
from dlstep.strategies.multi_bd import MultiBD
from dlstep.testing.harness import shadow
from dlstep.testing.shadow import ShadowDriver
from dlstep.testing.sharing import Fault, FaultyDriver, FaultySamples
from dlstep.text.constraints import compiled

from ..helpers.decoding import SPEC
from ..helpers.faulty import (
    CANVAS_SPANS,
    GRIDS,
    JUDGING,
    RAISED,
    RULES,
    SETTLED,
    STATED,
    FaultyCanvas,
    FaultyStrategy,
    strategies,
)

HEALTHY = 8
MOST_STEPS = 500
CARRIERS = (MultiBD(block_size=4, buffer_size=2), DualCache(block_size=4))


def config(num_pages, budget):
    return Config(SPEC, page_size=4, num_pages=num_pages, max_model_len=32, max_num_batched_tokens=budget, max_num_reqs=12)


def requests(seed):
    """Healthy requests, some with a prompt in common."""
    params = [SamplingParams(max_tokens=4 + (seed + 5 * n) % 13, ignore_eos=n % 2 == 0, seed=n) for n in range(HEALTHY)]
    prompts = [(1, 2, 3, 4, 5, n % 3) + (6,) * (n % 5) for n in range(HEALTHY)]
    return [Request(n, prompt, each) for n, (prompt, each) in enumerate(zip(prompts, params, strict=True))]


def decoded(given, strategy, asked, failures=frozenset()):
    """The state in which all have ended, and how it came about."""
    first, events = init(given, strategy), []
    driver = FaultyDriver(shadow(given, strategy), failures)
    decode = Decode(first, driver, record=events.append, prunes=False)
    for request in asked:
        decode.add(request)
    for _ in range(MOST_STEPS):
        if decode.state.done:
            return decode.state, Trace(first, tuple(events))
        with suppress(Fault):
            decode.step()
    raise AssertionError(f"not finished after {MOST_STEPS} steps")


def check_blame(given, strategy, options, place, seed, failures, **asked):
    """Decode a request with a bug, which asks for more with `asked`, beside healthy ones; return how it ended."""
    healthy, automaton = requests(seed), asked.pop("automaton", None)
    asked = {"max_tokens": 12, "ignore_eos": automaton is None, "seed": 7, "strategy_options": options} | asked
    bad = Request(99, (1, 2, 3, 4, 5, 6), SamplingParams(**asked), automaton=automaton)
    expected = {request.id: decoded(given, strategy, [request])[0].finished[request.id] for request in healthy}
    state, trace = decoded(given, strategy, [*healthy[:place], bad, *healthy[place:]], failures)
    for request in healthy:
        found, alone = state.finished[request.id], expected[request.id]
        if strategy.exact:
            assert (found.finish, found.answer) == (alone.finish, alone.answer)
        else:  # whether it was preempted, or lost the device, changes its answer
            assert found.finish in ("stop", "length")
    assert not state.cache.owners
    assert trace.replay() == state
    ended = state.finished[99]
    if options.get("hook") in ("forget", "lost_passes", "measure") and ended.finish == "length":
        return ended  # nothing that it held was lost, so that neither was called
    assert ended.finish in ("error", "rejected"), (ended.finish, options)
    assert "Faulty" in ended.error and re.search(r"faulty\.py:\d+", ended.error), ended.error
    assert len(ended.error) < 800 and "\n" not in ended.error
    if ended.finish == "error" and options.get("hook") not in JUDGING:
        assert re.search(r"step \d+, from position \d+ on: ", ended.error), ended.error
    return ended


PLACES = st.integers(0, HEALTHY)
PAGES = st.sampled_from([12, 20, 100])
FAILURES = st.frozensets(st.integers(0, 29), max_size=3)
FEW = settings(max_examples=max(1, (settings.default.max_examples if settings.default else 20) // 10), phases=(Phase.generate,))


@pytest.mark.full
@pytest.mark.parametrize("rule", RULES, ids=repr)
@FEW
@given(
    carrier=st.sampled_from(CARRIERS),
    place=PLACES,
    seed=st.integers(0, 20),
    after=st.integers(0, 1),
    pages=PAGES,
    failures=FAILURES,
)
def test_faulty_rule_ends_only_its_request(rule, carrier, place, seed, after, pages, failures):
    if getattr(rule, "hook", "commit") == "commit":  # the others count the forward passes of one block, which may be few
        rule = replace(rule, after=after)
    check_blame(config(pages, 64), carrier, {"rule": rule}, place, seed, failures)


@pytest.mark.full
@pytest.mark.parametrize("faulty", list(strategies()), ids=lambda each: f"{each.hook} {each.kind}")
@FEW
@given(place=PLACES, seed=st.integers(0, 20), failures=FAILURES)
def test_faulty_strategy_ends_only_its_request(faulty, place, seed, failures):
    failures = frozenset({2}) | failures  # so that every hook is called: a lost device is forgotten and measured
    options = {"hook": faulty.hook, "kind": faulty.kind, "late": faulty.late}
    check_blame(config(100, 12), FaultyStrategy(block_size=4, buffer_size=2), options, place, seed, failures)


@pytest.mark.parametrize("kind", CANVAS_SPANS)
@FEW
@given(place=PLACES, seed=st.integers(0, 20), pages=PAGES)
def test_canvas_that_the_network_cannot_denoise_ends_only_its_request(kind, place, seed, pages):
    spec = replace(SPEC, mask_id=None, canvas_length=4)
    strategy = FaultyCanvas(canvas_length=4, max_denoising_steps=3)
    ended = check_blame(replace(config(pages, 64), spec=spec), strategy, {"kind": kind}, place, seed, frozenset())
    assert "denoises whole canvases of 4" in ended.error


LETTERS = compiled("regex", "[abc]*", SPEC)
ASKED = [
    {},
    {"stop": ("none such",)},
    {"top_logprobs": 2},
    {"max_repetition_run": 9},
    {"automaton": LETTERS},
]


@pytest.mark.parametrize("kind", SETTLED)
@pytest.mark.parametrize("asked", ASKED, ids=lambda asked: next(iter(asked), "nothing else"))
@FEW
@given(place=PLACES, seed=st.integers(0, 20), late=st.integers(0, 2))
def test_strategy_that_settles_what_the_core_cannot_read_ends_only_its_request(kind, asked, place, seed, late):
    if kind == "forbidden token" and "automaton" not in asked:
        return
    options = {"hook": "commit", "kind": kind, "late": late}
    check_blame(config(100, 64), FaultyStrategy(block_size=4, buffer_size=2), options, place, seed, frozenset(), **asked)


@pytest.mark.parametrize("kind", ["none", *RAISED])
def test_strategy_of_the_engine_whose_statistics_fail_ends_requests_and_not_the_loop(kind):
    """Every plan needs the statistics of the engine's strategy, so no request can go on."""
    faulty = FaultyStrategy(block_size=4, buffer_size=2, hook="sample_spec", kind=kind, late=1)
    state, _ = decoded(config(100, 64), faulty, requests(0))
    for ended in state.finished.values():
        assert ended.finish == "error" and "FaultyStrategy.sample_spec" in ended.error


@pytest.mark.parametrize("hook", JUDGING)
@pytest.mark.parametrize("kind", sorted({*RAISED} - {"long message"}))  # that one is a ValueError, as it should be
def test_faulty_strategy_is_rejected_while_its_request_is_judged(hook, kind):
    """Whatever a hook raises there, also what would end a server."""
    options = {"hook": hook, "kind": kind}
    ended = check_blame(config(100, 64), FaultyStrategy(block_size=4, buffer_size=2), options, 3, 5, frozenset())
    assert ended.finish == "rejected"
    assert f"FaultyStrategy.{hook} raised" in ended.error


@pytest.mark.parametrize(
    "hook, kind",
    [
        *(("grid", kind) for kind in GRIDS),
        *((hook, str(index)) for hook, values in STATED.items() for index in range(len(values))),
    ],
)
def test_strategy_that_states_a_value_of_another_class_is_refused(hook, kind):
    """Nothing that it returns is ignored: groups that are not those of the fields of a `Grid`, or half a row."""
    ended = check_blame(
        config(100, 64), FaultyStrategy(block_size=4, buffer_size=2), {"hook": hook, "kind": kind}, 3, 5, frozenset()
    )
    assert ended.finish == "rejected" and f"FaultyStrategy.{hook} (faulty.py:" in ended.error and "must be" in ended.error
    with pytest.raises(ValueError, match=rf"FaultyStrategy\.{hook} .* returned .*: .* must be "):
        init(config(100, 64), FaultyStrategy(block_size=4, buffer_size=2, hook=hook, kind=kind))


@pytest.mark.parametrize("kind", RAISED)
def test_faulty_strategy_ends_the_request_that_adopts(kind):
    """An adopted sequence is forgotten at once, so a bug in `forget` ends the new request, and the old one goes on."""
    first = init(config(100, 64), FaultyStrategy(block_size=4, buffer_size=2))
    decode = Decode(first, ShadowDriver(4, 100, SPEC), prunes=False)
    decode.add(replace(requests(0)[0], params=SamplingParams(strategy_options=(("hook", "forget"), ("kind", kind)))))
    decode.step()
    sequence = decode.state.find(0)
    decode.adopt(sequence, 1)
    ended = decode.state.finished[1]
    assert ended.finish == "error" and "FaultyStrategy.forget raised" in ended.error
    assert ended.answer == sequence.answer
    while not decode.state.done:
        decode.step()
    assert decode.state.finished[0].finish in ("stop", "length")


@pytest.mark.parametrize("kind", ["another plan", "nothing", "rows alone"])
def test_samples_of_another_plan_are_refused_and_lose_no_request(kind):
    """A driver that returns something else fails the forward pass; the state stays as it was, and a right one continues."""
    given, strategy = config(100, 64), MultiBD(block_size=4, buffer_size=2)

    class Wrong(FaultyDriver):
        def start(self, plan, owner=0):
            pending = super().start(plan, owner)
            if self.forwards != 1:
                return pending
            samples = pending.samples
            wrong = {"another plan": replace(samples, plan=replace(plan, num_pages=7)), "rows alone": samples.spans}
            return FaultySamples(wrong.get(kind), lost=False)

    decode = Decode(init(given, strategy), Wrong(shadow(given, strategy)), prunes=False)
    decode.add(requests(0)[0])
    decode.step()
    before = decode.state
    with pytest.raises(DlstepError, match=r"the driver returned .* instead of the Samples of its plan"):
        decode.step()
    assert decode.state == before
    while not decode.state.done:
        decode.step()
    assert decode.state.finished[0].answer == decoded(given, strategy, [requests(0)[0]])[0].finished[0].answer

"""Plans ahead: what the next plan feeds is what `plan_ahead` said, whatever the samples are, and no answer changes."""

from dataclasses import dataclass, replace

import pytest
from hypothesis import event, given, strategies as st

from dlstep.core import Request, Samples, SamplingParams, Spec, ahead as core_ahead, init
from dlstep.engine.decode import Decode
from dlstep.rules.threshold import Threshold
from dlstep.strategies.multi_bd import MultiBD
from dlstep.testing.generators import EOS, MASK, VOCABULARY, ample, cases, crowds, due
from dlstep.testing.harness import answered_alone, check_device, check_ownership, shadow
from dlstep.testing.sharing import MOST_TURNS, Fault

from ...helpers.ahead import AheadDriver


@pytest.fixture(autouse=True, scope="module")
def always_ahead():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(core_ahead, "LEAST_PASSES", 0)
        patch.setattr(core_ahead, "FREE_ROWS", 0)
        yield


RULES = st.builds(Threshold, accept_threshold=st.sampled_from([0.0, 0.3, 0.7, 0.9, 1.0]), inclusive=st.booleans())


@given(st.data())
def test_passes_ahead_feed_what_the_next_plans_feed(data):
    case = data.draw(cases(MultiBD) | crowds(MultiBD))
    strategy = replace(
        case.strategy, buffer_size=data.draw(st.sampled_from([1, 1, case.strategy.buffer_size])), rule=data.draw(RULES)
    )
    faults = frozenset(data.draw(st.lists(st.integers(0, 20), max_size=1)))
    device, first = shadow(case.config, strategy), init(case.config, strategy)
    driver = AheadDriver(device, after=faults)
    driver.most_rows = case.config.max_num_batched_tokens
    decode, answers = Decode(first, driver), {}
    for number in range(MOST_TURNS):
        for request in case.arriving(number):
            decode.add(request)
        for request_id in due(case.aborts, number):
            decode.abort(request_id)
        try:
            news = decode.step()
        except Fault:
            continue
        answers |= {update.id: update.sequence for update in news if update.finish_info}
        check_ownership(decode.state)
        if decode.state.running:
            check_device(decode.state, device)
        if number >= max((*case.arrive, 0)) and decode.state.done:
            break
    for request in case.requests:
        found = answers[request.id]
        if found.finish not in ("abort", "rejected"):
            assert found.answer == answered_alone(case.config.spec, strategy, request).answer
    event(f"passes taken: {min(driver.taken, 8)}")


@dataclass(frozen=True, slots=True)
class Failing(MultiBD):
    """Fails to plan the third pass of the first request."""

    def schedule(self, sequence, spec):
        """Return a span, or raise."""
        if sequence.request.id == 0 and sequence.steps >= 2:
            raise ZeroDivisionError
        return MultiBD.schedule(self, sequence, spec)


def test_a_strategy_that_fails_ahead_ends_only_its_request():
    strategy, spec = Failing(4, 1, rule=Threshold(1.0)), Spec(MASK, (EOS,), VOCABULARY)
    config = ample(spec)
    decode, ends = Decode(init(config, strategy), AheadDriver(shadow(config, strategy))), {}
    requests = [Request(number, (5, number), SamplingParams(max_tokens=10, ignore_eos=True)) for number in range(2)]
    decode._ahead_driver.most_rows = config.max_num_batched_tokens
    for request in requests:
        decode.add(request)
    while not decode.state.done:
        ends |= {update.id: update.sequence for update in decode.step() if update.finish_info}
    assert ends[0].finish == "error" and "ZeroDivisionError" in ends[0].error
    assert ends[1].answer == answered_alone(spec, strategy, requests[1]).answer


@pytest.mark.parametrize(("free", "extra"), [(8, 0), (7, 3)])
def test_few_rows_of_a_block_that_ends_are_stored_with_the_next_block(free, extra, monkeypatch):
    monkeypatch.setattr(core_ahead, "FREE_ROWS", free)
    strategy, config = MultiBD(4, 1, rule=Threshold(1.0, inclusive=False)), ample(Spec(MASK, (EOS,), VOCABULARY))
    passes = []
    for ahead in (False, True):
        driver, events = AheadDriver(shadow(config, strategy)), []
        driver.most_rows = config.max_num_batched_tokens
        decode = Decode(init(config, strategy), driver, record=events.append, ahead=ahead)
        decode.add(Request(0, (7, 6, 5, 4), SamplingParams(max_tokens=16, ignore_eos=True)))
        while not decode.state.done:
            decode.step()
        passes.append(sum(isinstance(event, Samples) for event in events))
        assert bool(driver.taken) == ahead
    assert passes[1] - passes[0] == extra

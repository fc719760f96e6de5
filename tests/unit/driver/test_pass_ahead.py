"""Passes that start ahead on a network: they change no answer, and nearly all give the samples of the next plan."""

from collections import Counter
from dataclasses import replace
from random import Random

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings, strategies as st

from dlstep.core import (
    Block,
    BlockPass,
    BlockSamples,
    Request,
    SamplingParams,
    SpanSamples,
    add,
    ahead as core_ahead,
    commit,
    init,
    plan_ahead,
    prepare,
    rebuild,
    schedule,
)
from dlstep.driver import TorchDriver
from dlstep.driver.arena import staged
from dlstep.driver.pass_ahead import PassAhead, Unmasking
from dlstep.engine.decode import Decode
from dlstep.rules.threshold import Threshold
from dlstep.strategies.multi_bd import MultiBD

from ...helpers.triton_interpreter import needs_interpreter
from .test_graphs import config_of, padded, with_graphs

COUNTS = Counter()  # whether a pass that started ahead gave the samples of the next plan


@pytest.fixture(autouse=True, scope="module")
def counted_passes():
    """Count passes, which start ahead even if blocks take few of them."""
    samples_of = PassAhead.samples_of

    def counted(self, plan):
        found = samples_of(self, plan)
        COUNTS[found is not None] += 1
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PassAhead, "samples_of", counted)
        patch.setattr(core_ahead, "LEAST_PASSES", 0)
        patch.setattr(core_ahead, "FREE_ROWS", 0)
        yield


def answers(driver, strategy, requests, *, ahead):
    """The answers of requests, all of which come at once."""
    COUNTS.clear()
    driver.starts_ahead = ahead
    decode, found = Decode(init(driver.config, strategy), driver), {}
    for request in requests:
        decode.add(request)
    while not decode.state.done:
        for update in decode.step():
            if update.finish_info:
                found[update.id] = update.sequence.answer
    decode.close()
    return found


REQUESTS = st.lists(
    st.builds(
        lambda length, first, **params: ((first, *range(5, 4 + length)), SamplingParams(**params)),
        st.integers(1, 14),
        st.integers(3, 30),
        max_tokens=st.integers(1, 20),
        temperature=st.sampled_from([0.0, 0.7]),
        seed=st.integers(0, 3),
    ),
    min_size=1,
    max_size=6,
).map(lambda drawn: [Request(number, *each) for number, each in enumerate(drawn)])


@settings(deadline=None)
@given(REQUESTS, st.sampled_from([0.0, 0.05, 0.2, 1.0]), st.booleans(), st.sampled_from([1, 4]))
def test_answers_are_those_without_passes_ahead(checkpoints, requests, threshold, inclusive, page_size):
    checkpoint = checkpoints["plain"]
    strategy = MultiBD(4, 1, rule=Threshold(threshold, inclusive=inclusive))
    driver = TorchDriver(checkpoint, config_of(checkpoint.spec, page_size=page_size))
    plain = answers(driver, strategy, requests, ahead=False)
    assert answers(driver, strategy, requests, ahead=True) == plain
    # A request that ends with its batch leaves one pass that no plan follows.
    assert COUNTS[False] <= len(requests)


def test_no_pass_starts_ahead_if_blocks_take_few(checkpoints, monkeypatch):
    monkeypatch.setattr(core_ahead, "LEAST_PASSES", 3)
    checkpoint = checkpoints["plain"]
    driver = TorchDriver(checkpoint, config_of(checkpoint.spec))
    request = Request(0, (5, 6), SamplingParams(max_tokens=24, ignore_eos=True))
    for threshold, least, most in ((0.0, 0, 3), (1.0, 20, 40)):  # blocks of 4 positions take one pass, or four
        answers(driver, MultiBD(4, 1, rule=Threshold(threshold)), [request], ahead=True)
        assert least <= COUNTS.total() <= most


@needs_interpreter
def test_graphs_that_run_ahead_leave_the_answers(checkpoints, monkeypatch):
    checkpoint = checkpoints["plain"]
    driver = with_graphs(padded(checkpoint, config_of(checkpoint.spec)), monkeypatch)
    requests = [Request(number, (9, 7, 3 + number), SamplingParams(max_tokens=8 + number)) for number in range(4)]
    strategy = MultiBD(4, 1, rule=Threshold(1.0))
    plain = answers(driver, strategy, requests, ahead=False)
    assert answers(driver, strategy, requests, ahead=True) == plain
    assert COUNTS[True] > 5 * COUNTS[False]


def test_a_pass_ahead_is_not_taken_for_another_cache(checkpoints):
    """After the loss of the KV cache, a plan may have the same rows, but its pages may be others."""
    checkpoint = checkpoints["plain"]
    driver = TorchDriver(checkpoint, config_of(checkpoint.spec))
    driver.starts_ahead = True
    COUNTS.clear()
    state = add(init(driver.config, MultiBD(4, 1, rule=Threshold(1.0))), Request(0, (5,), SamplingParams(max_tokens=3)))
    plan = schedule(state)
    started, prepared = driver.start(plan), prepare(state, plan)
    ahead = plan_ahead(prepared)
    assert ahead is not None and driver.start_ahead(ahead)
    state = rebuild(commit(state, started.wait(), prepared))
    again = schedule(state)
    assert [span.rows.start for span in again.spans] == [span.rows.start for span in ahead.plan.spans]
    driver.run(again)
    assert dict(COUNTS) == {False: 1}
    assert not driver.start_ahead(replace(ahead, before=plan)), "another plan ran since"


NEAR = st.sampled_from([0.0, 0.1, 0.3, 0.9, 1.0])  # thresholds; a device may sample the same number, in single precision
CHANCES = NEAR.map(lambda number: float(np.float32(number))) | st.floats(0, 1, width=32)


@given(st.lists(st.lists(CHANCES, min_size=1, max_size=4), min_size=1, max_size=3), NEAR, st.booleans(), st.randoms())
@example([[1.0, 1.0], [0.0, 0.0]], 1.0, False, Random(0))  # a sure model, one token per pass
def test_a_device_unmasks_what_the_rule_chooses(spans, threshold, inclusive, random):
    strategy = MultiBD(8, 1, rule=Threshold(threshold, inclusive=inclusive))
    flat, counts = [number for span in spans for number in span], [len(span) for span in spans]
    tokens = random.choices(range(-1, 6), k=len(flat))  # -1: not finite
    least = np.repeat([strategy.certain_from] * len(spans), counts)
    arrays = {"columns": np.arange(len(flat))[::-1].copy(), "rows": np.arange(len(flat)) + 2}
    arrays |= {"spans": np.repeat(np.arange(len(spans)), counts), "least": least}
    rows = torch.full((len(flat) + 3,), 9)
    Unmasking(**staged(arrays, torch.device("cpu"))).apply(rows, torch.tensor([tokens, flat]).flip(1))
    expected = [9, 9]
    for span in spans:
        block = Block(0, (9,) * len(span), tuple(range(len(span))), (0.0,) * len(span))
        samples = BlockSamples(block.masked, SpanSamples(block.tokens, tuple(span)), 0, len(span))
        chosen = strategy.rule.chosen(BlockPass(block, None, samples, None, True))
        drawn = tokens[len(expected) - 2 :]
        expected += [max(drawn[index], 0) if index in chosen else 9 for index in range(len(span))]
    assert rows.tolist() == [*expected, 9]

"""ReMDM where it is another rule, by hand, and how often it masks."""

import re
from collections import Counter

import pytest
from hypothesis import given, strategies as st

from dlstep.core import Config, Request, SamplingParams, SpanSamples, add, commit, init, schedule, with_options
from dlstep.rules.quota import Quota
from dlstep.rules.remdm import ReMDM
from dlstep.strategies.multi_bd import MultiBD
from dlstep.testing.scripted import ScriptedDriver

from .by_hand import REQUESTS, SALTS, SPEC, STEPS, after, answered, carriers, fresh, numbers, rows_of, shown


@given(request=REQUESTS, salt=SALTS, size=st.integers(1, 9), steps=STEPS)
def test_remdm_without_loops_is_quota(request: Request, salt: int, size: int, steps: int | None) -> None:
    rule = ReMDM(steps_per_block=steps, remask_forwards=0)
    for one, other in zip(carriers(size, rule), carriers(size, Quota(steps)), strict=True):
        assert answered(one, request, salt) == answered(other, request, salt)


@given(request=REQUESTS, salt=SALTS, size=st.integers(1, 9), steps=STEPS)
def test_remdm_without_strength_masks_nothing(request: Request, salt: int, size: int, steps: int | None) -> None:
    """`cap` and `rescale` are then one plain sampler."""
    cap, rescale = ReMDM("cap", steps, eta=0.0), ReMDM("rescale", steps, eta=0.0)
    for one, other in zip(carriers(size, cap), carriers(size, rescale), strict=True):
        assert answered(one, request, salt) == answered(other, request, salt)


def test_remdm_remasks_and_unmasks_as_often_as_it_should() -> None:
    """Shares of a long block, over seeds: step 5 of 10 takes masks and masks tokens with the formula's probabilities."""
    size, seeds = 64, 300
    half = tuple(range(1, 1 + size, 2))
    for rule, sigma in ((ReMDM("cap", 10, eta=0.3), 0.3), (ReMDM("rescale", 10, eta=0.5), 0.4), (ReMDM("conf", 10), 0.8 / 32)):
        counts: Counter[str] = Counter()
        for seed in range(seeds):
            block = fresh(size).unmask(half, (7,) * 32, (0.5,) * 32)
            chosen, gone = rule.lucky(block, 5, 10, seed), rule.unlucky(block, block.sampled(1 + size), 5, 10, seed)
            assert not set(chosen) & set(half) and set(gone) <= set(half)
            counts.update(chosen=len(chosen), gone=len(gone))
        own = 0.0 if rule.variant == "conf" else sigma
        assert counts["gone"] / (32 * seeds) == pytest.approx(sigma, abs=0.015)
        assert counts["chosen"] / (32 * seeds) == pytest.approx((0.6 - (1 - own) * 0.5) / 0.5, abs=0.02)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"eta": 0.5}, "ReMDM.eta=0.5 does nothing with variant='llada': leave it out, or choose 'cap' or 'rescale' or 'loop'"),
        ({"variant": "conf", "eta": 0.5}, "ReMDM.eta=0.5 does nothing with variant='conf'"),
        ({"variant": "cap", "remask_count": 2}, "ReMDM.remask_count=2 does nothing with variant='cap'"),
        ({"variant": "rescale", "t_on": 0.5}, "ReMDM.t_on=0.5 does nothing with variant='rescale'"),
        ({"variant": "loop", "t_on": 0.01}, "ReMDM.t_on=0.01 must not be below t_off=0.05"),
        ({"variant": "loops"}, "ReMDM.variant must be one of 'llada'"),
    ],
)
def test_options_that_do_nothing_are_refused(options: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        with_options(ReMDM(), options)


def test_choices_depend_on_the_seed_alone() -> None:
    """Equal seeds choose alike whoever else is decoded, and however a sequence is numbered; others choose otherwise."""
    strategy = MultiBD(block_size=16, rule=ReMDM("cap", 24, eta=0.5))
    state = init(Config(SPEC), strategy)
    for number, seed in enumerate((1, 2, 1)):
        state = add(state, Request(number, (1,), SamplingParams(max_tokens=15, seed=seed)))
    texts: dict[int, list[tuple[int, ...]]] = {0: [], 1: [], 2: []}
    driver = ScriptedDriver(lambda span: SpanSamples(span.wanted.sampled, (0.5,) * len(span.wanted.sampled)))
    while not state.done:
        state = commit(state, driver.run(schedule(state)))
        for number, seen in texts.items():
            sequence = state.find(number) or state.finished[number]
            seen.append(sequence.tokens(0, 16))
    assert texts[0] == texts[2] != texts[1]


@pytest.mark.parametrize(("count", "chances", "expected"), rows_of("remdm"))
def test_rows_of_remdm(count: str, chances: str, expected: str) -> None:
    found = numbers(chances)
    rule = ReMDM(steps_per_block=1, remask_forwards=1, remask_count=int(count))
    assert shown(after(rule, fresh(len(found)), SpanSamples(tuple(range(len(found))), found))) == expected

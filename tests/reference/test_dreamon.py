"""DreamOn against loops over a list of ids."""

from dataclasses import dataclass, replace
from random import Random

import pytest

from dlstep import SamplingParams, strategies
from dlstep.driver import TorchDriver

from ..helpers.decoding import by_driver, decoded_alone, room_for_one
from .causal import CLOSE, Draws, preferring
from .dreamon import Rules, decode
from .models import EOS, WORDS, Dense

EXPAND = 3
ALGORITHMS = {"entropy": "entropy", "confidence": "maskgit_plus", "margin": "topk_margin"}
ORDINARY = [word for word in range(EOS, WORDS) if word not in (EOS, EXPAND)]


@dataclass(frozen=True)
class Gap:
    """One request: what to fill in between two texts, and how."""

    seed: int
    prefix: tuple[int, ...]
    suffix: tuple[int, ...]
    temperature: float
    order: str
    likely: tuple[int, ...]
    rules: Rules

    @property
    def strategy(self):
        rules = self.rules
        return strategies.make(
            "dreamon",
            expand_token_id=EXPAND,
            initial_masks=rules.initial,
            expand_budget=rules.budget,
            delete_right=rules.to_right,
            tokens_per_pass=rules.count,
            order=self.order,
        )

    @property
    def params(self):
        return SamplingParams(
            max_tokens=self.rules.most,
            temperature=self.temperature,
            top_p=self.rules.top_p,
            seed=self.seed,
            suffix=self.suffix,
        )


def gaps(seed, count, several=False):
    """Random requests, most of them with words that expand and that delete."""
    random = Random(seed)
    for _ in range(count):
        most, order = random.randrange(1, 17), random.choice((*["entropy"] * 3, "confidence", "margin"))
        yield Gap(
            random.randrange(1 << 40),
            tuple(random.choices(ORDINARY, k=random.randrange(1, 9))),
            (*random.choices(ORDINARY, k=random.randrange(5)), *random.choice(((EOS,), ()))),
            random.choice((0.0, 0.2, 1.0, 1.0)),
            order,
            (*random.sample(ORDINARY, random.choice((1, 2, 4))), *random.choice(((EXPAND,), (EXPAND,), (EXPAND, EOS), (EOS,)))),
            Rules(
                EXPAND,
                random.choice((1, 1, 2, 4, 8)),
                most,
                random.choice((most, most, 2, 0)),
                random.random() < 0.6,
                random.choice((2, 3)) if several else 1,
                ALGORITHMS[order],
                random.choice((1.0, 0.9, 0.9)),
            ),
        )


def of_loop(pair, gap, shift, released):
    """What the loop gives, or None if rounding may decide, or if the authors' code has no sensible answer."""
    network = Dense(pair.network, shift)
    found = decode(network, gap.prefix, gap.suffix, gap.rules, Draws(network, gap.seed, gap.temperature), released=released)
    return found if network.smallest > CLOSE else None


@pytest.mark.parametrize("shift, several, count", [(1, False, 80), (0, False, 40), (1, True, 50)])
@pytest.mark.parametrize("times", [1, pytest.param(8, marks=pytest.mark.stress)])
def test_tokens_and_lengths_are_those_of_the_loops(pairs, count, several, shift, times, report):
    compared = grown = shrunk = full = 0
    for index, gap in enumerate(gaps(5 + shift, count * times, several)):
        pair = pairs[index % len(pairs)]
        with preferring(pair, gap.likely):
            expected = of_loop(pair, gap, shift, released=True)
            assert several or expected == of_loop(pair, gap, shift, released=False), "the authors' orders differ"
            if expected is None:
                continue
            config = room_for_one(replace(pair.checkpoint.spec, head_shift=shift))
            run = by_driver(TorchDriver(pair.checkpoint, config))
            found = decoded_alone(config, gap.strategy, gap.prefix, gap.params, run)
        assert (list(found.answer), found.steps, found.nfe) == (expected[0], expected[1], expected[1]), gap
        assert found.finish == ("length" if len(found.answer) == gap.rules.most else "stop")
        begun = min(gap.rules.initial, gap.rules.most)
        compared, full = compared + 1, full + (found.finish == "length")
        grown, shrunk = grown + (len(found.answer) > begun), shrunk + (len(found.answer) < begun)
    report(f"dreamon: {compared} answers compared, {grown} longer and {shrunk} shorter than at first, {full} of full length")
    assert compared > count * times // 2 and grown > count // 20 and shrunk > count // 20

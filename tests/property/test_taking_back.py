"""Carriers with a rule that remasks at random: masks for all there is, no order."""

import os
from dataclasses import dataclass, replace
from typing import Annotated, final

import pytest
from annotated_types import Interval
from hypothesis import given, strategies as st

from dlstep.core import (
    Config,
    Extra,
    Request,
    Rule,
    Samples,
    SamplingParams,
    SpanSamples,
    Spec,
    add,
    check_ranges,
    commit,
    init,
    schedule,
)
from dlstep.core.draws import integer, key
from dlstep.strategies.causal_blocks import CausalBlocks
from dlstep.strategies.d2f import D2F
from dlstep.strategies.dual_cache import DualCache
from dlstep.strategies.multi_bd import MultiBD
from dlstep.testing.generators import cases
from dlstep.testing.harness import run_case
from dlstep.testing.laws import LAWS, functions, outputs, progress, spans_are_sound, told, transparency

from ..unit.dlstep_kernels.profiles import up_to

FEW = [functions, spans_are_sound, progress, outputs, told, transparency]
CHOSEN = LAWS if os.environ.get("HYPOTHESIS_PROFILE") == "seeds" else FEW
SPEC = Spec(99, (98,), 100)


@final
@dataclass(frozen=True, slots=True)
class Turns(Extra):
    """Forwards that a block has taken."""

    done: int


@final
@dataclass(frozen=True, slots=True)
class Wavering(Rule):
    """For `turns` forwards a block is filled, and each token becomes a mask again by chance, at least the last one.

    The last forward masks none.
    """

    turns: Annotated[int, Interval(ge=1, le=5)] = 3
    share: Annotated[float, Interval(ge=0.0, le=1.0)] = 0.5
    rereads: bool = True

    def __post_init__(self):
        check_ranges(self)

    @property
    def remasks(self):
        return True

    def sampled(self, planned):
        return planned.block.sampled(planned.limit) if self.rereads else planned.block.masked

    def commit(self, block_pass):
        block, mask = block_pass.block, block_pass.spec.mask_id
        done = block.extra.done if isinstance(block.extra, Turns) else 0
        number, seed = block_pass.number, block_pass.sequence.request.seed
        assert mask is not None
        own = block_pass.only(block.masked).samples
        block = block.unmask(block.masked, own.tokens, own.probabilities).with_extra(Turns(done + 1))
        if done + 1 >= self.turns:  # a constraint may have left masks in the last of these forwards
            return block
        sampled = block.sampled(block_pass.limit)
        masks = [p for p in sampled if integer(key(seed, p, number, "remask"), 1 << 23) + 0.5 < self.share * (1 << 23)]
        return block.remask(masks or sampled[-1:], mask)

    def measure(self, planned):
        extra = planned.block.extra  # not its number: a fork may give it a block in which another rule has counted passes
        return self.turns - (extra.done if isinstance(extra, Turns) else 0)

    def bound(self, size):
        return self.turns


VALUES = [
    MultiBD(rule=Wavering()),
    D2F(rule=Wavering()),
    DualCache(rule=Wavering()),
    CausalBlocks(rule=Wavering()),
]


def named(value):
    return type(value).__name__


@pytest.mark.parametrize("value", VALUES, ids=named)
@pytest.mark.parametrize("law", CHOSEN, ids=lambda law: law.__name__)
@up_to(80)
@given(data=st.data())
def test_law(law, value, data):
    law(value, data)


@pytest.mark.parametrize("value", VALUES, ids=named)
@given(data=st.data())
def test_blocks_are_settled_when_they_have_no_masks(value, data):
    """Given tokens stay, void positions stay masks, every block takes all its forwards, and nothing is settled before."""
    case = data.draw(cases(value))
    for step in run_case(case).steps:
        mask = step.after.config.spec.mask_id
        for sequence in step.after.running:
            length = len(sequence.request.prompt)
            for block in sequence.progress.window:
                known = [p for p in range(block.start, block.end) if p < length]
                assert sequence.tokens(block.start, block.start + len(known)) == sequence.request.prompt[block.start : length]
                void = range(max(block.start, sequence.request.limit), block.end)
                assert all(block.tokens[p - block.start] == mask for p in void), "a void position was filled"
                if not block.masked:
                    continue
                assert sequence.progress.settled <= block.first, "a token is settled that may be remasked"
                assert sequence.progress.final <= block.start


def opened(value, forwards):
    """How many blocks are open after each forward."""
    state = add(init(Config(SPEC), value), Request(0, (0,), SamplingParams(max_tokens=15), seed=0))
    counts = []
    for _ in range(forwards):
        plan = schedule(state)
        rows = tuple(
            SpanSamples(tuple([7] * len(span.wanted.sampled)), (0.5,) * len(span.wanted.sampled)) for span in plan.spans
        )
        state = commit(state, Samples(plan, rows))
        counts.append(len(state.running[0].progress.window) if state.running else 0)
    return counts


def test_a_block_that_is_remasked_is_not_stable():
    value = MultiBD(block_size=4, buffer_size=2, rule=Wavering(turns=3, share=0.0))
    assert opened(value, 2) == [2, 2]
    stable = replace(value, token_stability_threshold=0.5)
    assert opened(stable, 4) == [1, 1, 1, 1]
    # All tokens of the first block are remasked in every forward but the last: the next one waits for them.
    assert opened(replace(value, add_block_threshold=0.5, rule=Wavering(turns=3, share=1.0)), 4) == [1, 1, 1, 1]

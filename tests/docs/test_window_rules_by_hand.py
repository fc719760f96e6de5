"""The tables "Five rows by hand" on the pages of rules that need a canvas say what the rules do."""

from math import exp

import pytest

from dlstep.core import (
    NO_SAMPLES,
    Config,
    Request,
    SamplingParams,
    SpanSamples,
    Spec,
    add,
    commit,
    init,
    schedule,
)  # fmt: skip
from dlstep.core.block import Block
from dlstep.rules.ada_block import AdaBlock
from dlstep.rules.early_commit import EarlyCommit
from dlstep.rules.sliding import Sliding
from dlstep.strategies.dual_cache import DualCache
from dlstep.testing.scripted import ScriptedDriver

from ..helpers.passes import pass_of
from ..unit.rules.by_hand import rows_of

MASK, DOT = 99, 50


def after(rule, tokens, chances, seconds=None, size=32):
    """Return the sequence after the first forward pass, which samples these tokens at all positions."""
    state = init(Config(Spec(MASK, (98,), 100)), DualCache(size, "none", rule))
    state = add(state, Request(0, (1,), SamplingParams(max_tokens=len(tokens), ignore_eos=True)))
    plan = schedule(state)
    (span,) = plan.spans
    rows = [position - 1 for position in span.wanted.sampled]
    best = rule.sample_spec.best
    pairs = [pair for row in rows for pair in ((tokens[row], chances[row]), (97, seconds[row] if seconds else 0.0))[:best]]
    driver = ScriptedDriver(
        lambda _: SpanSamples(
            tuple(tokens[row] for row in rows),
            tuple(chances[row] for row in rows),
            best_ids=tuple(token for token, _ in pairs),
            best_probabilities=tuple(chance for _, chance in pairs),
        )
    )
    return commit(state, driver.run(plan)).find(0)


def offsets(tokens, *those):
    """Return the offsets that hold one of these tokens, as the tables show them."""
    return " ".join(str(offset) for offset, token in enumerate(tokens) if token in those)


@pytest.mark.parametrize("answer, expected", rows_of("sliding"))
def test_sliding(answer, expected):
    cells = answer.split()
    start = Block(1, (MASK,) * len(cells), tuple(range(1, len(cells) + 1)), (0.0,) * len(cells))
    known = [offset for offset, cell in enumerate(cells) if cell.isalpha()]
    block = start.unmask_rows(known, (7,) * len(cells), (1.0,) * len(cells))
    rule = Sliding(window=3)
    spec, request = Spec(MASK, (98,), 100), Request(0, (1,), SamplingParams(max_tokens=len(cells)))
    (waiting,) = add(init(Config(spec), DualCache(cache="none", rule=rule)), request).waiting
    counted = waiting.after_forward(waiting.storage, 1)
    sampled = pass_of(rule, counted, block, NO_SAMPLES, spec).sampled
    samples = SpanSamples((8,) * len(sampled), tuple(float(cells[position - 1]) for position in sampled))
    assert offsets(rule.commit(pass_of(rule, counted, block, samples, spec)).tokens, 8) == expected


@pytest.mark.parametrize("first_pass, end, expected", rows_of("ada_block"))
def test_ada_block(first_pass, end, expected):
    cells = [cell.split() for cell in first_pass.split(", ")]
    tokens = [DOT if token == "." else ord(token) - ord("a") for token, _ in cells]
    sequence = after(AdaBlock((DOT,), look_ahead=1.0), tokens, [float(chance) for _, chance in cells], size=3)
    assert offsets(sequence.tokens(1, len(cells) + 1), *tokens) == expected
    ends = [sealed.end for sealed in sequence.progress.past] or [sequence.progress.window[0].end]
    assert ends == [int(end) + 1]


@pytest.mark.parametrize("gaps, expected", rows_of("early_commit"))
def test_early_commit(gaps, expected):
    chances = [1 / (1 + exp(-float(gap))) for gap in gaps.split()]
    seconds = [exp(-float(gap)) * one for gap, one in zip(gaps.split(), chances, strict=True)]
    sequence = after(EarlyCommit(early_gap=2.0, middle_gap=2.0, late_gap=2.0), [7] * len(chances), chances, seconds)
    assert offsets(sequence.tokens(1, len(chances) + 1), 7) == expected

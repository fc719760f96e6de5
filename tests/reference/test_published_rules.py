"""Rules against the decisions of the authors' released code."""

# Sizes may be pairs.
# pyright: reportArgumentType=false, reportGeneralTypeIssues=false, reportAssignmentType=false

from pathlib import Path
from random import Random

import pytest

from dlstep import Request, SamplingParams, SpanSamples, Spec, add, init
from dlstep.core import open_block
from dlstep.rules.entropy_bound import EntropyBound
from dlstep.rules.remdm import ReMDM
from dlstep.rules.running_confidence import RunningConfidence
from dlstep.rules.spaced import Spaced
from dlstep.strategies.dual_cache import DualCache
from dlstep.strategies.multi_bd import MultiBD

from ..helpers.decoding import room_for_one
from ..helpers.passes import pass_of
from ..helpers.scripts import script
from .authors_code import entropy_bound_spaced, mdpo, remdm_llada
from .models import EOS, MASK, WORDS
from .zoo import Network, engine_answer

CASES = 100
ROOT = Path(__file__).parents[2]
PROMPT = [5, 6, 7]


def problems(seed, *sizes):
    """Random numbers, one of the sizes, how many of them an answer has blocks, and a network."""
    random = Random(seed)
    for number in range(CASES):
        yield random, random.choice(sizes), random.randrange(1, 4), Network(number, random.choice((0.0, 0.5)))


def decoded(network, length, strategy):
    """The engine's answer, and in how many forwards it came; no token ends it."""
    return engine_answer(network, PROMPT, len(PROMPT) + length, strategy, ignore_eos=True)


def test_running_confidence_with_segments_decodes_like_mdpo():
    """The confidences of all earlier segments count, and what becomes a mask there is filled again."""
    earlier = 0
    for random, size, blocks, network in problems(11, 2, 3, 4, 5, 8):
        steps, length = random.choice((1, 2, 3, 5, 8)), size * blocks
        rule = RunningConfidence(steps, segment_size=size)
        answer = decoded(network, length, DualCache(cache="none", rule=rule))
        assert answer == mdpo(network.chances, PROMPT, length, size, steps), (network.seed, rule)
        earlier += answer[0] != decoded(network, length, DualCache(size, "none", RunningConfidence(steps)))[0]
    assert earlier > CASES // 4


def test_remdm_by_default_masks_again_in_as_many_forwards_as_a_block_has_positions():
    for _, (size, count), blocks, network in problems(12, (2, 1), (4, 1), (4, 2), (8, 1), (8, 4)):
        answer = decoded(network, size * blocks, DualCache(size, "none", ReMDM(remask_count=count)))
        assert answer == remdm_llada(network.chances, PROMPT, size * blocks, size, count), (network.seed, size, count)


def test_spaced_goes_through_the_inner_choice_by_the_inner_order():
    """DUS ranks what the entropy bound chose by entropy, which may order positions otherwise than probability does."""
    random = Random(13)
    for _ in range(CASES):
        size, bound, stride = random.randrange(2, 12), random.choice((0.3, 1.0, 3.0)), random.choice((1, 2, 4, 8))
        entropies = tuple(random.random() * 2 for _ in range(size))
        rows = SpanSamples((7,) * size, tuple(random.random() for _ in range(size)), entropies)
        block = open_block(1, size, 1 + size, (7,), MASK)
        rule = Spaced(EntropyBound(bound), stride)
        strategy = MultiBD(block_size=16, buffer_size=1, rule=rule)
        request = Request(0, (7,), SamplingParams(max_tokens=size))
        config = room_for_one(Spec(MASK, (EOS,), WORDS))
        (sequence,) = add(init(config, strategy), request).waiting
        chosen = rule.chosen(pass_of(rule, sequence.after_forward(sequence.storage, 1), block, rows, config.spec))
        assert chosen == entropy_bound_spaced(dict(enumerate(entropies)), bound, max(2, size * stride // size))


@pytest.fixture(scope="module")
def released():
    """The classes that the page about released code is measured with."""
    return script("measure_published")


def test_the_page_has_a_row_for_every_pair_that_is_measured(released):
    page = (ROOT / "docs" / "published_code.md").read_text()
    table = page.partition(released.BEGIN)[2].partition(released.END)[0].splitlines()
    assert [row.split(" | ")[:2] for row in table if row.startswith("| [")] == [
        [f"| [`{name}`](strategies/{name}.md)", what] for name, what, *_ in released.PAIRS
    ]

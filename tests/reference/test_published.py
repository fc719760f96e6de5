"""Rules against the decisions of the authors' released code."""

from random import Random

from models import EOS, MASK, WORDS
from published import Network as Answer, entropy_bound_spaced, maskgit_shares, mdpo, remdm_llada
from zoo import ALL, Network, rows_of

from dlstep import Config, Request, Rows, Samples, SamplingParams, Spec, Strategy, add, commit, init, schedule
from dlstep.core import Wants, open_block
from dlstep.rules.entropy_bound import EntropyBound
from dlstep.rules.remdm import ReMDM
from dlstep.rules.running_confidence import RunningConfidence
from dlstep.rules.spaced import Spaced
from dlstep.strategies.dual_cache import DualCache
from dlstep.strategies.multi_bd import MultiBD

CASES = 150
CONFIG = Config(Spec(MASK, (EOS,), WORDS), page_size=4, num_pages=32, max_model_len=96, max_num_reqs=1)
EVERYTHING = Wants(ALL)


def as_function(network: Network) -> Answer:
    """The network as the restated code calls it."""
    return lambda canvas, position: network.chances(position, canvas)


def test_running_confidence_shares_like_mdpo() -> None:
    """(32, 5) is 7, 6, 7, 6, 6: what stays masked is rounded down."""
    assert maskgit_shares(32, 5) == [7, 6, 7, 6, 6]


def test_running_confidence_with_segments_decodes_like_mdpo() -> None:
    """The confidences of all earlier segments count, and what becomes a mask there is filled again."""
    random, earlier = Random(11), 0
    for number in range(CASES):
        size, steps = random.choice((2, 3, 4, 5, 8)), random.choice((1, 2, 3, 5, 8))
        length, network, prompt = size * random.randrange(1, 5), Network(number, random.choice((0.0, 0.5))), [5, 6, 7]
        expected = mdpo(as_function(network), prompt, length, size, steps, MASK)
        rule = RunningConfidence(steps, segment_size=size)
        answer = decoded(network, prompt, length, DualCache(cache="none", rule=rule))
        assert answer == expected, (number, rule)
        earlier += answer[0] != decoded(network, prompt, length, DualCache(size, "none", RunningConfidence(steps)))[0]
    assert earlier > CASES // 4


def test_remdm_by_default_masks_again_in_as_many_forwards_as_a_block_has_positions() -> None:
    random = Random(12)
    for number in range(CASES):
        size, count = random.choice(((2, 1), (4, 1), (8, 1), (8, 4), (16, 1), (16, 4)))
        length, network, prompt = size * random.randrange(1, 4), Network(number, random.choice((0.0, 0.5))), [5, 6, 7]
        expected = remdm_llada(as_function(network), prompt, length, size, count, MASK)
        rule = ReMDM(remask_count=count)
        assert decoded(network, prompt, length, DualCache(size, "none", rule)) == expected, (number, rule)


def test_spaced_goes_through_the_inner_choice_by_the_inner_order() -> None:
    """DUS ranks what the entropy bound chose by entropy, which may order positions otherwise than probability does."""
    random = Random(13)
    for _ in range(CASES):
        size, bound, stride = random.randrange(2, 12), random.choice((0.3, 1.0, 3.0)), random.choice((1, 2, 4, 8))
        entropies = tuple(random.random() * 2 for _ in range(size))
        rows = Rows((7,) * size, tuple(random.random() for _ in range(size)), entropies)
        block = open_block(1, size, 1 + size, (7,), MASK)
        rule = Spaced(EntropyBound(bound), stride)
        strategy = MultiBD(block_size=16, buffer_size=1, rule=rule)
        request = Request(0, (7,), SamplingParams(max_tokens=size))
        (sequence,) = add(init(CONFIG, strategy), request).waiting
        chosen = rule.chosen(sequence.counted(sequence.storage, 1), block, rows, 0, True)
        assert chosen == entropy_bound_spaced(dict(enumerate(entropies)), bound, max(2, size * stride // size))


def decoded(network: Network, prompt: list[int], length: int, strategy: Strategy) -> tuple[list[int], int]:
    """The engine's answer, and in how many forwards it came; no token ends it."""
    state = add(init(CONFIG, strategy), Request(0, tuple(prompt), SamplingParams(max_tokens=length, ignore_eos=True)))
    while not state.done:
        plan = schedule(state)
        rows = [rows_of(network, state, span, 0).trimmed(EVERYTHING, strategy.wants) for span in plan.spans]
        state = commit(state, Samples(plan, tuple(rows)))
    return list(state.finished[0].answer), state.finished[0].steps

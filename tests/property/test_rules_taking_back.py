"""What holds of all rules that remask, and of the rule that remembers."""

from hypothesis import given, strategies as st

from dlstep.core import Config, Request, Rule, SamplingParams, SpanSamples, add, init
from dlstep.core.finish import judge
from dlstep.rules.credit import BEST, Credit
from dlstep.rules.hierarchy import Hierarchy
from dlstep.rules.quota import Quota
from dlstep.rules.remdm import ReMDM
from dlstep.rules.running_confidence import RunningConfidence
from dlstep.rules.saber import Saber
from dlstep.rules.threshold import Threshold
from dlstep.strategies.multi_bd import MultiBD
from dlstep.testing.generators import EOS, random_automata

from ..unit.rules.by_hand import SALTS, SPEC, after, fresh


@given(chances=st.permutations([0.11, 0.23, 0.31, 0.47, 0.59, 0.61, 0.83, 0.97]))
def test_positions_do_not_matter(chances: list[float]) -> None:
    """Without ties, rules that look at probabilities only keep the same ones, wherever they are."""
    sure = sorted(chances)
    for rule in (RunningConfidence(3), Saber(3), ReMDM("llada", 2, remask_count=2, remask_forwards=1)):
        block = after(rule, fresh(8), SpanSamples(tuple(range(8)), tuple(chances)))
        kept = sorted(p for p in block.probabilities if p)
        expected = {RunningConfidence: sure[5:], Saber: sure[6:], ReMDM: sure[6:]}[type(rule)]
        assert kept == expected, rule


@given(salt=SALTS, size=st.integers(1, 8), data=st.data())
def test_rules_may_change_in_the_middle_of_a_block(salt: int, size: int, data: st.DataObject) -> None:
    """A fork may set other options: whatever a block was decided by before, each rule goes on and comes to an end.

    With a constraint, it also ends with an answer in the language.
    """
    options: list[Rule] = [
        Threshold(),
        Quota(2),
        RunningConfidence(2),
        RunningConfidence(),
        Saber(),
        Saber(1),
        Credit(1.0),
        ReMDM(),
    ]
    options += [
        Hierarchy(remask_threshold=0.5),
        ReMDM("llada", 1),
        ReMDM("llada", 3, remask_forwards=2),
        ReMDM("cap", 3, eta=1.0),
        ReMDM("loop", 9, eta=1.0),
    ]
    changes = data.draw(st.lists(st.sampled_from(options), min_size=1, max_size=9))
    strategies = [MultiBD(block_size=size, buffer_size=2, rule=rule) for rule in changes]
    automaton = data.draw(st.none() | st.sampled_from(random_automata()))
    request = Request(0, (1, 2), SamplingParams(max_tokens=9, seed=salt), constraint=automaton)
    if not (waiting := add(init(Config(SPEC), strategies[0]), request).waiting):
        return  # the language has no text that fits
    (sequence,) = waiting
    for forward in range(100):
        strategy = strategies[min(forward, len(strategies) - 1)]
        span = strategy.schedule(sequence, SPEC)
        drawn = [hash((salt, forward, position)) for position in span.sampled]
        allowed = [mask.ids() for mask in span.masks] or [range(EOS)] * len(drawn)
        best = tuple(
            ids[(number + rank) % len(ids)] for number, ids in zip(drawn, allowed, strict=True) for rank in range(BEST)
        )
        chances = tuple((number % 11) / 10 / (1 + rank) for number in drawn for rank in range(BEST))
        rows = SpanSamples(best[::BEST], chances[::BEST], (), (), best, chances)
        counted = sequence.after_forward(sequence.storage, 1)
        sequence = judge(strategy.commit(counted, span, rows, SPEC), sequence.settled, SPEC)
        if sequence.finish is not None:
            assert automaton is None or automaton.accepts(sequence.answer)
            return
        assert strategy.measure(sequence) > 0
    raise AssertionError("a block does not end")

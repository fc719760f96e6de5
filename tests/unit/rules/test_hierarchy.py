"""The hierarchical rule where it is the threshold rule, and tokens that it never doubts."""

from hypothesis import assume, given, strategies as st

from dlstep.core import Config, Request, SamplingParams, SpanSamples, Spec, add, commit, init, schedule
from dlstep.rules.hierarchy import Hierarchy
from dlstep.rules.threshold import Threshold
from dlstep.strategies.dual_cache import DualCache
from dlstep.testing.scripted import ScriptedDriver

from .single_forwards import EOS, MASK, TENTHS, Forward, forwards


@given(forward=forwards(), accept=TENTHS, must=st.booleans())
def test_stretches_that_count_for_nothing_leave_the_threshold_rule(forward: Forward, accept: float, must: bool) -> None:
    assert forward.chosen(Hierarchy(1.0, accept), must=must) == forward.chosen(Threshold(accept), must=must)


@given(chances=st.lists(TENTHS, min_size=1, max_size=9).map(tuple), low=TENTHS)
def test_tokens_that_are_never_doubted_stay(chances: tuple[float, ...], low: float) -> None:
    """With probabilities that never change and are not below the doubt, the form with remasking remasks nothing."""

    def texts(rule: Hierarchy) -> list[tuple[int, ...]]:
        size = len(chances)
        state = init(Config(Spec(MASK, (EOS,), 100)), DualCache(block_size=size, cache="none", rule=rule))
        state = add(state, Request(0, (0,), SamplingParams(max_tokens=size)))
        driver = ScriptedDriver(
            lambda span: SpanSamples(span.wanted.sampled, tuple(chances[position - 1] for position in span.wanted.sampled))
        )
        found: list[tuple[int, ...]] = []
        while not state.done:
            state = commit(state, driver.run(schedule(state)))
            sequence = state.find(0)
            assert sequence is not None
            found.append(sequence.tokens(1, size + 1))
        return found

    assume(min(chances) > 0.0)
    assert texts(Hierarchy(low, remask_threshold=min(chances))) == texts(Hierarchy(low))

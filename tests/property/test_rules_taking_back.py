"""What holds of all rules that remask."""

from hypothesis import given, strategies as st

from dlstep.core import SpanSamples
from dlstep.rules.remdm import ReMDM
from dlstep.rules.running_confidence import RunningConfidence
from dlstep.rules.saber import Saber

from ..unit.rules.by_hand import after, fresh


@given(chances=st.permutations([0.11, 0.23, 0.31, 0.47, 0.59, 0.61, 0.83, 0.97]))
def test_positions_do_not_matter(chances: list[float]) -> None:
    """Without ties, rules that look at probabilities only keep the same ones, wherever they are."""
    sure = sorted(chances)
    for rule in (RunningConfidence(3), Saber(3), ReMDM("llada", 2, remask_count=2, remask_forwards=1)):
        block = after(rule, fresh(8), SpanSamples(tuple(range(8)), tuple(chances)))
        kept = sorted(p for p in block.probabilities if p)
        expected = {RunningConfidence: sure[5:], Saber: sure[6:], ReMDM: sure[6:]}[type(rule)]
        assert kept == expected, rule

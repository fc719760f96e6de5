"""The entropy bound at the ends of its options."""

from dataclasses import replace

from hypothesis import assume, given, strategies as st

from dlstep.rules.entropy_bound import EntropyBound

from .single_forwards import TENTHS, Forward, forwards


@given(forward=forwards(), order=st.sampled_from(["entropy", "confidence", "margin"]))
def test_without_a_bound_one_is_unmasked(forward: Forward, order: str) -> None:
    assume(all(forward.entropies))
    assert len(forward.chosen(EntropyBound(0.0, order=order))) == 1  # type: ignore[arg-type]


@given(forward=forwards(distinct=True), bound=TENTHS)
def test_orders_that_agree_unmask_the_same(forward: Forward, bound: float) -> None:
    entropies = tuple(round(entropy * 1024) / 1024 for entropy in forward.entropies)  # sums do not depend on their order
    falling = tuple(-entropy for entropy in entropies)
    alike = replace(forward, probabilities=falling, margins=falling, entropies=entropies)
    assume(len(set(alike.entropies)) == len(alike.entropies))
    chosen = alike.chosen(EntropyBound(bound))
    assert alike.chosen(EntropyBound(bound, order="confidence")) == alike.chosen(EntropyBound(bound, order="margin")) == chosen

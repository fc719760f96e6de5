"""Special cases in which a rule is another one, and rules that do not look at positions. One section for each rule."""

from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

import pytest
from hypothesis import assume, given, strategies as st

from dlstep.core import (
    Block,
    Choice,
    Config,
    Request,
    Rows,
    SamplingParams,
    Sequence,
    Spec,
    add,
    commit,
    init,
    open_block,
    schedule,
)
from dlstep.rules.dilated import Dilated, levels
from dlstep.rules.entropy_bound import EntropyBound
from dlstep.rules.factor import Factor
from dlstep.rules.hierarchy import Hierarchy
from dlstep.rules.local_leap import LocalLeap
from dlstep.rules.quota import Quota, dream_shares
from dlstep.rules.spaced import Spaced
from dlstep.rules.threshold import Threshold
from dlstep.strategies.dual_cache import DualCache
from dlstep.testing.scripted import ScriptedDriver

PROMPT, MASK, EOS = 3, 99, 98
ORDERS = ("confidence", "margin", "entropy", "random", "left")
TENTHS = st.integers(0, 10).map(lambda tenths: tenths / 10)


@lru_cache(maxsize=64)
def sequence_of(size: int) -> Sequence:
    """A request for an answer of `size`."""
    state = init(Config(Spec(MASK, (EOS,), 100)), DualCache(block_size=size, cache="none"))
    state = add(state, Request(0, (0,) * PROMPT, SamplingParams(max_tokens=size, seed=7)))
    sequence = state.find(0)
    assert sequence is not None
    return sequence


@dataclass(frozen=True)
class Forward:
    """A block of which the offsets `left` are undecided, and the rows of a forward; two rows in front are another block's."""

    size: int
    left: tuple[int, ...]
    probabilities: tuple[float, ...]
    entropies: tuple[float, ...]
    margins: tuple[float, ...]
    tokens: tuple[int, ...]
    number: int = 0

    def taken(self, rule: Choice, *, must: bool = True) -> list[int]:
        """Offsets that the rule takes."""
        sequence = sequence_of(self.size)
        sequence = sequence.with_ledger(replace(sequence.ledger, steps=self.number + 1))
        block: Block = open_block(PROMPT, self.size, PROMPT + self.size, (), MASK)
        gone = [offset for offset in range(self.size) if offset not in self.left]
        block = block.decide(gone, 0, (1,) * self.size, (1.0,) * self.size)
        other = (0.97, 0.03)
        rows = Rows((5, 6, *self.tokens), other + self.probabilities, other + self.entropies, other + self.margins)
        chosen = rule.chosen(sequence, block, rows, 2, must)
        assert chosen == sorted(set(chosen)), "rows come once, ascending"
        accepted = rule.accepted(rows)  # of all blocks at once, where the rule can
        assert must or accepted is None or chosen == [row for row in accepted if row >= 2]
        return [self.left[row - 2] for row in chosen]

    def permuted(self, order: list[int]) -> "Forward":
        """The same rows at other positions: entry i goes to the place that entry `order[i]` had."""
        parts = (self.probabilities, self.entropies, self.margins, self.tokens)
        moved = [tuple(part[index] for index in order) for part in parts]
        return Forward(self.size, self.left, *moved, number=self.number)  # type: ignore[arg-type]


@st.composite
def forwards(draw: st.DrawFn, *, distinct: bool = False, least: int = 1) -> Forward:
    """Blocks that are partly decided; with `distinct`, no two rows have a number in common."""
    size = draw(st.integers(least, 10))
    left = tuple(sorted(draw(st.sets(st.integers(0, size - 1), min_size=least))))
    count = len(left)

    def numbers(own: st.SearchStrategy[float]) -> tuple[float, ...]:
        return tuple(draw(st.lists(own, min_size=count, max_size=count, unique=distinct)))

    fine = st.integers(0, 1000).map(lambda number: number / 1000) if distinct else TENTHS
    tokens = tuple(draw(st.lists(st.sampled_from([1, 2, EOS]), min_size=count, max_size=count)))
    return Forward(size, left, numbers(fine), numbers(fine), numbers(fine), tokens, draw(st.integers(0, 3)))


# threshold


@given(forward=forwards(), accept=TENTHS, inclusive=st.booleans(), must=st.booleans())
def test_a_threshold_on_entropies_is_one_on_doubt(forward: Forward, accept: float, inclusive: bool, must: bool) -> None:
    """Where entropy is one less the probability, both orders take the same."""
    alike = replace(forward, entropies=tuple(round(1 - probability, 1) for probability in forward.probabilities))
    by_entropy = Threshold(order="entropy", entropy_threshold=round(1 - accept, 1), inclusive=inclusive)
    assert alike.taken(by_entropy, must=must) == alike.taken(Threshold(accept, inclusive=inclusive), must=must)


@given(forward=forwards(), falling=TENTHS)
def test_the_first_forward_of_a_block_has_the_whole_threshold(forward: Forward, falling: float) -> None:
    plain, less = forward.taken(Threshold(0.8), must=False), forward.taken(Threshold(0.8, falling=falling), must=False)
    assert set(plain) <= set(less)
    assert less == plain or (falling and len(forward.left) < forward.size)


@pytest.mark.parametrize(
    "options",
    [
        {"order": "entropy", "accept_threshold": 0.5},
        {"order": "entropy", "falling": 0.3},
        {"entropy_threshold": 0.4},
    ],
)
def test_options_of_the_other_order_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="has no effect with order="):
        Threshold(**options)  # type: ignore[arg-type]


# quota


@given(forward=forwards(), accept=TENTHS)
def test_a_quota_of_one_with_a_threshold_beside_it_is_the_threshold_rule(forward: Forward, accept: float) -> None:
    assert forward.taken(Quota(dynamic_threshold=accept)) == forward.taken(Threshold(accept))


@given(forward=forwards(), order=st.sampled_from(ORDERS))
def test_one_forward_takes_all(forward: Forward, order: str) -> None:
    for schedule_ in ("even", "dream"):
        assert forward.taken(Quota(1, schedule=schedule_, order=order)) == list(forward.left)  # type: ignore[arg-type]


@given(
    forward=forwards(),
    heat=st.sampled_from([None, 0.3]),
    order=st.sampled_from(ORDERS),
)
def test_ends_of_the_answer_come_last(forward: Forward, heat: float | None, order: str) -> None:
    rule = Quota(3, order=order, order_temperature=None if order in ("random", "left") else heat, eos_last=True)  # type: ignore[arg-type]
    taken = forward.taken(rule)
    ends = {offset for offset, token in zip(forward.left, forward.tokens, strict=True) if token == EOS}
    assert not ends & set(taken) or set(forward.left) - ends <= set(taken)


@given(forward=forwards(distinct=True), count=st.integers(1, 3))
def test_a_cold_temperature_of_the_order_is_none(forward: Forward, count: int) -> None:
    assert forward.taken(Quota(count, order_temperature=1e-6)) == forward.taken(Quota(count))


@given(size=st.integers(1, 300), forwards=st.integers(1, 2000))
def test_the_shares_of_dream_are_those_of_its_schedule_without_zeros(size: int, forwards: int) -> None:
    left, shares = size, list[int]()
    for forward in range(forwards):
        before, after = (1 + (forward + more) * (0.001 - 1) / forwards for more in (0, 1))
        share = left if forward == forwards - 1 else int(left * (1 - after / before))
        left -= share
        shares.append(share)
    assert dream_shares(size, forwards) == tuple(share for share in shares if share)


def test_the_shares_of_very_many_forwards_are_found_at_once() -> None:
    assert sum(dream_shares(20, 10**12)) == 20


@given(forward=forwards(least=6))
def test_the_last_forward_takes_all_that_chance_has_left(forward: Forward) -> None:
    rule = Quota(1000, schedule="dream", order="independent")
    assert replace(forward, number=999).taken(rule) == list(forward.left)
    assert len(replace(forward, number=3).taken(rule)) < 6


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"order": "independent"}, "needs the chances of Dream's schedule"),
        ({"order": "random", "order_temperature": 0.5}, "order_temperature=0.5 has no effect with order='random'"),
        ({"schedule": "dream", "dynamic_threshold": 0.9}, "dynamic_threshold=0.9 does not go with schedule='dream'"),
        ({"schedule": "dream", "order": "independent", "eos_last": True}, "eos_last=True has no effect"),
    ],
)
def test_quotas_that_contradict_themselves_are_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Quota(**options)  # type: ignore[arg-type]


def test_quotas_want_what_they_order_by() -> None:
    assert Quota().wants.statistics == Quota(order="random").wants.statistics == frozenset()
    assert Quota(order="margin").wants.statistics == {"margin"}
    assert Quota(order="entropy").wants.statistics == {"entropy"}


# factor


@given(forward=forwards())
def test_a_large_factor_takes_all(forward: Forward) -> None:
    assert forward.taken(Factor(100.0)) == list(forward.left)


@given(forward=forwards())
def test_no_factor_takes_what_is_certain(forward: Forward) -> None:
    assert forward.taken(Factor(0.0), must=False) == forward.taken(Threshold(1.0, inclusive=True), must=False)


# entropy_bound


@given(forward=forwards(), order=st.sampled_from(["entropy", "confidence", "margin"]))
def test_without_a_bound_one_is_taken(forward: Forward, order: str) -> None:
    assume(all(forward.entropies))
    assert len(forward.taken(EntropyBound(0.0, order=order))) == 1  # type: ignore[arg-type]


@given(forward=forwards(distinct=True), bound=TENTHS)
def test_orders_that_agree_take_the_same(forward: Forward, bound: float) -> None:
    entropies = tuple(round(entropy * 1024) / 1024 for entropy in forward.entropies)  # sums do not depend on their order
    falling = tuple(-entropy for entropy in entropies)
    alike = replace(forward, probabilities=falling, margins=falling, entropies=entropies)
    assume(len(set(alike.entropies)) == len(alike.entropies))
    taken = alike.taken(EntropyBound(bound))
    assert alike.taken(EntropyBound(bound, order="confidence")) == alike.taken(EntropyBound(bound, order="margin")) == taken


# local_leap


@given(forward=forwards(), accept=TENTHS, radius=st.integers(0, 12), must=st.booleans())
def test_a_leap_to_the_same_threshold_is_the_threshold_rule(forward: Forward, accept: float, radius: int, must: bool) -> None:
    expected = forward.taken(Threshold(accept, inclusive=True), must=must)
    assert forward.taken(LocalLeap(accept, accept, radius), must=must) == expected
    assert forward.taken(LocalLeap(accept, 0.0, 0), must=must) == expected


# hierarchy


@given(forward=forwards(), accept=TENTHS, must=st.booleans())
def test_stretches_that_count_for_nothing_leave_the_threshold_rule(forward: Forward, accept: float, must: bool) -> None:
    assert forward.taken(Hierarchy(1.0, accept), must=must) == forward.taken(Threshold(accept), must=must)


@given(chances=st.lists(TENTHS, min_size=1, max_size=9).map(tuple), low=TENTHS)
def test_tokens_that_are_never_doubted_stay(chances: tuple[float, ...], low: float) -> None:
    """With probabilities that never change and are not below the doubt, the form that takes back takes nothing back."""

    def texts(rule: Hierarchy) -> list[tuple[int, ...]]:
        size = len(chances)
        state = init(Config(Spec(MASK, (EOS,), 100)), DualCache(block_size=size, cache="none", rule=rule))
        state = add(state, Request(0, (0,), SamplingParams(max_tokens=size)))
        driver = ScriptedDriver(lambda span: Rows(span.wanted, tuple(chances[position - 1] for position in span.wanted)))
        found: list[tuple[int, ...]] = []
        while not state.done:
            state = commit(state, driver.run(schedule(state)))
            sequence = state.find(0)
            assert sequence is not None
            found.append(sequence.tokens(1, size + 1))
        return found

    assume(min(chances) > 0.0)
    assert texts(Hierarchy(low, remask_threshold=min(chances))) == texts(Hierarchy(low))


# dilated


@given(forward=forwards())
def test_one_stride_takes_all(forward: Forward) -> None:
    assert forward.taken(Dilated(base=max(forward.size, 2))) == list(forward.left)


@given(size=st.integers(1, 300), base=st.integers(2, 5), skip=st.integers(0, 4))
def test_levels_part_a_block(size: int, base: int, skip: int) -> None:
    found = levels(size, base, skip)
    assert sorted(offset for level in found for offset in level) == list(range(size)) and all(found)
    if (base, skip) == (2, 1):
        assert len(found) <= (size - 1).bit_length() + 1


def test_a_block_of_eight_has_three_levels() -> None:
    assert [sorted(level) for level in levels(8, 2, 1)] == [[0, 4], [2, 6], [1, 3, 5, 7]]


# spaced


@given(forward=forwards(), accept=TENTHS, stride=st.integers(1, 12) | st.none(), must=st.booleans())
def test_spacing_only_thins_out(forward: Forward, accept: float, stride: int | None, must: bool) -> None:
    chosen, kept = (forward.taken(rule, must=must) for rule in (Threshold(accept), Spaced(Threshold(accept), stride)))
    assert set(kept) <= set(chosen) and bool(kept) == bool(chosen)
    assert all(later - earlier >= 2 for earlier, later in pairwise(kept))
    if len(chosen) == 1:
        assert kept == chosen


def test_a_rule_that_takes_back_cannot_be_spaced() -> None:
    with pytest.raises(ValueError, match=r"Spaced.inner must take positions for good, but .* takes some back: give another"):
        Spaced(Hierarchy(remask_threshold=0.4))
    assert Spaced(Quota(schedule="dream")).whole and Spaced(EntropyBound()).wants == EntropyBound().wants


# Rules that do not look at positions. `dilated`, `spaced`, `local_leap`, `hierarchy` and quotas from the left or at random do.

BLIND: list[Choice] = [
    Threshold(0.6),
    Threshold(order="entropy"),
    Threshold(0.8, falling=0.4),
    Quota(3),
    Quota(3, order="margin"),
    Quota(3, order="entropy"),
    Quota(3, schedule="dream"),
    Quota(3, dynamic_threshold=0.5),
    Factor(1.5),
    EntropyBound(0.5),
    EntropyBound(0.5, order="confidence"),
    EntropyBound(0.5, order="margin"),
]


@pytest.mark.parametrize("rule", BLIND, ids=repr)
@given(data=st.data())
def test_rows_that_change_places_are_taken_as_before(rule: Choice, data: st.DataObject) -> None:
    forward = data.draw(forwards(distinct=True))
    order = data.draw(st.permutations(range(len(forward.left))))
    moved = forward.permuted(order)
    there = {forward.left[order[forward.left.index(offset)]] for offset in moved.taken(rule)}
    assert there == set(forward.taken(rule))

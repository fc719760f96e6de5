"""Rules that take back, and the rule that remembers, by hand and where they become other rules."""

import math
import re
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, strategies as st

from dlstep.core import (
    Block,
    Config,
    Request,
    Rows,
    Rule,
    SamplingParams,
    Sequence,
    Span,
    Spec,
    Strategy,
    add,
    commit,
    init,
    open_block,
    schedule,
    with_options,
)
from dlstep.core.draws import key, uniform
from dlstep.rules.credit import BEST, Credit, Credits
from dlstep.rules.quota import Quota
from dlstep.rules.remdm import ReMDM
from dlstep.rules.running_confidence import RunningConfidence
from dlstep.rules.saber import Confidences, Saber
from dlstep.rules.threshold import Threshold
from dlstep.strategies.dual_cache import DualCache
from dlstep.strategies.multi_bd import MultiBD
from dlstep.testing.generators import EOS, MASK, VOCABULARY
from dlstep.testing.scripted import ScriptedDriver

SPEC = Spec(MASK, (EOS,), VOCABULARY)
SALTS = st.integers(0, 1 << 30)
STEPS = st.one_of(st.none(), st.integers(1, 12))
REQUESTS = st.builds(
    Request,
    id=st.just(0),
    prompt=st.lists(st.integers(0, EOS - 1), min_size=1, max_size=9).map(tuple),
    params=st.builds(SamplingParams, max_tokens=st.integers(1, 20), ignore_eos=st.just(True), seed=st.integers(0, 9)),
)


def answered(
    strategy: Strategy, request: Request, salt: int, *, constant: bool = False
) -> tuple[tuple[int, ...], tuple[float, ...], int]:
    """Answer, probabilities and forwards; rows are a function of what is fed and the position, or of the position alone."""

    def rows(span: Span) -> Rows:
        drawn = [hash((salt, position, () if constant else span.tokens)) for position in span.wanted]
        tokens = tuple(number % MASK for number in drawn)
        chances = tuple((number // MASK % 11) / 10 for number in drawn)
        best = strategy.wants.best
        ids = tuple((token + rank) % MASK for token in tokens for rank in range(best))
        pairs = tuple(chance / (1 + rank) for chance in chances for rank in range(best))
        return Rows(tokens, chances, best_ids=ids, best_probabilities=pairs)

    driver = ScriptedDriver(rows)
    state = add(init(Config(SPEC), strategy), request)
    while not state.done:
        state = commit(state, driver.run(schedule(state)))
    sequence = state.finished[0]
    return sequence.answer, sequence.probabilities, sequence.steps


def carriers(size: int, rule: Rule) -> list[Strategy]:
    return [MultiBD(block_size=size, rule=rule), DualCache(size, "none", rule), DualCache(size, "dual", rule)]


def begun(rule: Rule, block: Block, temperature: float = 0.0) -> Sequence:
    """A sequence whose first forward has just been counted."""
    params = SamplingParams(max_tokens=len(block.tokens), temperature=temperature, seed=5)
    state = add(init(Config(SPEC), MultiBD(rule=rule)), Request(0, (1,), params))
    (sequence,) = state.waiting
    return sequence.counted(sequence.storage, 1)


def after(rule: Rule, block: Block, rows: Rows, forwards: int = 1) -> Block:
    """The block after forward number `forwards`."""
    sequence = begun(rule, block)
    for _ in range(forwards - 1):
        sequence = sequence.counted(sequence.storage, 1)
    return rule.decided(sequence, block, rows, 0, True, SPEC)


def shown(block: Block) -> str:
    """Tokens, `_` for masks."""
    masks = set(block.undecided)
    return " ".join("_" if block.start + offset in masks else str(token) for offset, token in enumerate(block.tokens))


def fresh(size: int) -> Block:
    return open_block(1, size, 1 + size, (1,), MASK)


# Reductions.


@given(request=REQUESTS, salt=SALTS, size=st.integers(1, 9), steps=STEPS)
def test_running_confidence_with_constant_confidences_is_quota(
    request: Request, salt: int, size: int, steps: int | None
) -> None:
    """The two schedules round otherwise, so that they take equally many forwards where nothing is rounded."""
    pairs = zip(carriers(size, RunningConfidence(steps)), carriers(size, Quota(steps)), strict=True)
    for one, other in pairs:
        *found, forwards = answered(one, request, salt, constant=True)
        *expected, least = answered(other, request, salt, constant=True)
        assert found == expected and (forwards == least or steps not in (None, 1))


@given(request=REQUESTS, salt=SALTS, size=st.integers(1, 9), steps=STEPS)
def test_running_confidence_with_one_segment_is_that_of_one_block(
    request: Request, salt: int, size: int, steps: int | None
) -> None:
    length = request.params.max_tokens
    whole = DualCache(size, "none", RunningConfidence(steps, segment_size=length))
    assert answered(whole, request, salt) == answered(DualCache(length, "none", RunningConfidence(steps)), request, salt)


@given(request=REQUESTS, salt=SALTS, size=st.integers(1, 9), inclusive=st.booleans(), data=st.data())
def test_credit_without_weight_is_threshold(
    request: Request, salt: int, size: int, inclusive: bool, data: st.DataObject
) -> None:
    accept = data.draw(st.sampled_from([0.0, 0.3, 0.5, 0.9, 1.0]))
    credit = Credit(accept, inclusive=inclusive, credit_weight=0.0)
    pairs = zip(carriers(size, credit), carriers(size, Threshold(accept, inclusive=inclusive)), strict=True)
    for one, other in pairs:
        assert answered(one, request, salt) == answered(other, request, salt)


@given(chances=st.lists(st.integers(0, 10), min_size=1, max_size=9), mean=st.integers(0, 10))
def test_saber_takes_nothing_back_in_a_forward_that_takes_one(chances: list[int], mean: int) -> None:
    """With `least_taken=1` one position may be taken, and then no token is masked."""
    rule, size = Saber(least_taken=1), len(chances)
    rows = Rows(tuple(range(size)), tuple(chance / 10 for chance in chances))
    first = fresh(size).take((1,), (7,), (mean / 10,)).remembering(
        Confidences((mean / 10, *[-1.0] * (size - 1)), (1.0,) * size)
    )  # fmt: skip
    if not first.undecided:
        return
    block = after(rule, first, rows, 2)
    above = sum(chance > mean for chance in chances[1:])
    if above <= 1:
        assert len(block.undecided) == len(first.undecided) - 1
        assert block.tokens[0] == 7
    elif block.undecided:
        assert len(block.undecided) == len(first.undecided) - above + -(-above // 8)


@given(request=REQUESTS, salt=SALTS, size=st.integers(1, 9), steps=STEPS)
def test_remdm_without_loops_is_quota(request: Request, salt: int, size: int, steps: int | None) -> None:
    rule = ReMDM(steps_per_block=steps, remask_forwards=0)
    for one, other in zip(carriers(size, rule), carriers(size, Quota(steps)), strict=True):
        assert answered(one, request, salt) == answered(other, request, salt)


@given(request=REQUESTS, salt=SALTS, size=st.integers(1, 9), steps=STEPS)
def test_remdm_without_strength_masks_nothing(request: Request, salt: int, size: int, steps: int | None) -> None:
    """`cap` and `rescale` are then one plain sampler."""
    cap, rescale = ReMDM("cap", steps, eta=0.0), ReMDM("rescale", steps, eta=0.0)
    for one, other in zip(carriers(size, cap), carriers(size, rescale), strict=True):
        assert answered(one, request, salt) == answered(other, request, salt)


@given(chances=st.permutations([0.11, 0.23, 0.31, 0.47, 0.59, 0.61, 0.83, 0.97]))
def test_positions_do_not_matter(chances: list[float]) -> None:
    """Without ties, rules that look at probabilities only keep the same ones, wherever they are."""
    sure = sorted(chances)
    for rule in (RunningConfidence(3), Saber(3), ReMDM("llada", 2, remask_count=2, remask_forwards=1)):
        block = after(rule, fresh(8), Rows(tuple(range(8)), tuple(chances)))
        kept = sorted(p for p in block.probabilities if p)
        expected = {RunningConfidence: sure[5:], Saber: sure[6:], ReMDM: sure[6:]}[type(rule)]
        assert kept == expected, rule


# By hand. Further rows stand in the pages of the rules.


def test_saber_by_hand() -> None:
    """The mean of what was taken is the threshold; what lost most is taken back; its value stays in the mean."""
    rule, block = Saber(least_taken=2), fresh(7)
    block = after(rule, block, Rows((10, 11, 12, 13, 14, 15, 16), (0.5, 0.8, 0.6, 0.7, 0.1, 0.2, 0.1)))
    assert shown(block) == "_ 11 _ _ _ _ _"  # 0.8 and 0.7 were taken; 0.7 gained less than 0.8
    assert block.extra == Confidences((-1.0, 0.8, -1.0, 0.7, -1.0, -1.0, -1.0), (0.5, 0.8, 0.6, 0.7, 0.1, 0.2, 0.1))
    block = after(rule, block, Rows((20, 21, 22, 23, 24, 25, 26), (0.76, 0.1, 0.77, 0.9, 0.75, 0.3, 0.1)), 2)
    assert shown(block) == "20 _ 22 23 _ _ _"  # the mean is 0.75, which is not above itself; 11 fell by 0.7
    # 11's 0.8 is in the mean of 0.8075 still, which 34 is above.
    block = after(rule, block, Rows((30, 31, 32, 33, 34, 35, 36), (0.2, 0.9, 0.3, 0.4, 0.809, 0.9, 0.1)), 3)
    assert shown(block) == "_ 31 22 23 34 35 _"
    block = after(rule, block, Rows((40, 41, 42, 43, 44, 45, 46), (0.1, 0.9, 0.3, 0.4, 0.8, 0.9, 0.1)), 4)
    assert shown(block) == "40 31 22 23 34 35 46"
    assert block.extra is None


def test_credit_by_hand() -> None:
    """Two forwards of one position, and one that the threshold is not reached in."""
    rule = Credit(0.9, credit_weight=1.0, credit_power=1.0, credit_decay=0.5)
    ids, chances = (1, 2, 3, 4, 5, 6, 7, 8), (0.5, 0.4, 0.1, 0, 0, 0, 0, 0)
    block = fresh(2)
    twice = Rows((1, 1), (0.5, 0.5), (), (), ids * 2, chances * 2)
    sequence = begun(rule, block)
    block = rule.decided(sequence, block, twice, 0, False, SPEC)
    assert block.undecided == (1, 2)
    assert block.extra == Credits(((1,), (1,)), ((0.5,), (0.5,)))
    swapped = Rows((2, 1), (0.4, 0.5), (), (), (2, 1, 3, 4, 5, 6, 7, 8, *ids), (0.4, 0.35, 0.25, 0, 0, 0, 0, 0, *chances))
    sequence = sequence.counted(sequence.storage, 1)
    block = rule.decided(sequence, block, swapped, 0, True, SPEC)
    # Position 1: id 2 has 0.4, 0.4 (1 + 0.4) = 0.56; id 1 has 0.25, 0.35 (1 + 0.25) = 0.4375; id 3 0.25. 0.56 / 1.2475.
    # Position 2: id 1 has 0.75: 0.5 (1 + 0.75) = 0.875; 0.875 / (0.875 + 0.5), which is the best.
    assert block.undecided == (1,) and block.tokens == (MASK, 1)
    assert block.probabilities[1] == pytest.approx(0.875 / 1.375)
    assert block.extra == Credits(((2, 1),), ((0.4, 0.25),))
    # Id 1 is the best one again: half of its 0.25, and 0.5 gained; id 2 keeps half of its 0.4.
    again = rule.decided(sequence, block, Rows((1,), (0.5,), (), (), ids, chances), 0, False, SPEC)
    assert again.extra == Credits(((1, 2),), ((0.625, 0.2),)) and again.undecided == (1,)


def test_no_more_than_so_many_ids_have_credit() -> None:
    """The weakest credit goes, never that of the id that is the most probable one now."""
    rule, block = Credit(1.0, credit_weight=0.0, credit_power=1.0, credit_decay=1.0), fresh(1)
    sequence = begun(rule, block)
    for best in range(BEST + 3):
        chance = 0.9 - best / 20
        rest = tuple((best + rank) % MASK for rank in range(1, BEST))
        rows = Rows((best,), (chance,), (), (), (best, *rest), (chance, *[0.0] * (BEST - 1)))
        block = rule.decided(sequence, block, rows, 0, False, SPEC)
        assert isinstance(block.extra, Credits)
        ((ids,), _) = block.extra.ids, block.extra.amounts
        assert ids[0] == best and len(ids) == min(best + 1, BEST)
    assert set(ids) == {*range(BEST - 1), BEST + 2}


def test_credit_samples_from_the_fused_probabilities() -> None:
    """The id that wins with the noise of the sampled token is that of all ids' fused probabilities; so is its probability."""
    random, differ = Random(4), 0
    rule = Credit(0.0, credit_weight=3.0, credit_power=0.3, credit_decay=0.9)
    for number in range(200):
        weights = [random.random() ** 2 for _ in range(20)]
        chances = [weight / math.fsum(weights) for weight in weights]
        block = fresh(1).remembering(Credits(((3, 8, 11),), ((random.random() * 3, random.random(), 0.4),)))
        sequence = begun(rule, block, temperature=1.0)
        sequence = sequence.asking(Request(0, (1,), SamplingParams(temperature=1.0), seed=number))
        order = sorted(range(20), key=lambda token: -chances[token])
        stream = key(number, 1, 0, "sample")
        noise = [-math.log(-math.log(uniform(stream, token))) for token in range(20)]
        sampled = max(range(20), key=lambda token: math.log(chances[token]) + noise[token])
        rows = Rows((sampled,), (chances[sampled],), (), (), tuple(order[:BEST]), tuple(chances[t] for t in order[:BEST]))
        credit = {3: 0.0, 8: 0.0, 11: 0.0}
        assert isinstance(block.extra, Credits)
        credit |= dict(zip((3, 8, 11), (amount * 0.9 for amount in block.extra.amounts[0]), strict=True))
        credit[order[0]] = credit.get(order[0], 0.0) + chances[order[0]] ** 0.3
        raised = [
            chance * (1 + credit.get(token, 0.0)) ** 3 if token in order[:BEST] else chance
            for token, chance in enumerate(chances)
        ]
        token = max(range(20), key=lambda token: math.log(raised[token]) + noise[token])
        found = rule.decided(sequence, block, rows, 0, True, SPEC)
        assert found.tokens == (token,)
        # A sampled id outside of the best ones, which has credit, is not told of beside the others.
        if token in order[:BEST] or token not in credit:
            assert found.probabilities[0] == pytest.approx(raised[token] / math.fsum(raised), abs=1e-9)
        differ += token != sampled
    assert differ > 20


def test_remdm_masks_and_takes_as_often_as_it_should() -> None:
    """Shares of a long block, over seeds: step 5 of 10 takes masks and masks tokens with the formula's probabilities."""
    size, seeds = 64, 300
    half = tuple(range(1, 1 + size, 2))
    for rule, sigma in ((ReMDM("cap", 10, eta=0.3), 0.3), (ReMDM("rescale", 10, eta=0.5), 0.4), (ReMDM("conf", 10), 0.8 / 32)):
        counts: Counter[str] = Counter()
        for seed in range(seeds):
            block = fresh(size).take(half, (7,) * 32, (0.5,) * 32)
            taken, gone = rule.lucky(block, 5, 10, seed), rule.unlucky(block, block.sampled(1 + size), 5, 10, seed)
            assert not set(taken) & set(half) and set(gone) <= set(half)
            counts.update(taken=len(taken), gone=len(gone))
        own = 0.0 if rule.variant == "conf" else sigma
        assert counts["gone"] / (32 * seeds) == pytest.approx(sigma, abs=0.015)
        assert counts["taken"] / (32 * seeds) == pytest.approx((0.6 - (1 - own) * 0.5) / 0.5, abs=0.02)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"eta": 0.5}, "ReMDM.eta=0.5 does nothing with variant='llada': leave it out, or choose 'cap' or 'rescale' or 'loop'"),
        ({"variant": "conf", "eta": 0.5}, "ReMDM.eta=0.5 does nothing with variant='conf'"),
        ({"variant": "cap", "remask_count": 2}, "ReMDM.remask_count=2 does nothing with variant='cap'"),
        ({"variant": "rescale", "t_on": 0.5}, "ReMDM.t_on=0.5 does nothing with variant='rescale'"),
        ({"variant": "loop", "t_on": 0.01}, "ReMDM.t_on=0.01 must not be below t_off=0.05"),
        ({"variant": "loops"}, "ReMDM.variant must be one of 'llada'"),
    ],
)
def test_options_that_do_nothing_are_refused(options: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        with_options(ReMDM(), options)


@given(salt=SALTS, size=st.integers(1, 8), data=st.data())
def test_rules_may_change_in_the_middle_of_a_block(salt: int, size: int, data: st.DataObject) -> None:
    """A fork may set other options: whatever a block was decided by before, each rule goes on and comes to an end."""
    options = [Threshold(), Quota(2), RunningConfidence(2), RunningConfidence(), Saber(), Saber(1), Credit(1.0), ReMDM()]
    options += [ReMDM("llada", 1), ReMDM("llada", 3, remask_forwards=2), ReMDM("cap", 3, eta=1.0), ReMDM("loop", 9, eta=1.0)]
    changes = data.draw(st.lists(st.sampled_from(options), min_size=1, max_size=9))
    strategies = [MultiBD(block_size=size, buffer_size=2, rule=rule) for rule in changes]
    state = add(init(Config(SPEC), strategies[0]), Request(0, (1, 2), SamplingParams(max_tokens=9, seed=salt)))
    (sequence,) = state.waiting
    for forward in range(100):
        strategy = strategies[min(forward, len(strategies) - 1)]
        span = strategy.schedule(sequence, SPEC)
        drawn = [hash((salt, forward, position)) for position in span.wanted]
        best = tuple((number + rank) % EOS for number in drawn for rank in range(BEST))
        chances = tuple((number % 11) / 10 / (1 + rank) for number in drawn for rank in range(BEST))
        rows = Rows(best[::BEST], chances[::BEST], (), (), best, chances)
        sequence = sequence.counted(sequence.storage, 1)
        sequence = strategy.commit(sequence, span, rows, SPEC)
        if sequence.settled == sequence.limit:
            return
        assert strategy.measure(sequence) > 0
    raise AssertionError("a block does not end")


def test_choices_depend_on_the_seed_alone() -> None:
    """Equal seeds choose alike whoever else is decoded, and however a sequence is numbered; others choose otherwise."""
    strategy = MultiBD(block_size=16, rule=ReMDM("cap", 24, eta=0.5))
    state = init(Config(SPEC), strategy)
    for number, seed in enumerate((1, 2, 1)):
        state = add(state, Request(number, (1,), SamplingParams(max_tokens=15, seed=seed)))
    texts: dict[int, list[tuple[int, ...]]] = {0: [], 1: [], 2: []}
    driver = ScriptedDriver(lambda span: Rows(span.wanted, (0.5,) * len(span.wanted)))
    while not state.done:
        state = commit(state, driver.run(schedule(state)))
        for number, seen in texts.items():
            sequence = state.find(number) or state.finished[number]
            seen.append(sequence.tokens(0, 16))
    assert texts[0] == texts[2] != texts[1]


# The rows that the rules' pages show.

PAGES = Path(__file__).parents[2] / "docs" / "strategies"


def rows_of(name: str) -> list[list[str]]:
    """The cells of the table below "Five rows by hand"."""
    section = (PAGES / f"{name}.md").read_text().partition("## Five rows by hand\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    assert len(lines) == 5
    return [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines]


def numbers(cell: str) -> tuple[float, ...]:
    return tuple(map(float, cell.split()))


@pytest.mark.parametrize(("steps", "chances", "expected"), rows_of("running_confidence"))
def test_rows_of_running_confidence(steps: str, chances: str, expected: str) -> None:
    found = numbers(chances)
    rule = RunningConfidence(int(steps))
    assert shown(after(rule, fresh(len(found)), Rows(tuple(range(len(found))), found))) == expected


@pytest.mark.parametrize(("least", "chances", "expected"), rows_of("saber"))
def test_rows_of_saber(least: str, chances: str, expected: str) -> None:
    found = numbers(chances)
    assert shown(after(Saber(int(least)), fresh(len(found)), Rows(tuple(range(len(found))), found))) == expected


@pytest.mark.parametrize(("count", "chances", "expected"), rows_of("remdm"))
def test_rows_of_remdm(count: str, chances: str, expected: str) -> None:
    found = numbers(chances)
    rule = ReMDM(steps_per_block=1, remask_forwards=1, remask_count=int(count))
    assert shown(after(rule, fresh(len(found)), Rows(tuple(range(len(found))), found))) == expected


@pytest.mark.parametrize(("first", "second", "expected"), rows_of("credit"))
def test_rows_of_credit(first: str, second: str, expected: str) -> None:
    """Each entry is the probability of id 1; id 2 has the rest."""
    rule = Credit(credit_weight=1.0, credit_power=1.0, credit_decay=0.5)
    size = len(numbers(first))
    block, sequence = fresh(size), begun(rule, fresh(size))
    for must, chances in enumerate((numbers(first), numbers(second))):
        pairs = [sorted(((chance, 1), (1 - chance, 2)), reverse=True) for chance in chances]
        ids = tuple(token for pair in pairs for token in (pair[0][1], pair[1][1], 3, 4, 5, 6, 7, 8))
        best = tuple(p for pair in pairs for p in (pair[0][0], pair[1][0], 0, 0, 0, 0, 0, 0))
        rows = Rows(tuple(pair[0][1] for pair in pairs), tuple(pair[0][0] for pair in pairs), (), (), ids, best)
        block = rule.decided(sequence, block, rows, 0, bool(must), SPEC)
        sequence = sequence.counted(sequence.storage, 1)
    assert shown(block) == expected

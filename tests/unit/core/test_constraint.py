"""Constraints: masks are exact by brute force, and blocks drop only what contradicts what they keep."""

import gc
import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import product
from weakref import ref

import pytest
from hypothesis import assume, given, settings, strategies as st

from dlstep.core import Config, DlstepError, Request, SamplingParams, Spec, add, init, refusal, schedule
from dlstep.core.block import Block, open_block
from dlstep.core.constraint import RequestConstraint, bound
from dlstep.core.filtering import WindowFilter
from dlstep.core.trace import from_json, to_json
from dlstep.strategies.multi_bd import MultiBD
from dlstep.text.dfa import regex
from dlstep.text.token_automaton import token_automaton

from ...helpers.automata import byte_automata

PIECES = (b"a", b"b", b"ab", b"", b"")
STOP, MASK = 3, 4
IDS = (0, 1, 2, STOP)


def automaton_of(automaton):
    try:
        return token_automaton("drawn", automaton, PIECES, (STOP, MASK))
    except ValueError:
        return None


AUTOMATA = byte_automata().map(automaton_of).filter(bool)
CELLS = st.lists(st.sampled_from([None, None, None, 0, 1, 2, STOP]), min_size=1, max_size=5).map(tuple)


def answers(automaton, cells):
    """All ways to fill the gaps with a string of the language, followed by stop ids only."""
    found = []
    for filled in product(*[IDS if cell is None else (cell,) for cell in cells]):
        end = filled.index(STOP) if STOP in filled else len(filled)
        if automaton.accepts(filled[:end]) and {*filled[end:]} <= {STOP}:
            found.append(filled)
    return found


def window_of(cells, size, start=1):
    """Blocks of `size` with these cells, after a prompt of `start` tokens."""
    blocks = []
    for begin in range(0, len(cells), size):
        part = cells[begin : begin + size]
        tokens = tuple([MASK if cell is None else cell for cell in part])
        masked = tuple([start + begin + place for place, cell in enumerate(part) if cell is None])
        blocks.append(Block(start + begin, tokens, masked, tuple([0.0 if cell is None else 0.5 for cell in part])))
    return tuple(blocks)


@settings(max_examples=max(30, settings().max_examples))
@given(
    automaton=AUTOMATA,
    cells=CELLS,
    behind=st.lists(st.sampled_from([None, None, 0, 1]), max_size=2) | st.integers(0, 4).map(lambda count: [None] * count),
    size=st.integers(1, 3),
    reserve=st.integers(1, 3),
)
def test_masks_are_exact(automaton, cells, behind, size, reserve):
    """Pins stand in the window and behind it; each mask has the ids of all completions, no more and no fewer.

    With a reserve, these are the completions after which a fraction of the positions left suffices, or as few as possible.
    """
    pins = {len(cells) + place: token for place, token in enumerate(behind) if token is not None}
    count = len(cells) + len(behind)
    of = RequestConstraint(automaton, (STOP,), 1, 1 + count, tuple(pins.items()), reserve)
    if not pins:
        fitting = (left for left in range(len(behind) // reserve, len(behind)) if answers(automaton, (*cells, *behind[:left])))
        behind = behind[: next(fitting, len(behind))]
    gaps = (*cells, *behind)
    complete = answers(automaton, gaps)
    assume(complete)
    sampled = [1 + place for place, cell in enumerate(cells) if cell is None]
    masks = of.window_masks(0, 1, window_of(cells, size), sampled)
    for position, mask in zip(sampled, masks, strict=True):
        assert set(mask.ids()) == {filled[position - 1] for filled in complete}
        assert mask.count == len(mask.ids())
    if not any(cells):
        assert of.feasible


@given(automaton=AUTOMATA, length=st.integers(1, 5), pinned=st.dictionaries(st.integers(0, 4), st.sampled_from([0, 1, 2])))
def test_a_request_is_feasible_if_an_answer_exists(automaton, length, pinned):
    of = RequestConstraint(automaton, (STOP,), 3, 3 + length, tuple(sorted(pinned.items())))
    assert of.feasible == bool(answers(automaton, tuple([pinned.get(place) for place in range(length)])))


@given(automaton=AUTOMATA, count=st.integers(1, 9), reserve=st.integers(1, 4), data=st.data())
def test_autoregressive_masks_leave_the_same_reserve(automaton, count, reserve, data):
    of, settled = RequestConstraint(automaton, (STOP,), 1, 1 + count, (), reserve), []
    assume(of.feasible)
    for position in range(1, 1 + count):
        (block,) = window_of((None,), 1, position)
        state = of.run(0, settled)
        (mask,) = of.window_masks(state, position, (block,), [position])
        assert of.causal_masks(state, block) == (mask,)
        settled.append(data.draw(st.sampled_from(mask.ids())))


@settings(max_examples=max(60, 2 * settings().max_examples))  # a wrong set rarely changes the answer
@given(
    automaton=AUTOMATA,
    cells=CELLS,
    behind=st.integers(0, 2),
    size=st.integers(1, 5),
    reserve=st.integers(1, 3),
    sampled=st.booleans(),
    cleared=st.booleans(),
    data=st.data(),
)
def test_a_block_keeps_a_largest_prefix_in_the_order_of_confidence(
    automaton, cells, behind, size, reserve, sampled, cleared, data
):
    """What is kept can be completed, and what is dropped contradicts it; the first proposal is kept if it was `sampled`.

    A rule may unmask several times. What the masks have read is cached, or was `cleared`.
    """
    free = (None,) * behind
    assume(answers(automaton, (*cells, *free)))
    of = RequestConstraint(automaton, (STOP,), 1, 1 + len(cells) + behind, (), reserve)
    window = window_of(cells, size)
    masked = [position for block in window for position in block.masked]
    masks = dict(zip(masked, of.window_masks(0, 1, window, masked), strict=True))
    if cleared:
        of.constraint._masks.clear()
    window_filter, now, first = WindowFilter(of, 0, 1, window), list(cells), True
    for block in window:
        entered = after = window_filter.enter(block)
        for _ in range(data.draw(st.integers(0, 2))):
            before = after.masked
            chosen = sorted(data.draw(st.sets(st.sampled_from(before), min_size=1))) if before else []
            tokens = [data.draw(st.sampled_from(masks[position].ids() if sampled else IDS)) for position in chosen]
            chances = [data.draw(st.sampled_from([0.1, 0.5, 0.9])) for _ in chosen]
            after = after.unmask(chosen, tokens, chances)
            kept = set(before) - set(after.masked)
            if first and chosen and sampled:
                best = max(range(len(chosen)), key=lambda index: (chances[index], -index))
                assert chosen[best] in kept, "the most confident token of the first block was dropped"
            first = first and not chosen
            for index in sorted(range(len(chosen)), key=lambda index: (-chances[index], index)):
                trial = list(now)
                trial[chosen[index] - 1] = tokens[index]
                assert (chosen[index] in kept) == bool(answers(automaton, (*trial, *free)))
                if chosen[index] in kept:
                    now = trial
        left = window_filter.leave(after, entered)
        assert type(left) is Block
        assert left.tokens == tuple([MASK if cell is None else cell for cell in now[block.start - 1 : block.end - 1]])


def test_stop_ids_are_no_letters_of_the_language():
    automaton = token_automaton("a*", regex("a*"), PIECES, (MASK,))
    constraint = bound(automaton, (0, STOP))
    (mask,) = constraint.masks([(constraint.states(1), constraint.states(constraint.last))])
    assert mask.ids() == [0, STOP]  # the only letter ends the answer
    nothing = token_automaton("a+", regex("a+"), PIECES, (MASK,))
    assert not RequestConstraint(nothing, (0, STOP), 0, 3).feasible  # a gap holds no letter that no id has


def test_without_stop_ids_an_answer_has_the_whole_length():
    automaton = token_automaton("(ab)*", regex("(ab)*"), PIECES, (STOP, MASK))
    assert RequestConstraint(automaton, (), 0, 4).feasible
    of = RequestConstraint(automaton, (), 0, 1)
    assert of.feasible  # one id spells ab
    (mask,) = of.window_masks(0, 0, window_of((None,), 1, 0), [0])
    assert mask.ids() == [2]
    inside, past = of.window_masks(0, 0, window_of((None, None), 2, 0), [0, 1])
    assert inside == mask and past.ids() == [*range(5)]  # the answer ends at position 1


def test_a_token_against_the_constraint_is_an_error():
    automaton = token_automaton("ab", regex("ab"), PIECES, (STOP, MASK))
    of = RequestConstraint(automaton, (STOP,), 0, 3)
    with pytest.raises(DlstepError, match="token 1 was kept, but ab does not allow it there"):
        of.run(0, (1,))
    block = open_block(0, 3, 3, (), MASK)
    window_filter = WindowFilter(of, 0, 0, (block,))
    entered = window_filter.enter(block)
    wrong = Block(0, (1, MASK, MASK), (1, 2), (0.5, 0.0, 0.0))
    once, part = entered.unmask([0], [0], [0.5]), entered.part(1, 3, 0).unmask([1], [STOP], [0.5])
    changed = replace(entered, tokens=wrong.tokens, masked=wrong.masked)
    given = replace(once, tokens=(0, 0, MASK), masked=(2,)).unmask([2], [STOP], [0.5])
    for done in (wrong, changed, changed.with_extra(None), given, once.with_part(part), entered.with_part(wrong)):
        with pytest.raises(
            DlstepError, match=r"tokens of \[0, 3\) contradict ab: under a constraint, a rule must set tokens with"
        ):
            window_filter.leave(done, entered)


def test_remasked_and_partial_blocks_stay_filtered():
    automaton = token_automaton("(ab)*", regex("(ab)*"), PIECES, (STOP, MASK))
    of = RequestConstraint(automaton, (STOP,), 0, 4)
    block = open_block(0, 4, 4, (), MASK)
    entered = WindowFilter(of, 0, 0, (block,)).enter(block)
    once = entered.unmask([0], [0], [0.9])
    assert once.unmask([1], [0], [0.9]).masked == (1, 2, 3)  # after a comes b
    assert once.remask([0], MASK).unmask([0, 1], [2, 2], [0.5, 0.5]).masked == (2, 3)
    both = entered.unmask([0, 1], [0, 1], [0.9, 0.8])
    assert both.edit([1], [0], [0.5]).tokens == (0, 1, MASK, MASK)  # a a is no beginning
    assert both.edit([0, 1], [2, 0], [0.5, 0.6]).tokens == (2, 0, MASK, MASK)  # neither alone, but both together
    assert both.remask([1], MASK).edit([0], [2], [0.5]).probabilities == (0.5, 0.0, 0.0, 0.0)
    twice = entered.unmask([0, 1], [0, 0], [0.9, 0.8])
    assert twice.masked == (1, 2, 3) and twice.remask([0, 1], MASK).masked == (0, 1, 2, 3)  # the second a was dropped
    part = once.part(1, 3, 0)
    assert part.unmask([1, 2], [0, 0], [0.1, 0.2]).masked == (1,)  # the second a is more certain, and fits with b before it
    assert entered.unmask([3], [1], [0.9]).part(1, 3, 0).unmask([2], [1], [0.5]).masked == (1, 2)  # before b comes a
    assert once.with_part(part.unmask([1], [1], [0.5])).with_extra(None).unmask([2], [1], [0.9]).masked == (2, 3)


def test_tokens_behind_a_new_one_are_read_in_their_order():
    automaton = token_automaton("aab|bba", regex("aab|bba"), PIECES, (STOP, MASK))
    block = Block(0, (MASK, 0, 1), (0,), (0.0, 0.5, 0.5))
    entered = WindowFilter(RequestConstraint(automaton, (STOP,), 0, 3), 0, 0, (block,)).enter(block)
    assert [entered.unmask([0], [token], [0.5]).masked for token in (0, 1)] == [(), (0,)]


SPEC = Spec(MASK, (STOP,), 5, pieces=PIECES)
CONFIG = Config(SPEC, page_size=4, num_pages=16, max_model_len=16)


AB = token_automaton("ab", regex("ab"), PIECES, (STOP, MASK))


@pytest.mark.parametrize(
    "params, constraint, field, code",
    [
        ({"max_nfe": 3}, AB, "max_nfe", "conflict"),
        ({"ignore_eos": True}, AB, "ignore_eos", "conflict"),
        ({"max_repetition_run": 2}, AB, "max_repetition_run", "conflict"),
        ({"pinned": {0: 1}}, AB, "max_tokens", "unsatisfiable"),
        ({"regex": "ab"}, None, "regex", "unsupported"),
        ({}, token_automaton("ab", regex("ab"), PIECES[:3]), "automaton", "conflict"),
    ],
)
def test_requests_that_cannot_be_valid_are_rejected(params, constraint, field, code):
    request = Request(0, (0,), SamplingParams(**{"max_tokens": 8, **params}), automaton=constraint)
    reason = refusal(CONFIG, MultiBD(block_size=4), request)
    assert reason is not None and (reason.field, reason.code) == (field, code)


def test_a_constraint_lives_as_long_as_a_request_needs_it():
    kept, *others = [token_automaton("a", regex(f"a{{{length}}}"), PIECES, (STOP, MASK)) for length in range(1, 31)]
    in_use = bound(kept, (STOP,))
    seen = [ref(bound(automaton, (STOP,))) for automaton in others]
    gc.collect()
    assert len(seen) == 29 and sum(one() is not None for one in seen) <= 8, "constraints without a request pile up"
    assert bound(kept, (STOP,)) is in_use, "two requests with one constraint do not share what it remembers"


def test_masks_are_computed_when_they_are_read(monkeypatch):
    """Once, all together, and not by the plan; also in another thread, and after what the constraint remembers was cleared."""
    state = add(init(CONFIG, MultiBD(block_size=4)), Request(0, (0,), SamplingParams(max_tokens=8), automaton=AB))
    counts, compute = [], RequestConstraint.window_masks
    monkeypatch.setattr(RequestConstraint, "window_masks", lambda *given: (counts.append(0), compute(*given))[1])
    plans = [schedule(state) for _ in range(4)]
    masks = [plan.spans[0].wanted.masks for plan in plans]
    assert len(masks[0]) == len(plans[0].spans[0].wanted.sampled) > 2 and not counts
    plain = tuple(masks[0])
    assert [mask.ids() for mask in plain[:3]] == [[0, 2], [1, STOP], [STOP]] and len(counts) == 1
    assert masks[0] == plain and plain == masks[0] != plain[1:] and hash(masks[0]) == hash(plain) and len(counts) == 1
    assert repr(masks[0]) == repr(plain) and masks[0][1:] == plain[1:]
    constraint = bound(AB, (STOP,))
    constraint._masks.clear()
    constraint._next.__init__(constraint._next._step, constraint._next._most)
    with ThreadPoolExecutor(2) as pool:
        assert [*pool.map(tuple, [masks[1]] * 2)] == [plain] * 2
    assert plans[1] == plans[0] == pickle.loads(pickle.dumps(plans[2])) == from_json(to_json(plans[3]))
    assert to_json(plans[3]) == to_json(plans[0])


def test_masks_survive_pickling_and_differ_by_content():
    constraint = bound(token_automaton("(ab)*", regex("(ab)*"), PIECES, (STOP, MASK)), (STOP,))
    start, following = constraint.states(1), constraint.states(2)
    one, other = constraint.masks([(start, start), (start, following)])
    assert pickle.loads(pickle.dumps(one)) == one != other
    assert pickle.loads(pickle.dumps(constraint)) is constraint

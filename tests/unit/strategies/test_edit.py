"""The rules of the strategies that revise their blocks, edit sampling and `dmax`, against the plainest loops that say them."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, strategies as st

from dlstep.core import (
    Block,
    Config,
    Request,
    Rows,
    SamplingParams,
    Sequence,
    Span,
    Spec,
    Thresholds,
    add,
    commit,
    init,
    schedule,
)
from dlstep.strategies.dmax import DMax
from dlstep.strategies.multi_bd_edit import MultiBDEdit
from dlstep.testing.generators import hyperparameters
from dlstep.testing.scripted import ScriptedDriver

VOCABULARY, EOS, MASK = 12, 10, 11
SPEC = Spec(MASK, (EOS,), VOCABULARY)
CONFIG = Config(SPEC, 4, 100, 64, 200, 1)
CHANCES = (0.0, 0.1, 0.3, 0.4, 0.5, 0.7, 0.9, 0.95, 0.99, 1.0)  # thresholds among them
RANDOMS = st.randoms(use_true_random=False)
EDITS = hyperparameters(MultiBDEdit).filter(lambda value: isinstance(value, MultiBDEdit))
DMAXES = hyperparameters(DMax).filter(lambda value: isinstance(value, DMax))

Revising = MultiBDEdit | DMax


@dataclass(frozen=True)
class Step:
    """One sampling forward of a request."""

    before: Sequence
    span: Span
    rows: Rows
    after: Sequence

    @property
    def blocks(self) -> list[Block]:
        """The blocks that were open."""
        return [block for block in self.before.window if block.start >= self.before.final]

    def editable(self, block: Block) -> list[int]:
        """The positions of the answer in a block."""
        length = len(self.before.request.prompt)
        return [position for position in range(block.start, block.end) if length <= position < self.before.limit]

    def answer(self, position: int) -> tuple[int, float]:
        """Token and probability that the forward gave for a position."""
        row = self.span.wanted.index(position)
        return self.rows.tokens[row], self.rows.probabilities[row]


def restless(random: Random, best: int, calm: float, temperature: float = 0.0) -> ScriptedDriver:
    """Answers that stay the same for a position with probability `calm`."""
    favourites = [random.choice((0, 1, 2, 3, 4, 5, EOS)) for _ in range(64)]

    def rows(span: Span) -> Rows:
        tokens = tuple(favourites[p] if random.random() < calm else random.choice((1, 2, EOS)) for p in span.wanted)
        chances = tuple(random.choice(CHANCES) for _ in tokens)
        tops = tuple(5 if temperature else token for token in tokens)
        ids = tuple((top + rank) % MASK for top in tops for rank in range(best))
        return Rows(tokens, chances, best_ids=ids, best_probabilities=tuple(c / 2**r for c in chances for r in range(best)))

    return ScriptedDriver(rows)


def decode(strategy: Revising, random: Random, **params: Any) -> Iterator[Step]:
    """A request decoded by random answers, step by step."""
    prompt = tuple(random.randrange(6) for _ in range(random.randint(1, 12)))
    asked = SamplingParams(**{"max_tokens": random.randint(1, 20), "ignore_eos": random.random() < 0.3, **params})
    driver = restless(random, strategy.wants.best, random.choice((0.0, 0.8, 1.0)), asked.temperature)
    state = add(init(CONFIG, strategy), Request(0, prompt, asked))
    while not state.done:
        plan = schedule(state)
        samples = driver.run(plan)
        before, state = state.find(0), commit(state, samples)
        after = state.find(0)
        assert before is not None and after is not None
        if plan.spans[0].wanted:
            yield Step(before, plan.spans[0], samples.rows[0], after)


@dataclass
class Memory:
    """A loop's memory of a block."""

    steps: int = 0
    post: int = 0
    remasked: frozenset[int] = frozenset()


def jointly(step: Step, block: Block, rule: MultiBDEdit, memory: Memory) -> tuple[dict[int, int], bool]:
    """The tokens that edit sampling writes to a block, by position, and whether it is ready."""
    masks = [p for p in step.editable(block) if p in block.undecided]
    tokens = [p for p in step.editable(block) if p not in block.undecided]
    memory.steps += 1
    memory.post += not masks
    fills = [p for p in masks if step.answer(p)[1] > rule.accept_threshold]
    if masks and not fills:
        fills = [max(masks, key=lambda p: step.answer(p)[1])]
    edits = [
        p for p in tokens if step.answer(p)[0] != block.tokens[p - block.start] and step.answer(p)[1] > rule.edit_threshold
    ]
    if memory.steps > rule.block_size + rule.max_post_edit_steps:
        return {p: step.answer(p)[0] for p in masks + edits}, True
    floor = (0.4 if rule.remask_threshold is None else rule.remask_threshold) if rule.remasking else 0.0
    again = [p for p in tokens if step.answer(p)[1] < floor and p not in memory.remasked]
    if not masks and (memory.post > rule.max_post_edit_steps or not (edits or again)):
        return {}, True
    memory.remasked |= set(again)
    return {p: step.answer(p)[0] for p in fills + edits} | dict.fromkeys(again, MASK), False


def uniformly(step: Step, block: Block, rule: DMax, memory: Memory) -> tuple[dict[int, int], bool]:
    """The tokens that `dmax` writes to a block, by position, and whether it is ready."""
    editable = step.editable(block)
    writes = {p: step.answer(p)[0] for p in editable if p not in block.undecided}
    memory.steps += 1
    timed_out = memory.steps >= rule.block_size
    for number, position in enumerate(block.undecided):
        token, chance = step.answer(position)
        if not timed_out and number and chance < rule.accept_threshold:
            break
        writes[position] = token
        if not timed_out and chance < rule.accept_threshold:
            break
    same = all(block.tokens[p - block.start] == token for p, token in writes.items())
    sure = all(step.answer(p)[1] >= 0.9 for p in editable)
    return writes, len(writes) == len(editable) and (timed_out or same or sure)


def check_step(step: Step, rule: Any, loop: Any, memories: dict[int, Memory]) -> None:
    """The step did what the plain loop does: tokens, probabilities of what was written, and what is settled."""
    sealed = True
    for block in step.blocks:
        writes, ready = loop(step, block, rule, memories.setdefault(block.start, Memory()))
        tokens = list(block.tokens)
        chances = list(block.probabilities)
        for position, token in writes.items():
            if token != tokens[position - block.start]:
                tokens[position - block.start] = token
                chances[position - block.start] = 0.0 if token == MASK else step.answer(position)[1]
        assert step.after.tokens(block.start, block.end) == tuple(tokens)
        kept = [b for b in step.after.window if b.start == block.start]
        assert all(b.probabilities == tuple(chances) for b in kept)
        sealed = sealed and ready
        end = min(block.end, step.after.limit)
        assert (step.after.settled >= end) == sealed, "a block is sealed that is not ready, or waits though it is"
        assert not sealed or MASK not in tokens[: end - block.start], "a sealed block holds a mask"


OWN = st.none() | st.sampled_from(CHANCES)


@given(rule=EDITS, random=RANDOMS, accept=OWN, edit=OWN)
def test_edit_sampling_is_its_loop(rule: MultiBDEdit, random: Random, accept: float | None, edit: float | None) -> None:
    memories: dict[int, Memory] = {}
    steps = decode(rule, random, thresholds=Thresholds(accept_threshold=accept, edit_threshold=edit))
    rule = rule if accept is None else replace(rule, accept_threshold=accept)
    rule = rule if edit is None else replace(rule, edit_threshold=edit)
    for step in steps:
        check_step(step, rule, jointly, memories)
        assert step.span.penalty == rule.penalty_lambda and step.span.soft is None


@given(rule=DMAXES, random=RANDOMS, accept=OWN)
def test_dmax_is_its_loop(rule: DMax, random: Random, accept: float | None) -> None:
    memories: dict[int, Memory] = {}
    steps = decode(rule, random, thresholds=Thresholds(accept_threshold=accept))
    rule = rule if accept is None else replace(rule, accept_threshold=accept)
    for step in steps:
        check_step(step, rule, uniformly, memories)
        assert step.span.penalty == 0.0


@given(rule=EDITS | DMAXES, random=RANDOMS)
def test_every_answer_position_of_an_open_block_is_wanted(rule: Revising, random: Random) -> None:
    for step in decode(rule, random):
        assert list(step.span.wanted) == [position for block in step.blocks for position in step.editable(block)]


@given(rule=EDITS | DMAXES, random=RANDOMS)
def test_a_block_opens_behind_a_stable_one(rule: Revising, random: Random) -> None:
    for step in decode(rule, random):
        new = step.after.window[-1:] if step.after.finish is None else ()
        if not new or new[0].opened < step.after.steps or len(step.after.window) < 2:
            continue
        last = next(block for block in step.blocks if block.end == new[0].start)
        filled = [p for p in step.editable(last) if p not in last.undecided]
        same = [p for p in filled if step.answer(p)[0] == last.tokens[p - last.start]]
        if rule.most_forwards > step.after.steps - last.opened:
            assert not filled or len(same) / len(filled) >= rule.token_stability_threshold - 1e-9
        assert not any(EOS in block.tokens for block in step.after.window) or step.before.request.params.ignore_eos


@given(rule=EDITS | DMAXES, prompt=st.integers(1, 12))
def test_what_was_never_sampled_is_not_stable(rule: Revising, prompt: int) -> None:
    (sequence,) = add(init(CONFIG, rule), Request(0, (1,) * prompt, SamplingParams(max_tokens=20))).waiting
    first = sequence.window[0]
    ahead = first.progress >= rule.add_block_threshold and not rule.token_stability_threshold and rule.buffer_size > 1
    assert (len(sequence.window) > 1) == ahead


@given(rule=EDITS | DMAXES, random=RANDOMS)
def test_no_block_takes_more_forwards_than_it_may(rule: Revising, random: Random) -> None:
    seen: dict[int, int] = {}
    for step in decode(rule, random, ignore_eos=True):
        first = step.blocks[0]
        seen[first.start] = step.after.steps - first.opened
        assert seen[first.start] <= rule.most_forwards
        if seen[first.start] == rule.most_forwards:
            assert step.after.settled >= min(first.end, step.after.limit)
    assert len(step.after.answer) == step.after.request.params.max_tokens


@given(rule=DMAXES, random=RANDOMS, temperature=st.sampled_from([0.0, 1.0]))
@example(rule=DMax(4, 2, token_merge_weight=0.0), random=Random(0), temperature=0.0)
def test_soft_tokens_are_what_the_last_forward_said_of_the_tokens_of_open_blocks(
    rule: DMax, random: Random, temperature: float
) -> None:
    last: Step | None = None
    for step in decode(rule, random, temperature=temperature):
        decided = [p for b in step.blocks for p in step.editable(b) if p not in b.undecided]
        soft = step.span.soft
        if not rule.token_merge_weight or not decided:
            assert soft is None
        else:
            assert soft is not None and last is not None and list(soft.positions) == decided
            merging = (rule.token_merge_mode, rule.token_merge_renormalize, rule.token_merge_weight)
            assert (soft.merge.mode, soft.merge.renormalize, soft.merge.weight) == merging
            top_k = soft.width
            assert top_k == rule.token_merge_top_k
            for index, position in enumerate(decided):
                row = last.span.wanted.index(position)
                ids, chances = (part[index * top_k : (index + 1) * top_k] for part in (soft.ids, soft.probabilities))
                assert ids == last.rows.best_ids[row * top_k : (row + 1) * top_k]
                assert chances == last.rows.best_probabilities[row * top_k : (row + 1) * top_k]
                assert soft.residuals[index] == pytest.approx(max(0.0, 1.0 - sum(chances)))
                assert 0.0 <= soft.residuals[index] <= 1.0
        last = step


@given(rule=DMAXES, thresholds=st.tuples(*[st.sampled_from(CHANCES)] * 2).map(sorted), seed=st.integers(0, 1000))
def test_a_lower_threshold_of_dmax_fills_no_less(rule: DMax, thresholds: list[float], seed: int) -> None:
    low, high = (next(decode(replace(rule, accept_threshold=each), Random(seed))) for each in thresholds)
    assert low.rows == high.rows
    left = [{p for block in step.after.window for p in block.undecided if p in step.span.wanted} for step in (low, high)]
    assert left[0] <= left[1] and (thresholds[0] > 0.0 or not left[0])


@given(rule=EDITS, random=RANDOMS)
def test_with_an_edit_threshold_of_one_tokens_are_written_once(rule: MultiBDEdit, random: Random) -> None:
    for step in decode(replace(rule, edit_threshold=1.0, remasking=False, remask_threshold=None), random):
        start, end = step.span.wanted[0], step.span.wanted[-1] + 1
        pairs = zip(step.before.tokens(start, end), step.after.tokens(start, end), strict=True)
        assert all(old in (new, MASK) for old, new in pairs)


def scripted(strategy: Revising, answers: list[tuple[tuple[int, ...], tuple[float, ...]]], **params: Any) -> Sequence:
    """A request of two prompt tokens after the forwards that say `answers`."""
    rows = iter(answers)

    def say(span: Span) -> Rows:
        tokens, chances = next(rows)
        best = strategy.wants.best
        return Rows(tokens, chances, best_ids=tokens * best, best_probabilities=chances * best)

    state = add(init(CONFIG, strategy), Request(0, (0, 1), SamplingParams(**{"max_tokens": 4, **params})))
    for _ in answers:
        state = commit(state, ScriptedDriver(say).run(schedule(state)))
    sequence = state.find(0)
    assert sequence is not None
    return sequence


SURE, UNSURE = 0.95, 0.5


@pytest.mark.parametrize("strategy", [MultiBDEdit(block_size=4), DMax(block_size=4, buffer_size=4)])
def test_an_end_of_sequence_that_is_revised_ends_nothing(strategy: Revising) -> None:
    provisional = scripted(strategy, [((EOS, 5), (SURE, UNSURE))], max_tokens=2)
    assert provisional.finish is None and provisional.tokens(2, 3) == (EOS,)
    answers = [((EOS, 5), (SURE, UNSURE)), ((4, 5), (SURE, UNSURE)), ((4, 5), (SURE, UNSURE)), ((4, 5), (SURE, UNSURE))]
    done = scripted(strategy, answers[: 3 if isinstance(strategy, DMax) else 4], max_tokens=2)
    assert (done.answer, done.finish) == ((4, 5), "length")


def test_edits_that_come_too_late_are_dropped() -> None:
    late = [((4, 5), (SURE, SURE)), ((6, 5), (SURE, SURE)), ((7, 5), (SURE, SURE)), ((8, 5), (SURE, SURE))]
    done = scripted(MultiBDEdit(block_size=4, max_post_edit_steps=2), late, max_tokens=2)
    assert (done.answer, done.probabilities, done.finish) == ((7, 5), (SURE, SURE), "length")


def test_a_request_may_set_when_to_remask_only_if_there_is_remasking() -> None:
    asked = Request(0, (1,), SamplingParams(thresholds=Thresholds(remask_threshold=0.2)))
    refused = add(init(CONFIG, MultiBDEdit(block_size=4)), asked).finished[0]
    assert refused.finish == "rejected" and "remasking" in refused.error
    assert add(init(CONFIG, MultiBDEdit(block_size=4, remasking=True)), asked).waiting


@pytest.mark.parametrize(
    "options",
    [
        {"token_merge_top_k": 2},
        {"token_merge_weight": 0.5},
        {"token_merge_mode": "iter_smooth_topk", "token_merge_renormalize": False},
        {"token_merge_mode": "iter_smooth_topk", "token_merge_weight": 0.0, "token_merge_top_k": 2},
        {"token_merge_weight": 0.0, "token_merge_renormalize": False},
        {"token_merge_mode": "dmax"},
    ],
)
def test_an_option_that_would_do_nothing_is_an_error(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=rf"DMax\.{list(options)[-1]}"):
        DMax(**options)


def test_a_remask_threshold_without_remasking_is_an_error() -> None:
    with pytest.raises(ValueError, match="remasking=True"):
        MultiBDEdit(remask_threshold=0.4)


def test_more_ids_than_the_model_has_cannot_be_merged() -> None:
    greedy = DMax(block_size=4, token_merge_mode="iter_smooth_topk", token_merge_top_k=VOCABULARY)
    assert "token_merge_top_k" in greedy.unfit(SPEC)
    assert not replace(greedy, token_merge_top_k=VOCABULARY - 1).unfit(SPEC)

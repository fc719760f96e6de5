"""Sampling from logits that are cut by vocabulary, against sampling from whole rows."""

from dataclasses import replace

import pytest
import torch
from hypothesis import example, given, strategies as st
from torch import Tensor

from dlstep_kernels import Drawn, SamplerConfig, Settings, sample
from dlstep_kernels.vocabulary import (
    VocabularyShard,
    cut_of,
    gather_columns,
    merged,
    merged_peaks,
    own_part,
    own_peaks,
    sample_cut,
)

from ...helpers.sampling_checks import Problem, assert_same, logits_of, problems, settings_of
from .profiles import up_to
from .rank_rounds import all_ranks

SIZES = st.sampled_from((1, 2, 3, 4, 8))


def drawn_in_parts(logits: Tensor, settings: Settings, size: int, problem: Problem) -> Drawn:
    """The answer from the parts of `size` ranks, each of which sees its own columns only."""
    cuts = [cut_of(logits.shape[1], rank, size) for rank in range(size)]
    columns = [logits[:, cut.first : cut.first + cut.count].clone() for cut in cuts]
    facts = {"vocab_size": problem.vocab_size, "mask_id": problem.mask_id}
    own = [own_peaks(part, settings, cut, **facts) for part, cut in zip(columns, cuts, strict=True)]
    peaks = merged_peaks([peak for _, peak in own])
    parts = [own_part(allowed, peaks, settings, cut, problem.sampler) for (allowed, _), cut in zip(own, cuts, strict=True)]
    return merged(parts, peaks, settings, vocab_size=problem.vocab_size, sampler=problem.sampler)


CASE = Problem(
    seed=3, rows=4, width=9, spread=0.0, odd=((0, 8, float("nan")), (1, 0, float("inf"))), empty=True, layout="rows",
    dtype=torch.float32, vocab_size=9, mask_id=4, temperatures=(0.0, 0.0, 1.0, 1.0), penalised=False,
    sampler=SamplerConfig(frozenset(("entropy", "margin")), best=3), named=3,
)  # fmt: skip


@up_to(400)
@given(problem=problems(rows=6, width=100), size=SIZES)
@example(problem=CASE, size=2)
@example(problem=replace(CASE, sampler=replace(CASE.sampler, ties="lowest")), size=4)
def test_parts_answer_as_the_whole(problem: Problem, size: int):
    """Tokens and lists of ids exactly; sums are added in another order."""
    logits, settings = logits_of(problem, "cpu"), settings_of(problem, "cpu")
    facts = {"vocab_size": problem.vocab_size, "mask_id": problem.mask_id, "sampler": problem.sampler}
    whole = sample.twin(logits, settings, **facts)
    found = drawn_in_parts(logits, settings, size, problem)
    assert torch.equal(found.tokens, whole.tokens)
    assert_same(found, whole, logits.shape[1] + 1, additions=logits.shape[1])


FILTERS = st.fixed_dictionaries(
    {
        "top_k": st.none() | st.integers(0, 9),
        "top_p": st.none() | st.sampled_from((1.0, 0.15, 0.6, 0.93)),
        "min_p": st.none() | st.sampled_from((0.0, 0.07, 1.0)),
    }
)


@up_to(100)
@given(problem=problems(rows=4, width=20), filters=FILTERS, size=st.sampled_from((1, 2, 4)))
def test_every_rank_answers_as_the_whole(problem: Problem, filters: dict, size: int):
    """Filters included, which are bit for bit those of whole rows."""
    logits, settings = logits_of(problem, "cpu"), settings_of(problem, "cpu")
    rows = {name: None if value is None else torch.full((len(logits),), value) for name, value in filters.items()}
    settings = replace(settings, **rows)
    facts = {"vocab_size": problem.vocab_size, "mask_id": problem.mask_id, "sampler": problem.sampler}
    whole = sample.twin(logits, settings, **facts)

    def rank(number: int, exchange) -> Drawn:
        cut = cut_of(logits.shape[1], number, size)
        return sample_cut(logits[:, cut.first : cut.first + cut.count], settings, cut, exchange, **facts)

    for found in all_ranks(size, rank):
        assert torch.equal(found.tokens, whole.tokens)
        assert_same(found, whole, logits.shape[1] + 1, additions=0 if any(filters.values()) else logits.shape[1])


@given(total=st.integers(1, 300), size=st.integers(1, 9))
def test_cuts_are_all_ids_in_order(total: int, size: int):
    cuts = [cut_of(total, rank, size) for rank in range(size)]
    assert [number for cut in cuts for number in range(cut.first, cut.first + cut.count)] == list(range(total))
    assert {cut.most for cut in cuts} == {max(cut.count for cut in cuts)}
    assert all(cut.first % 2 == 0 for cut in cuts if cut.count)


def test_columns_come_back_in_order():
    rows = torch.arange(21.0).view(3, 7)

    def rank(number: int, exchange) -> Tensor:
        cut: VocabularyShard = cut_of(7, number, 4)
        return gather_columns(rows[:, cut.first : cut.first + cut.count], cut, exchange)

    assert all(torch.equal(found, rows) for found in all_ranks(4, rank))


@pytest.mark.parametrize("ties", ["highest", "lowest"])
def test_equal_logits_on_two_ranks(ties):
    """By hand: ids 1 and 5 tie, on different ranks."""
    logits = torch.tensor([[0.0, 3.0, 1.0, 2.0, 0.0, 3.0]])
    problem = replace(CASE, vocab_size=6, mask_id=None, sampler=SamplerConfig(ties=ties, best=3))
    found = drawn_in_parts(logits, Settings(), 2, problem)
    assert found.tokens.tolist() == [5 if ties == "highest" else 1]
    assert found.best_ids is not None
    assert found.best_ids.tolist() == [[5, 1, 3] if ties == "highest" else [1, 5, 3]]

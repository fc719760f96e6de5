"""Shards of the vocabulary: every id is on one rank, and whole rows come back."""

import torch
from hypothesis import given, strategies as st

from dlstep_kernels.vocabulary import Share, cut_of, gather_columns

from .rank_rounds import all_ranks


@given(total=st.integers(1, 300), size=st.integers(1, 9))
def test_cuts_are_all_ids_in_order(total, size):
    cuts = [cut_of(total, rank, size) for rank in range(size)]
    assert [number for cut in cuts for number in range(cut.first, cut.first + cut.count)] == list(range(total))
    assert {cut.most for cut in cuts} == {max(cut.count for cut in cuts)}
    assert all(cut.first % 2 == 0 for cut in cuts if cut.count)


def test_columns_come_back_in_order():
    rows = torch.arange(21.0).view(3, 7)

    def rank(number, exchange):
        cut = cut_of(7, number, 4)
        return gather_columns(rows[:, cut.first : cut.first + cut.count], Share(cut, exchange))

    assert all(torch.equal(found, rows) for found in all_ranks(4, rank))

"""Rows that are stored into pages."""

import torch

from dlstep_kernels import store_kv


def test_a_row_of_slot_minus_one_is_not_stored():
    pages = torch.zeros(5, 1, 2), torch.zeros(5, 1, 2)
    rows = torch.ones(3, 1, 2)
    store_kv(rows, 2 * rows, *pages, torch.tensor([2, -1, 0]))
    for page, value in zip(pages, (1.0, 2.0), strict=True):
        assert page[:4, 0, 0].tolist() == [value, 0.0, value, 0.0]

"""Soft inputs: what must hold of every blend."""

import math
from dataclasses import fields, replace

import torch
from hypothesis import given, settings, strategies as st
from torch.nn.functional import pad

from dlstep_kernels import SoftRows, merge_embeddings
from dlstep_kernels.embeddings import ADDED, RENORMALIZED


def test_what_cancels_out_stays_zero():
    table = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    half = SoftRows(*map(torch.tensor, ([0], [[0]], [[0.5]], [RENORMALIZED], [0.5])))
    assert merge_embeddings(table[:1], table, 1, half).tolist() == [[0.0, 0.0]]


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    k=st.integers(1, 3),
    dtype=st.sampled_from((torch.float32, torch.bfloat16)),
)
def test_blends_of_random_rows(seed, k, dtype):
    generator = torch.Generator().manual_seed(seed)
    table = torch.randn(11, 16, generator=generator).to(dtype)
    ids = torch.randint(0, 11, (9,), generator=generator)
    rows = torch.randperm(9, generator=generator)[:4].sort().values
    blended = torch.randint(0, 11, (4, k), generator=generator)
    shares = torch.rand(4, k + 1, generator=generator)
    shares = shares / shares.sum(-1, keepdim=True)
    modes = torch.randint(0, 3, (4,), generator=generator)
    merged = merge_embeddings(table[ids], table, 3, SoftRows(rows, blended, shares[:, :k], modes, shares[:, k]))
    others = [row for row in range(9) if row not in rows.tolist()]
    assert merged.dtype == dtype and torch.equal(merged[others], table[ids][others])
    for place, row in enumerate(rows.tolist()):
        parts = [(float(share), table[id].double()) for share, id in zip(shares[place], [*blended[place], 3], strict=True)]
        total = sum(share * vector for share, vector in parts)
        if modes[place] == ADDED:
            total = table[ids[row]].double() + parts[k][0] * sum(share * vector for share, vector in parts[:k])
        if modes[place] == RENORMALIZED:
            total = total * sum(share * float(vector.norm()) for share, vector in parts) / max(float(total.norm()), 1e-12)
        tolerance = 1e-5 if dtype == torch.float32 else 2**-8
        torch.testing.assert_close(merged[row].double(), total, atol=tolerance * math.sqrt(16), rtol=tolerance)


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 10**6), widths=st.lists(st.integers(1, 40), min_size=1, max_size=4))
def test_blend_is_equal_to_the_bit_among_rows_of_more_ids_and_other_formulas(seed, widths):
    generator = torch.Generator().manual_seed(seed)
    table, most = torch.randn(11, 16, generator=generator), max(widths)

    def drawn(row, width):
        ids, shares = torch.randint(0, 11, (1, width), generator=generator), torch.rand(1, width, generator=generator)
        mode, factor = torch.randint(0, 3, (1,), generator=generator), torch.rand(1, generator=generator)
        return SoftRows(torch.tensor([row]), ids, shares, mode, factor)

    alone = [drawn(row, width) for row, width in enumerate(widths)]
    parts = [
        replace(one, **{name: pad(getattr(one, name), (0, most - one.ids.shape[1])) for name in ("ids", "probabilities")})
        for one in alone
    ]
    together = SoftRows(*(torch.cat([getattr(one, field.name) for one in parts]) for field in fields(SoftRows)))
    merged = merge_embeddings(table, table, 3, together)
    for row, one in enumerate(alone):
        assert torch.equal(merged[row], merge_embeddings(table, table, 3, one)[row])

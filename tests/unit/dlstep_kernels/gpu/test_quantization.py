"""Rows in FP8: the kernel in the interpreter against its twin."""

import math

import torch
from hypothesis import given, strategies as st

from dlstep_kernels import quantization as twin
from dlstep_kernels.gpu import quantization as kernels

from ....helpers.sampling_checks import DTYPES, LAYOUTS, laid_out
from ....helpers.triton_interpreter import needs_interpreter
from ..profiles import up_to

pytestmark = needs_interpreter


@up_to(40)
@given(
    seed=st.integers(0, 10**6),
    rows=st.integers(0, 5),
    width=st.integers(1, 70),
    dtype=st.sampled_from(DTYPES),
    layout=st.sampled_from(LAYOUTS[:3]),
    odd=st.sampled_from((None, math.nan, math.inf)),
)
def test_equals_the_twin(seed, rows, width, dtype, layout, odd):
    generator = torch.Generator().manual_seed(seed)
    given_rows = laid_out((torch.randn(rows, width, generator=generator) * 3.0 ** (seed % 9)).to(dtype), layout)
    if odd is not None and rows:
        given_rows[-1, 0] = odd
    (found, scales), (expected, its) = kernels.quantize_rows(given_rows), twin.quantize_rows.twin(given_rows)
    finite = its.isfinite()
    assert torch.equal(found[finite].view(torch.uint8), expected[finite].view(torch.uint8))
    assert torch.equal(scales[finite], its[finite])
    assert scales[~finite].isnan().all()

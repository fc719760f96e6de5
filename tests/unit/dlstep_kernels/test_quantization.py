"""FP8 quantization: rounding errors, scales and products."""

import math

import pytest
import torch
from hypothesis import given, strategies as st

from dlstep_kernels import quantize_rows, scaled_linear, supports_fp8
from dlstep_kernels.quantization import FP8, LARGEST, SMALLEST

from .profiles import up_to

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def some_rows(seed, rows, width, spread, dtype):
    """Return rows with some zeros, whose other magnitudes differ by factors of up to about 10**spread."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(rows, width, generator=generator) * 10 ** (spread * torch.rand(rows, width, generator=generator))
    return values.masked_fill(torch.rand(rows, width, generator=generator) < 0.1, 0.0).to(dtype)


@up_to(60)
@given(
    seed=st.integers(0, 10**6),
    rows=st.integers(0, 5),
    width=st.integers(1, 40),
    spread=st.sampled_from((0.0, 1.0, 4.0)),
    dtype=st.sampled_from(DTYPES),
)
def test_quantize_rows_rounds_to_the_nearest_code(seed, rows, width, spread, dtype):
    given_rows = some_rows(seed, rows, width, spread, dtype)
    codes, scales = quantize_rows(given_rows)
    assert (codes.dtype, scales.dtype, codes.shape, scales.shape) == (FP8, torch.float32, (rows, width), (rows,))
    exact, back = given_rows.double(), codes.double() * scales[:, None].double()
    # Half of the last of four significant bits, or of the spacing of the smallest numbers; scales are rounded to float32.
    allowed = torch.maximum(exact.abs() / 16, scales[:, None].double() * 2**-10) * (1 + 1e-6)
    assert ((back - exact).abs() <= allowed).all() and (scales > 0).all()
    largest = exact.abs().amax(1) if width else exact.new_zeros(rows)
    assert (codes.double().abs().amax(1)[largest > SMALLEST] == LARGEST).all()


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_products_of_a_row_with_nan_or_an_infinity_are_nan(odd):
    """Sampling therefore detects the invalid row, and other rows are not affected."""
    given_rows = some_rows(0, 3, 16, 0.0, torch.float32)
    weight, scales = quantize_rows(torch.randn(8, 16, generator=torch.Generator().manual_seed(1)))
    one = torch.ones(())
    whole = scaled_linear(given_rows, weight, scales, one, None)
    given_rows[1, 3] = odd
    found = scaled_linear(given_rows, weight, scales, one, None)
    assert found[1].isnan().all() and torch.equal(found[[0, 2]], whole[[0, 2]])


@up_to(40)
@given(
    seed=st.integers(0, 10**6),
    rows=st.integers(1, 6),
    sizes=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    biased=st.booleans(),
    dtype=st.sampled_from(DTYPES),
)
def test_scaled_linear_matches_float64(seed, rows, sizes, biased, dtype):
    generator = torch.Generator().manual_seed(seed)
    (outputs, inputs), given_rows = sizes, some_rows(seed, rows, sizes[1], 1.0, dtype)
    weight, scales = quantize_rows(torch.randn(outputs, inputs, generator=generator))
    bias = torch.randn(outputs, generator=generator).to(dtype) if biased else None
    found = scaled_linear(given_rows[None], weight, scales, torch.ones(()), bias)
    codes, row_scales = quantize_rows(given_rows)
    exact = (codes.double() * row_scales[:, None].double()) @ (weight.double() * scales[:, None].double()).T
    exact = exact if bias is None else exact + bias.double()
    near = {torch.float32: 1e-5, torch.bfloat16: 2**-7, torch.float16: 2**-9}[dtype]
    size = float(exact.abs().amax()) + 1.0
    torch.testing.assert_close(found[0].double() / size, exact / size, atol=near, rtol=0)
    assert found.dtype == dtype and found.shape == (1, rows, outputs)


@pytest.mark.parametrize("columns", [slice(None), slice(3, 20)])
def test_compilers_know_the_shapes_of_the_operation(columns):
    rows = some_rows(0, 5, 32, 1.0, torch.bfloat16)[:, columns]
    torch.library.opcheck(torch.ops.dlstep.quantize_rows.default, (rows,), test_utils=("test_schema", "test_faketensor"))


def test_cpu_supports_fp8():
    assert supports_fp8(torch.device("cpu")) and not supports_fp8(torch.device("meta"))

"""Products of rows with the rows of a weight: one tile per program, summed in fp32."""

import triton.language as tl
from torch import Tensor
from triton.language import constexpr
from triton.tools.tensor_descriptor import TensorDescriptor

from .launch import Parameters, aligned, kernel


@kernel
def multiply(
    hidden, weight, first_row, start, begin, end, rows, width, depth, hidden_stride, weight_stride,
    ROWS: constexpr, COLUMNS: constexpr, DEPTH: constexpr, EVEN: constexpr, BULK: constexpr,
):  # fmt: skip
    """Return the tile of hidden @ weight.T at (`first_row`, `start`), summed over the depth from `begin` to `end`."""
    sums = tl.zeros([ROWS, COLUMNS], tl.float32)
    if BULK:  # descriptors read zeros past the ends
        for first in range(begin, end, DEPTH):
            some, others = hidden.load([first_row, first]), weight.load([start, first])
            sums = tl.dot(some, others.T, sums, input_precision="ieee")
    else:
        row, column = first_row + tl.arange(0, ROWS), start + tl.arange(0, COLUMNS)
        place = begin + tl.arange(0, DEPTH)
        # Rows and columns past the end repeat the last one, which is always readable.
        left = hidden + tl.minimum(row, rows - 1).to(tl.int64)[:, None] * hidden_stride + place[None, :]
        right = weight + tl.minimum(column, width - 1).to(tl.int64)[None, :] * weight_stride + place[:, None]
        for first in range(begin, end, DEPTH):
            if EVEN:
                some, others = tl.load(left), tl.load(right)
            else:
                inside = tl.arange(0, DEPTH) < depth - first
                some = tl.load(left, mask=inside[None, :], other=0.0)
                others = tl.load(right, mask=inside[:, None], other=0.0)
            sums = tl.dot(some, others, sums, input_precision="ieee")
            left += DEPTH
            right += DEPTH
    return sums


def factors(
    hidden: Tensor, weight: Tensor, chosen: Parameters
) -> tuple[Tensor | TensorDescriptor, Tensor | TensorDescriptor, dict[str, int | bool]]:
    """Return the factors and the constants for `multiply`; the factors are descriptors if `chosen` asks for them."""
    bulk = bool(chosen["bulk"]) and aligned(hidden) and aligned(weight)
    options = {name.upper(): chosen[name] for name in ("rows", "columns", "depth")}
    options |= {"EVEN": hidden.shape[1] % chosen["depth"] == 0, "BULK": bulk}
    if not bulk:
        return hidden, weight, options
    left = TensorDescriptor.from_tensor(hidden, [chosen["rows"], chosen["depth"]])
    return left, TensorDescriptor.from_tensor(weight, [chosen["columns"], chosen["depth"]]), options

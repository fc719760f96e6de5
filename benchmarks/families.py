"""Every family at full size: the step, its limit, and tokens per second at the published tokens per pass.

Networks have random weights and decode as in `benchmarks.decode`. `idle` is the share of a step in which
the device waits. `tokens_per_pass` is published for the checkpoint, or `benchmarks.decode`'s default if
`published` is false; `tokens_per_s` = batch x tokens_per_pass / step. A network that does not fit on the
device has a row without figures.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import torch

from dlstep.engine.devices import find_device, memory_of

from . import entry
from .decode import TOKENS_PER_FORWARD, DecodeLoad, measure_shape
from .device import Ceilings, measure_ceilings
from .shapes import SHAPES, Shape, parameter_count

CONTEXT = 512
SHARE = 0.85  # of the memory, for weights; quantized ones are random in 16 bits first
COLUMNS = ("shape", "quantization", "batch", "step_ms", "limit_ms", "ratio", "idle", "tokens_per_pass", "tokens_per_s")


def family_row(shape: Shape, quantization: str, batch: int, measured: dict[str, Any] | None) -> dict[str, Any]:
    """Return a row of the table for a row of `measure_shape`; None: not measured."""
    tokens = shape.tokens_per_pass or TOKENS_PER_FORWARD
    figures = measured or dict.fromkeys(("step_us", "roofline_us", "ratio", "host_share"))
    step, limit = figures["step_us"], figures["roofline_us"]
    return {
        "shape": shape.name,
        "quantization": quantization,
        "batch": batch,
        "step_ms": step and step / 1e3,
        "limit_ms": limit and limit / 1e3,
        "ratio": figures["ratio"],
        "idle": figures["host_share"],
        "tokens_per_pass": tokens,
        "published": shape.tokens_per_pass is not None,
        "tokens_per_s": step and 1e6 * batch * tokens / step,
    }


def measure_families(
    shapes: Sequence[Shape],
    quantizations: Sequence[str],
    batches: Sequence[int],
    context: int,
    *,
    device: torch.device,
    dtype: torch.dtype,
    ceilings: Ceilings | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield a row for each shape, quantization (`none` or `fp8`) and batch."""
    ceilings = ceilings or measure_ceilings(device, dtype)
    room = SHARE * (memory_of(str(device)) or float("inf"))
    for shape, quantization in product(shapes, quantizations):
        if parameter_count(shape) * dtype.itemsize > room:
            yield from (family_row(shape, quantization, batch, None) for batch in batches)
            continue
        loads = [DecodeLoad(batch, context, shape.tokens_per_pass or TOKENS_PER_FORWARD) for batch in batches]
        chosen = None if quantization == "none" else quantization
        rows = measure_shape(shape, loads, device=device, dtype=dtype, ceilings=ceilings, quantization=chosen)
        for batch, row in zip(batches, rows, strict=True):
            yield family_row(shape, quantization, batch, row)


def measure(
    names: Sequence[str], quantizations: Sequence[str], batches: Sequence[int], context: int
) -> Iterator[dict[str, Any]]:
    """Yield all rows, on a CUDA device if there is one."""
    device = torch.device(find_device(None))
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    return measure_families([SHAPES[name] for name in names], quantizations, batches, context, device=device, dtype=dtype)


if __name__ == "__main__":
    entry.run(
        __doc__,
        measure,
        COLUMNS,
        names=(tuple(SHAPES), "Shapes."),
        quantizations=(("none", "fp8"), "none, fp8, or both."),
        batches=((1, 8, 32), "Requests at a time."),
        context=(CONTEXT, "Tokens of each prompt."),
    )

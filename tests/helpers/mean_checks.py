"""Problems for mean embeddings whose quotients no kernel rounds otherwise, and what it means that two answers are equal."""

import torch
from torch import Tensor

from .sampling_checks import ROUNDING

MOST = 255  # eighths: below 32 every one of them is a number of bf16 and of fp16


def problem_of(seed: int, rows: int, vocab: int, width: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Logits, temperatures and table. Quotients are whole eighths, which one more rounding in fp32 leaves what they are."""
    generator = torch.Generator().manual_seed(seed)
    quotients = (32 * torch.randn(rows, vocab, generator=generator)).round().clamp(-MOST, MOST) / 8
    temperatures = torch.randint(2, 7, (rows,), generator=generator) / 4
    return quotients * temperatures[:, None], temperatures, torch.randn(vocab, width, generator=generator).to(dtype)


def assert_same(found: Tensor, twin: Tensor, table: Tensor, *, additions: int) -> None:
    """Equal as far as rounding allows: in 16 bits every probability, and the answer, may be rounded the other way.

    In fp32 a quotient below 32 is off by 2 units of the last place and exponentials by 2, each sum by one for an addition.
    """
    rounded = {torch.bfloat16: 2.0**-7, torch.float16: 2.0**-10, torch.float32: (4 * 32 + 5 * additions) * ROUNDING}
    step = rounded[table.dtype]
    largest = float(table.abs().max())
    torch.testing.assert_close(found, twin, atol=step * largest, rtol=step, equal_nan=True)

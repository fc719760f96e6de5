"""The cases on which kernels are measured, small and in the interpreter: kernels answer there what their twins do."""

import numpy as np
import pytest
import torch

pytest.importorskip("triton", reason="triton is not installed: it exists for Linux only")

from benchmarks.kernels import Sizes, cases

from ...helpers.triton_interpreter import needs_interpreter

pytestmark = needs_interpreter
SMALL = Sizes(batch=2, context=70, rows=4, sampled=3, vocabulary=97, hidden=32)


def test_every_case_equals_its_twin() -> None:
    torch.manual_seed(0)
    with np.errstate(all="ignore"):  # infinities are added in lanes that nobody reads
        errors = {
            f"{case.kernel}, {case.name}": (case.error(), case.limit)
            for case in cases(torch.device("cpu"), torch.float32, SMALL)
        }
    assert len(errors) == 19
    assert {name: both for name, both in errors.items() if both[0] > both[1]} == {}

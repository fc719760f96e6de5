"""The cases on which kernels are measured, small and in the interpreter."""

import numpy as np
import pytest
import torch

pytest.importorskip("triton", reason="triton is not installed: it exists for Linux only")

from benchmarks.kernels import Sizes, cases

from ...helpers.triton_interpreter import needs_interpreter

pytestmark = needs_interpreter
SMALL = Sizes(batch=2, context=70, rows=4, sampled=3, vocabulary=97, hidden=32)


def test_every_case_runs():
    torch.manual_seed(0)
    found = list(cases(torch.device("cpu"), torch.float32, SMALL))
    assert len({(case.kernel, case.name) for case in found}) == 21
    with np.errstate(all="ignore"):  # infinities are added in lanes that nobody reads
        for case in found:
            assert case.need.moved > 0
            for call in case.calls:
                call()

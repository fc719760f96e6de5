"""Mean embeddings in the interpreter, against their twin."""

import math

import pytest
import torch
from hypothesis import given, strategies as st

pytest.importorskip("triton", reason="triton is not installed: it exists for Linux only")

from dlstep_kernels import embeddings
from dlstep_kernels.gpu import embeddings as kernels

from ....helpers import mean_checks
from ....helpers.sampling_checks import DTYPES
from ....helpers.triton_interpreter import needs_interpreter
from ..profiles import up_to

pytestmark = [needs_interpreter, pytest.mark.usefixtures("quiet_numpy")]
ignored = pytest.mark.filterwarnings("ignore:All-NaN slice encountered:RuntimeWarning")


@ignored
@up_to(25)
@given(
    seed=st.integers(0, 10**6),
    rows=st.integers(0, 18),
    vocab=st.integers(1, 50),
    width=st.integers(1, 20),
    dtype=st.sampled_from(DTYPES),
    odd=st.sampled_from((None, *((place, value) for place in (0, -1) for value in (math.nan, math.inf, -math.inf)))),
)
def test_mean_equals_the_twin(
    seed: int, rows: int, vocab: int, width: int, dtype: torch.dtype, odd: tuple[int, float] | None
) -> None:
    logits, temperatures, table = mean_checks.problem_of(seed, rows, vocab, width, dtype)
    if odd is not None and rows:
        logits[0, odd[0]] = odd[1]
    found, twin = (module.mean_embeddings(logits, temperatures, table) for module in (kernels, embeddings))
    mean_checks.assert_same(found, twin, table, additions=vocab)

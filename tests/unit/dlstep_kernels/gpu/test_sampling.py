"""The sampling kernels in the interpreter, against their twins."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import example, given, settings, strategies as st

from dlstep_kernels import SamplerConfig, Settings, sampling
from dlstep_kernels.gpu import head as head_kernels, parts, sampling as sampling_kernels

from ....helpers.sampling_checks import (
    DTYPES,
    ROUNDING,
    SAMPLERS,
    Problem,
    check_alike,
    launched,
    logits_of,
    options_of,
    problems,
    settings_of,
)
from ....helpers.triton_interpreter import needs_interpreter
from ..profiles import up_to

pytestmark = needs_interpreter

BOTH = (sampling_kernels.sample, sampling.sample)
ignored = pytest.mark.filterwarnings("ignore:All-NaN slice encountered:RuntimeWarning")
SMALL = Problem(
    seed=1, rows=1, width=33, spread=2.0, odd=(), empty=False, layout="rows", dtype=torch.float32, vocab_size=33, mask_id=None,
    temperatures=(1.0,), penalised=False, sampler=SamplerConfig(frozenset(("entropy",)), best=20),
)  # fmt: skip
# The largest logits are far from those read first: -lifted in exp2(fma(x, LOG2E, -lifted)) was rounded by 1e-5.
FAR = replace(SMALL, rows=3, width=48, spread=100.0, temperatures=None, sampler=SamplerConfig())
# Ranges of logits are wider than what has a weight at temperature 1, but not at this one.
HOT = replace(SMALL, rows=3, width=70, spread=1000.0, vocab_size=70, temperatures=(30.0, 300.0, 1e30))
# Masked rows next to one that is not; the last word is partly used.
MASKED = replace(
    SMALL, rows=4, width=70, vocab_size=66, temperatures=(0.0, 1.0, 0.0, 3.0), named=3, masks=("edges", "half", "all", "one")
)


@ignored
@up_to(60)
@given(
    problem=problems(rows=3, width=70),
    block=st.sampled_from((16, 32)),
    programs=st.integers(1, 9),
    chunk=st.sampled_from((8, 16)),
)
@example(problem=SMALL, block=16, programs=1, chunk=8)
@example(problem=FAR, block=16, programs=1, chunk=8)
@example(problem=HOT, block=16, programs=1, chunk=8)
@example(problem=HOT, block=16, programs=15, chunk=8)
@example(problem=MASKED, block=16, programs=1, chunk=8)
@example(problem=replace(MASKED, temperatures=None, sampler=SamplerConfig()), block=32, programs=2, chunk=8)
def test_sample_equals_the_twin(problem, block, programs, chunk):
    logits, chosen = logits_of(problem, "cpu"), settings_of(problem, "cpu")
    options = options_of(problem) | {"spread": problem.spread, "additions": problem.width // block + 5}
    with launched(sampling_kernels, block=block, programs=programs), launched(parts, chunk=chunk):
        check_alike(*BOTH, (logits,), chosen, **options)


@pytest.mark.full
@ignored
@up_to(30)
@given(problem=problems(rows=3, width=70), cap=st.sampled_from((0.5, 30.0)))
@example(problem=replace(SMALL, spread=300.0), cap=30.0)
@example(problem=MASKED, cap=0.5)
def test_capped_logits_equal_the_twin(problem, cap):
    """Also infinite ones, which a cap makes finite."""
    problem = replace(problem, temperatures=problem.temperatures or (0.7,) * problem.rows, named=0)
    logits, chosen = logits_of(problem, "cpu"), settings_of(problem, "cpu")
    options = options_of(problem) | {"sampler": replace(problem.sampler, cap=cap), "logits": sampling.capped(logits, cap)}
    assert sampling.sampled_by_kernel(logits, chosen, sampler=options["sampler"])
    coldest = min(each or 1.0 for each in problem.temperatures)
    blur = 8 * cap * ROUNDING / coldest  # an exponential, a sum and a quotient near 2 are subtracted from the cap
    with launched(sampling_kernels, block=16, programs=4):
        check_alike(*BOTH, (logits,), chosen, additions=11, blur=blur, **options)


@ignored
@pytest.mark.parametrize(
    "sampler",
    [SamplerConfig(), SamplerConfig(frozenset(("entropy",))), SamplerConfig(best=2)],
    ids=["plain", "entropy and sum", "best two"],
)
def test_far_ranges(sampler):
    """Numbers that a program reads first, or all that it reads, may be far below the rest."""
    logits = torch.full((3, 64), -500.0)
    logits[0, 40], logits[1, 5], logits[2, 17] = 700.0, 90.0, -math.inf
    for programs in (3, 12):
        with launched(sampling_kernels, programs=programs):
            check_alike(*BOTH, (logits,), Settings(), additions=9, vocab_size=64, mask_id=63, sampler=sampler)


@settings(max_examples=10)
@given(sampler=SAMPLERS, dtype=st.sampled_from(DTYPES))
def test_no_rows(sampler, dtype):
    nothing = torch.zeros(0, dtype=torch.int64)
    chosen = Settings(noise=sampling.Noise(nothing, nothing, nothing))
    options = {"vocab_size": 5, "mask_id": None, "sampler": sampler}
    logits = torch.zeros(0, 5, dtype=dtype)
    check_alike(*BOTH, (logits,), chosen, additions=1, **options)
    hidden, weight = torch.zeros(0, 16, dtype=dtype), torch.zeros(5, 16, dtype=dtype)
    assert head_kernels.head_and_sample(hidden, weight, chosen, **options).tokens.shape == (0,)

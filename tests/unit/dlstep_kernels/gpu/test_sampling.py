"""The sampling kernels in the interpreter, against their twins."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from ..profiles import up_to
from ..rank_rounds import all_ranks

pytest.importorskip("triton", reason="triton is not installed: it exists for Linux only")

from hypothesis import example, given, settings, strategies as st

from dlstep_kernels import Drawn, SamplerConfig, Settings, SoftRows, head, mean, merge, sampling
from dlstep_kernels.gpu import (
    head as head_kernels,
    mean as mean_kernels,
    merge as merge_kernels,
    parts,
    sampling as sampling_kernels,
)
from dlstep_kernels.vocabulary import Exchange, Share, cut_of

from ....helpers import mean_checks
from ....helpers.sampling_checks import (
    DTYPES,
    EXTREME_SAMPLER,
    EXTREME_TEMPERATURES,
    ROUNDING,
    SAMPLERS,
    Problem,
    assert_extreme,
    assert_same,
    capped,
    capped_blur,
    extreme_logits,
    extreme_settings,
    far_blur,
    launched,
    logits_of,
    problems,
    scores_of,
    settings_of,
)
from ....helpers.triton_interpreter import needs_interpreter

pytestmark = needs_interpreter


@pytest.fixture(autouse=True, scope="module")
def quiet_numpy():
    """The interpreter computes with numpy, which warns of what kernels mean to do with infinities and NaN."""
    with np.errstate(all="ignore"):
        yield


ignored = pytest.mark.filterwarnings("ignore:All-NaN slice encountered:RuntimeWarning")
SMALL = Problem(
    seed=1, rows=1, width=33, spread=2.0, odd=(), empty=False, layout="rows", dtype=torch.float32, vocab_size=33, mask_id=None,
    temperatures=(1.0,), penalised=False, sampler=SamplerConfig(frozenset(("entropy",)), best=8),
)  # fmt: skip


# An infinite logit that is capped is a logit like others; one rank of two has no id.
INFINITE = replace(
    SMALL, seed=0, width=1, vocab_size=1, spread=0.0, odd=((0, 0, math.inf),), temperatures=None, sampler=SamplerConfig()
)
# The largest logits are far from those read first: -lifted in exp2(fma(x, LOG2E, -lifted)) was rounded by 1e-5.
FAR = replace(SMALL, rows=3, width=48, spread=100.0, temperatures=None, sampler=SamplerConfig())
# Ranges of logits are wider than what has a weight at temperature 1, but not at this one.
HOT = replace(SMALL, rows=3, width=70, spread=1000.0, vocab_size=70, temperatures=(30.0, 300.0, 1e30))


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
def test_sample_equals_the_twin(problem: Problem, block: int, programs: int, chunk: int) -> None:
    logits, chosen = logits_of(problem, "cpu"), settings_of(problem, "cpu")
    options = {"vocab_size": problem.vocab_size, "mask_id": problem.mask_id, "sampler": problem.sampler}
    with launched(sampling_kernels, block=block, programs=programs), launched(parts, chunk=chunk):
        found = sampling_kernels.sample(logits, chosen, **options)
    scores = scores_of(logits, chosen, vocab_size=problem.vocab_size, mask_id=problem.mask_id)
    blur = far_blur(problem.spread, scores)
    twin = sampling.sample(logits, chosen, **options)
    assert_same(found, twin, problem.width, additions=problem.width // block + 5, scores=scores, blur=blur)


@ignored
@up_to(30)
@given(
    problem=problems(rows=18, width=40),
    depth=st.sampled_from((16, 24, 33)),
    bulk=st.sampled_from((True, False)),
    biased=st.booleans(),
    softcap=st.sampled_from((None, 30.0)),
    ranks=st.sampled_from((1, 2, 3)),
)
@example(problem=replace(SMALL, width=33), depth=16, bulk=False, biased=False, softcap=None, ranks=2)
@example(problem=replace(SMALL, width=4, vocab_size=4, named=3), depth=16, bulk=False, biased=True, softcap=None, ranks=3)
@example(problem=INFINITE, depth=16, bulk=False, biased=False, softcap=30.0, ranks=2)
def test_head_and_sample_equals_the_twin(
    problem: Problem, depth: int, bulk: bool, biased: bool, softcap: float | None, ranks: int
) -> None:
    """Hidden states and weights are small integers, so that any order of summation gives the same logits; so do several
    ranks, each of which has the weights of some ids, or of none.
    """
    generator = torch.Generator().manual_seed(problem.seed)
    hidden = torch.randint(-2, 3, (problem.rows, 2 * depth), generator=generator).to(problem.dtype)[:, :depth]
    weight = torch.randint(-2, 3, (problem.width, depth), generator=generator).div(4).to(problem.dtype)
    for row, column, value in problem.odd:
        hidden[row, column % depth] = value
    bias = torch.randint(-2, 3, (problem.width,), generator=generator).to(problem.dtype) if biased else None
    chosen = settings_of(problem, "cpu")
    options = {
        "vocab_size": problem.vocab_size, "mask_id": problem.mask_id, "sampler": problem.sampler, "softcap": softcap,
    }  # fmt: skip

    def of_rank(rank: int, exchange: Exchange) -> Drawn:
        cut = cut_of(problem.width, rank, ranks)
        own, own_bias = (None if each is None else each[cut.first : cut.first + cut.count] for each in (weight, bias))
        assert own is not None
        share = None if ranks == 1 else Share(cut, exchange)
        return head_kernels.head_and_sample(hidden, own, chosen, bias=own_bias, share=share, **options)

    with launched(head_kernels, bulk=int(bulk), rows=16, columns=16, depth=16):
        found = all_ranks(ranks, of_rank)
    logits = hidden.double() @ weight.double().T + (0.0 if bias is None else bias.double())
    scores = scores_of(capped(logits, softcap), chosen, vocab_size=problem.vocab_size, mask_id=problem.mask_id)
    blur = capped_blur(softcap, problem.temperatures)
    twin = head.head_and_sample(hidden, weight, chosen, bias=bias, **options)
    for each in found:
        assert_same(each, twin, problem.width, additions=problem.width // 16 + 5 + ranks, scores=scores, blur=blur)


@ignored
@pytest.mark.parametrize(
    "sampler",
    [SamplerConfig(), SamplerConfig(frozenset(("entropy", "log_sum"))), SamplerConfig(best=2)],
    ids=["plain", "entropy and sum", "best two"],
)
def test_far_ranges(sampler: SamplerConfig) -> None:
    """Numbers that a program reads first, or all that it reads, may be far below the rest."""
    logits = torch.full((3, 64), -500.0)
    logits[0, 40], logits[1, 5], logits[2, 17] = 700.0, 90.0, -math.inf
    options = {"vocab_size": 64, "mask_id": 63, "sampler": sampler}
    for programs in (3, 12):
        with launched(sampling_kernels, programs=programs):
            found = sampling_kernels.sample(logits, Settings(), **options)
        assert_same(found, sampling.sample(logits, Settings(), **options), 64, additions=9)


@pytest.mark.parametrize("tempered", [True, False])
@pytest.mark.parametrize("temperature", EXTREME_TEMPERATURES)
def test_extreme_temperatures_stay_finite(temperature: float, tempered: bool) -> None:
    """The head's weight is the identity: hidden states are the logits."""
    chosen, logits = extreme_settings(temperature), extreme_logits()
    options = {"vocab_size": 5, "mask_id": None, "sampler": replace(EXTREME_SAMPLER, tempered=tempered)}
    assert_extreme(sampling_kernels.sample(logits, chosen, **options), temperature, tempered=tempered)
    found = head_kernels.head_and_sample(logits, torch.eye(5), chosen, **options)
    assert_extreme(found, temperature, tempered=tempered)


@settings(max_examples=10)
@given(sampler=SAMPLERS, dtype=st.sampled_from(DTYPES))
def test_no_rows(sampler: SamplerConfig, dtype: torch.dtype) -> None:
    nothing = torch.zeros(0, dtype=torch.int64)
    chosen = Settings(noise=sampling.Noise(nothing, nothing, nothing))
    options = {"vocab_size": 5, "mask_id": None, "sampler": sampler}
    logits = torch.zeros(0, 5, dtype=dtype)
    found = sampling_kernels.sample(logits, chosen, **options)
    assert_same(found, sampling.sample(logits, chosen, **options), 5, additions=1)
    hidden, weight = torch.zeros(0, 16, dtype=dtype), torch.zeros(5, 16, dtype=dtype)
    assert head_kernels.head_and_sample(hidden, weight, chosen, **options).tokens.shape == (0,)


@up_to(25)
@given(
    seed=st.integers(0, 10**6),
    blended=st.integers(0, 4),
    count=st.integers(1, 3),
    width=st.sampled_from((1, 16, 37)),
    dtype=st.sampled_from(DTYPES),
    mode=st.sampled_from(("dmax_topk", "iter_smooth_topk")),
    renormalize=st.booleans(),
)
def test_merge_equals_the_twin(
    seed: int, blended: int, count: int, width: int, dtype: torch.dtype, mode: merge.MergeMode, renormalize: bool
) -> None:
    """Factors are whole quarters and eighths: what cancels out in a blend cancels exactly, in any order."""
    generator = torch.Generator().manual_seed(seed)
    table = torch.randint(-8, 9, (11, width), generator=generator).div(4).to(dtype)
    embedded = table[torch.randint(0, 11, (7,), generator=generator)]
    rows = torch.randperm(7, generator=generator)[:blended]
    shares = torch.randint(0, 9, (blended, count + 1), generator=generator) / 8
    soft = SoftRows(
        rows, torch.randint(0, 11, (blended, count), generator=generator), shares[:, :count], shares[:, count],
        mode, renormalize, 0.5,
    )  # fmt: skip
    before = embedded.clone()
    found, twin = (module.merge_embeddings(embedded, table, 3, soft) for module in (merge_kernels, merge))
    assert torch.equal(embedded, before)
    others = [row for row in range(7) if row not in rows.tolist()]
    assert torch.equal(found[others], embedded[others])
    # A norm sums up to 37 squares, on both sides, and takes a root; in 16 bits the answer may be rounded the other way.
    step = {torch.float32: 64 * ROUNDING, torch.bfloat16: 2**-7, torch.float16: 2**-10}[dtype]
    torch.testing.assert_close(found, twin, atol=step, rtol=step)


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
    found, twin = (module.mean_embeddings(logits, temperatures, table) for module in (mean_kernels, mean))
    mean_checks.assert_same(found, twin, table, additions=vocab)

"""The sampling kernels on a CUDA device, against their twins: what the interpreter shows, and larger shapes."""

# Options are passed by name from untyped mappings.
# pyright: reportArgumentType=false

import math
from functools import partial

import pytest
import torch
from hypothesis import given, settings, strategies as st

from dlstep_kernels import (
    SamplerConfig,
    Settings,
    head_and_sample,
    merge_embeddings,
    sample,
    token_shares,
    uniform,
)
from dlstep_kernels.sampling import Noise, TokenMasks, capped

from ..helpers.sampling_checks import (
    DTYPES,
    ROUNDING,
    check_alike,
    check_merge,
    logits_of,
    options_of,
    problems,
    settings_of,
)

pytestmark = pytest.mark.gpu
BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
ALL = frozenset(("entropy", "margin", "noise"))
ADDITIONS = 60  # to the sums of a row: up to 19 tiles of 2048 logits a program, and trees over lanes and parts
# Few, for each is compiled.
SAMPLERS = st.sampled_from((SamplerConfig(), SamplerConfig(ALL, "lowest", best=20, tempered=False), SamplerConfig(ALL)))
OF_MODELS = {"vocab_size": 151_936, "mask_id": 151_666}
check_head = partial(check_alike, head_and_sample, head_and_sample.twin, additions=ADDITIONS)


def counters(rows):
    place = torch.arange(rows, device="cuda")
    return Noise(place * 0x9E3779B97F4A7C1, place, place % 7)


def random_masks(rows, vocab_size):
    """Lines of random bits, for all rows but each third."""
    words = torch.randint(-(2**31), 2**31, (1 + rows, -(-vocab_size // 32)), device="cuda").to(torch.int32)
    words[0] = -1
    lines = torch.arange(1, 1 + rows, device="cuda")
    return TokenMasks(words, torch.where(lines % 3 == 0, 0, lines))


@settings(max_examples=40)
@given(problem=problems(rows=40, width=9000, samplers=SAMPLERS))
def test_sample_equals_the_twin(problem):
    logits, chosen = logits_of(problem, "cuda"), settings_of(problem, "cuda")
    of_both = {"spread": problem.spread, **options_of(problem)}
    check_alike(sample, sample.twin, (logits,), chosen, additions=ADDITIONS, **of_both)


@settings(max_examples=30)
@given(
    problem=problems(rows=300, width=3000, samplers=SAMPLERS),
    depth=st.sampled_from((64, 200, 33)),
)
def test_head_and_sample_equals_the_twin(problem, depth):
    """Hidden states and weights are small integers, so that any order of summation gives the same logits."""
    generator = torch.Generator().manual_seed(problem.seed)
    hidden = torch.randint(-2, 3, (problem.rows, depth), generator=generator).to("cuda", problem.dtype)
    weight = torch.randint(-2, 3, (problem.width, depth), generator=generator).div(4).to("cuda", problem.dtype)
    for row, column, value in problem.odd:
        hidden[row, column % depth] = value
    chosen, logits = settings_of(problem, "cuda"), hidden.double() @ weight.double().T
    check_head((hidden, weight), chosen, logits=logits, **options_of(problem))


@pytest.mark.parametrize("temperature", [None, 0.7])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("rows", [1, 32, 256])
def test_vocabularies_of_models(rows, dtype, temperature):
    logits = 3 * torch.randn(rows, 152_064, device="cuda", generator=torch.Generator("cuda").manual_seed(rows))
    logits = ((64 * logits).round() / 64).to(dtype)  # differences are exact
    logits[0, 150_000] = math.nan
    hot = None if temperature is None else torch.full((rows,), temperature, device="cuda")
    chosen = Settings(hot, noise=counters(rows))
    for sampler in (SamplerConfig(), SamplerConfig(ALL, "lowest", best=20, tempered=False)):
        of_both = {"spread": 3.0, "sampler": sampler, **OF_MODELS}
        check_alike(sample, sample.twin, (logits,), chosen, additions=ADDITIONS, **of_both)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("rows", [1, 256, 2048])
def test_canvases_of_models(rows, dtype):
    """Samples of capped logits, and the shares of a mean embedding."""
    generator = torch.Generator("cuda").manual_seed(rows)
    logits = (10 * torch.randn(rows, 262_144, device="cuda", generator=generator)).to(dtype)
    chosen = Settings(torch.full((rows,), 0.5, device="cuda"), noise=counters(rows))
    sampler = SamplerConfig(frozenset(("entropy", "noise")), "lowest", best=1, cap=30.0)
    options = {"vocab_size": 262_144, "mask_id": None, "sampler": sampler, "logits": capped(logits, 30.0)}
    blur = 8 * 30.0 * ROUNDING / 0.5  # as in the interpreter
    check_alike(sample, sample.twin, (logits,), chosen, additions=ADDITIONS, blur=blur, **options)
    shares = token_shares(logits, chosen.temperatures, cap=30.0)
    expected = token_shares.twin(logits, chosen.temperatures, cap=30.0)
    # In 16 bits, scores of at most 60 are rounded, some the other way: by up to 1/4 in bfloat16, 1/32 in float16.
    assert float((shares == expected).float().mean()) > (0.99 if dtype == BF16 else 0.9 if dtype == FP16 else 0.0)
    near = {FP32: 1e-4, BF16: 1e-2, FP16: 5e-3}[dtype]
    assert float((shares.float() - expected.float()).norm()) <= near * float(expected.float().norm())


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("temperature", [None, 0.7])
@pytest.mark.parametrize("rows", [1, 17, 40, 200])
def test_heads_of_models(rows, temperature, masked):
    """Factors are whole eighths and 64ths, so that the sums of 4096 products, below 2**18 of their units, are exact.

    Some ids are scored, among them the mask, one beyond the vocabulary and none. Rows after `filled` change no other one.
    """
    generator = torch.Generator("cuda").manual_seed(rows)
    hidden = torch.randint(-8, 9, (rows, 4096), device="cuda", generator=generator).div(8).to(BF16)
    weight = torch.randint(-8, 9, (152_064, 4096), device="cuda", generator=generator).div(64).to(BF16)
    hot = None if temperature is None else torch.full((rows,), temperature, device="cuda")
    ids = torch.randint(0, 151_936, (rows, 6), device="cuda", generator=generator)
    ids[:, 0], ids[:, 1], ids[:, 2] = -1, 151_666, 151_940
    masks = random_masks(rows, 151_936) if masked else None
    chosen = Settings(hot, noise=counters(rows), scored_ids=ids, masks=masks)
    logits = torch.mm(hidden, weight.T, out_dtype=torch.float32)
    for sampler in (SamplerConfig(), SamplerConfig(ALL, "lowest", tempered=False)):
        check_head((hidden, weight), chosen, logits=logits, sampler=sampler, **OF_MODELS)
    filled = max(1, rows - 3)
    counts = (None, torch.tensor([filled], device="cuda"))
    whole, part = (head_and_sample(hidden, weight, chosen, filled=count, **OF_MODELS) for count in counts)
    for name in ("tokens", "probabilities", "scored_probabilities"):
        assert torch.equal(getattr(whole, name)[:filled], getattr(part, name)[:filled])


def test_filters_stay_with_the_twin():
    logits = torch.randn(4, 1000, device="cuda")
    chosen = Settings(torch.ones(4, device="cuda"), top_p=torch.full((4,), 0.5, device="cuda"), noise=counters(4))
    found, twin = (each(logits, chosen, vocab_size=1000, mask_id=None) for each in (sample, sample.twin))
    assert torch.equal(found.tokens, twin.tokens)
    assert torch.equal(found.probabilities, twin.probabilities)


def test_the_bits_of_a_row_do_not_depend_on_other_rows():
    logits = torch.randn(4, 152_064, device="cuda").to(BF16)
    chosen = Settings(torch.ones(4, device="cuda"), noise=counters(4))
    options = {"vocab_size": 152_064, "mask_id": None}
    other = logits.clone()
    other[1:] = 7.0
    first, second = (sample(one, chosen, **options) for one in (logits, other))
    assert first.tokens[0] == second.tokens[0] and first.probabilities[0] == second.probabilities[0]


@pytest.mark.parametrize("width", [64, 2816, 4096, 8192])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_merge_equals_the_twin(dtype, width):
    sizes = {"ids": 1000, "total": 100, "blended": 33, "count": 3, "width": width}
    check_merge(merge_embeddings, merge_embeddings.twin, width, dtype=dtype, device="cuda", **sizes)


@pytest.mark.parametrize("rows, count, first", [(1, 1, 0), (3, 151936, 0), (32, 70001, 81937)])
def test_uniform_numbers_are_those_of_the_twin(rows, count, first):
    keys = torch.randint(-(2**62), 2**62, (rows,), device="cuda", generator=torch.Generator("cuda").manual_seed(rows))
    assert torch.equal(uniform(keys, count=count, first=first), uniform.twin(keys, count=count, first=first))

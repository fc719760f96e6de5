"""The fused head in the interpreter, against its twin."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import example, given, strategies as st

from dlstep_kernels import SamplerConfig, head
from dlstep_kernels.gpu import head as head_kernels
from dlstep_kernels.vocabulary import Share, cut_of

from ....helpers.sampling_checks import assert_same, launched, options_of, problems, scores_of, settings_of
from ....helpers.triton_interpreter import needs_interpreter
from ..profiles import up_to
from ..rank_rounds import all_ranks
from .test_sampling import MASKED, SMALL

pytestmark = needs_interpreter
ignored = pytest.mark.filterwarnings("ignore:All-NaN slice encountered:RuntimeWarning")
# The only logit is infinite; one rank of two has no id.
INFINITE = replace(
    SMALL, seed=0, width=1, vocab_size=1, spread=0.0, odd=((0, 0, math.inf),), temperatures=None, sampler=SamplerConfig()
)


@pytest.mark.full
@ignored
@up_to(30)
@given(
    problem=problems(rows=18, width=40),
    depth=st.sampled_from((16, 24, 33)),
    columns=st.sampled_from((16, 64)),
    bulk=st.sampled_from((True, False)),
    biased=st.booleans(),
    ranks=st.sampled_from((1, 2, 3)),
)
@example(problem=replace(SMALL, width=33), depth=16, columns=16, bulk=False, biased=False, ranks=2)
@example(problem=replace(SMALL, width=4, vocab_size=4, named=3), depth=16, columns=16, bulk=False, biased=True, ranks=3)
@example(problem=MASKED, depth=16, columns=16, bulk=True, biased=False, ranks=1)
@example(problem=MASKED, depth=16, columns=64, bulk=False, biased=True, ranks=3)
@example(problem=INFINITE, depth=16, columns=16, bulk=False, biased=False, ranks=2)
def test_head_and_sample_equals_the_twin(problem, depth, columns, bulk, biased, ranks):
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
    options = options_of(problem)

    def of_rank(rank, exchange):
        cut = cut_of(problem.width, rank, ranks)
        own, own_bias = (None if each is None else each[cut.first : cut.first + cut.count] for each in (weight, bias))
        assert own is not None
        share = None if ranks == 1 else Share(cut, exchange)
        return head_kernels.head_and_sample(hidden, own, chosen, bias=own_bias, share=share, **options)

    with launched(head_kernels, bulk=int(bulk), rows=16, columns=columns, depth=16):
        found = all_ranks(ranks, of_rank)
    logits = hidden.double() @ weight.double().T + (0.0 if bias is None else bias.double())
    scores = scores_of(logits, chosen, vocab_size=problem.vocab_size, mask_id=problem.mask_id)
    twin = head.head_and_sample(hidden, weight, chosen, bias=bias, **options)
    for each in found:
        assert_same(each, twin, problem.width, additions=problem.width // 16 + 5 + ranks, scores=scores)

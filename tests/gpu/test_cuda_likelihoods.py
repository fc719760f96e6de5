"""Likelihoods on a CUDA device equal those on a CPU: the fused head reports probabilities over every id."""

import pytest

from dlstep import LLM, tiny
from dlstep.engine.likelihood import Likelihoods, MonteCarlo
from dlstep.text.prompts import encode_text

pytestmark = pytest.mark.gpu
# Each decoder with the error that is allowed for each token of an answer, in nats, in fp32.
DECODERS = {
    "canvas": {"model": "tiny-llada", "decoding_strategy": "dual_cache"},
    "exact": {"model": "tiny-bd", "decoding_strategy": "multi_bd", "block_size": 1},
    "causal": {"model": "tiny-joint", "decoding_strategy": "autoregressive"},
}
ERROR = 1e-3


def likelihoods(**options):
    """The likelihoods of right and wrong answers to embedded stories."""
    engine = LLM(dtype="float32", **options).engine
    texts = [(each.prompt, f"{each.answer + wrong} shells.") for each in tiny.problems(8, seed=3) for wrong in (0, 1)]
    pairs = [
        (tuple(encode_text(engine.tokenizer, prompt)), tuple(encode_text(engine.tokenizer, answer))) for prompt, answer in texts
    ]
    return Likelihoods(engine, MonteCarlo(num=16, batch=8)).of(pairs)


@pytest.mark.parametrize("name", DECODERS)
def test_likelihoods_equal_those_of_the_cpu(name, cuda_device):
    found, expected = (likelihoods(device=device, **DECODERS[name]) for device in (cuda_device, "cpu"))
    assert [each.value for each in found] == pytest.approx([each.value for each in expected], abs=20 * ERROR)
    assert [each.greedy for each in found] == [each.greedy for each in expected]

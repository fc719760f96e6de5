"""Likelihoods against the authors' functions, written out as they are published, and against sums over all masks."""

import math
from itertools import combinations
from random import Random

import pytest
import torch
from torch.nn.functional import cross_entropy

from dlstep import LLM, DlstepError, SamplingParams
from dlstep.engine.likelihood import Likelihoods, MonteCarlo, estimate, masks_of

from ...helpers.tiny_families import write_checkpoint

LOGITS = 2e-4  # nats, for each token of an answer: forward passes in fp32, batched differently


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def made(folder, family, **options):
    """A random checkpoint of a family as the engine and as its class of transformers."""
    network, _ = write_checkpoint(folder / family, family, seed=3)
    return LLM(folder / family, family=family, max_num_reqs=16, page_size=8, **options), network


def pairs_of(llm, lengths):
    """Random prompts and answers of these lengths."""
    spec, random = llm.engine.first.config.spec, Random(5)
    ids = [token for token in range(spec.vocab_size) if token != spec.mask_id]
    return [(tuple(random.choices(ids, k=3 + length)), tuple(random.choices(ids, k=length))) for length in lengths]


def logits_of(network, batch, shift, causal=False):
    """`get_logits` of both repositories; Dream's moves the rows by one, its first row predicts itself."""
    size = batch.shape[1]
    sees = torch.ones(size, size, dtype=torch.bool)
    with torch.inference_mode():
        logits = network(batch, attention_mask=(sees.tril() if causal else sees)[None, None], use_cache=False).logits
    return torch.cat([logits[:, :1], logits[:, :-1]], dim=1) if shift else logits


def authors(llm, network, pair, masks, batch_size):
    """`get_log_likelihood` of LLaDA, whose `forward_process` is given its masks."""
    spec = llm.engine.first.config.spec
    prompt, answer = map(torch.tensor, pair)
    seq = torch.cat([prompt, answer])[None, :].repeat((batch_size, 1))
    losses = []
    for first in range(0, len(masks), batch_size):
        perturbed, p_mask = seq.clone(), torch.ones(seq.shape)
        for row, own in enumerate(masks[first : first + batch_size]):
            perturbed[row, [len(prompt) + offset for offset in own]] = spec.mask_id
            p_mask[row] = len(own) / len(answer)
        mask_index = perturbed == spec.mask_id
        logits = logits_of(network, perturbed, spec.head_shift)
        loss = cross_entropy(logits[mask_index], seq[mask_index], reduction="none") / p_mask[mask_index]
        losses.append((loss.sum() / batch_size).item())
    return -sum(losses) / len(losses)


def suffix_greedy_prediction(llm, network, pair):
    """The tokens that `suffix_greedy_prediction` of LLaDA's harness compares with the answer."""
    spec = llm.engine.first.config.spec
    prompt, length = list(pair[0]), len(pair[1])
    seq = torch.tensor([prompt + [spec.mask_id] * length])
    for _ in range(length):
        mask_index = seq == spec.mask_id
        logits = logits_of(network, seq, spec.head_shift)[mask_index]
        x0 = logits.argmax(-1)
        index = logits.softmax(-1).gather(-1, x0[:, None])[:, 0].argsort(descending=True)
        x0[index[1:]] = spec.mask_id
        seq[mask_index] = x0
    return seq[0, len(prompt) :].tolist()


@pytest.mark.parametrize("family", ["llada", "dream"])
def test_the_estimate_is_that_of_the_authors_for_the_same_masks(tmp_path, family):
    llm, network = made(tmp_path, family)
    settings = MonteCarlo(32, 8, seed=4)
    likelihoods = Likelihoods(llm.engine, settings)
    pairs = pairs_of(llm, (1, 2, 5, 9, 12, 40))  # the last one is longer than a block of the strategy
    before = llm.generate([list(pairs[0][0])], SamplingParams(max_tokens=4))
    spec = llm.engine.first.config.spec
    for prompt, answer in pairs_of(llm, (2, 3) * 8):
        greedy = suffix_greedy_prediction(llm, network, (prompt, answer))
        if spec.mask_id not in greedy and max(greedy) < spec.vocab_size:  # and answers that differ from it in a single token
            pairs += [(prompt, (*greedy[:at], *answer[at : at + 1], *greedy[at + 1 :])) for at in range(len(answer) + 1)]
    found = likelihoods.of(pairs)
    values, again = ([each.value for each in several] for several in (found, likelihoods.of(pairs[::-1])[::-1]))
    assert again == pytest.approx(values, abs=LOGITS), "a figure does not depend on its neighbours"
    for pair, each in zip(pairs, found, strict=True):
        masks = masks_of(len(pair[1]), settings, pair)
        assert each.value == pytest.approx(authors(llm, network, pair, masks, 8), abs=LOGITS * len(pair[1]))
        assert each.greedy == (list(pair[1]) == suffix_greedy_prediction(llm, network, pair))
    assert {each.greedy for each in found} == {True, False}
    assert llm.generate([list(pairs[0][0])], SamplingParams(max_tokens=4)) == before


def test_the_estimator_is_unbiased_and_its_standard_error_covers(tmp_path):
    llm, network = made(tmp_path, "llada")
    ((prompt, answer),) = pairs_of(llm, (4,))
    ways = [own for count in range(1, 5) for own in combinations(range(4), count)]
    each = {own: authors(llm, network, (prompt, answer), [own], 1) * len(own) / 4 for own in ways}
    exact = sum(each[own] * 4 / len(own) / 4 / math.comb(4, len(own)) for own in ways)
    inside, shares = 0, []
    for seed in range(200):
        value, error = estimate(4, masks_of(4, MonteCarlo(160, 8, seed), "pair"), each, 8)
        assert error is not None
        inside += abs(value - exact) < 2.09 * error  # of 20 batches, in 95 of 100 runs
        shares.append((value - exact) / error)
    assert abs(sum(shares) / 200) < 3 / 200**0.5 and 180 <= inside <= 199


@pytest.mark.parametrize("length", [1, 2, 7, 40])
def test_numbers_of_masks_are_uniform(length):
    masks = [own for seed in range(60) for own in masks_of(length, MonteCarlo(64, 32, seed), "pair")]
    assert all(list(own) == sorted(set(own)) and set(own) <= set(range(length)) for own in masks)
    sizes = [sum(len(own) == size for own in masks) for size in range(1, length + 1)]
    assert max(sizes) - min(sizes) < 0.4 * len(masks) / length
    if length > 1:  # each offset is as often masked as any other
        at = [sum(offset in own for own in masks) for offset in range(length)]
        assert max(at) - min(at) < 0.1 * len(masks)
    assert masks_of(length, MonteCarlo(), "pair") == masks_of(length, MonteCarlo(), "pair")


@pytest.mark.parametrize("family", ["sdar", "fast_dllm_v2"])
def test_one_token_at_a_time_is_the_chain_rule(tmp_path, family):
    """A mask sees the tokens before it and itself; with a shifted head the last token predicts."""
    llm, network = made(tmp_path, family, decoding_strategy="multi_bd", block_size=1)
    spec = llm.engine.first.config.spec
    pairs = pairs_of(llm, (1, 3, 9))
    outputs = llm.generate([prompt for prompt, _ in pairs], SamplingParams(max_tokens=4, ignore_eos=True))
    pairs += [(prompt, output.token_ids) for (prompt, _), output in zip(pairs, outputs, strict=True)]
    for (prompt, answer), found in zip(pairs, Likelihoods(llm.engine).of(pairs), strict=True):
        value, best = 0.0, []
        for at, token in enumerate(answer):
            text = torch.tensor([[*prompt, *answer[:at], spec.mask_id]])
            row = logits_of(network, text, spec.head_shift, causal=True)[0, -1]
            value += float(row.log_softmax(0)[token])
            best.append(int(row.argmax()))
        assert found.value == pytest.approx(value, abs=LOGITS * len(answer)) and found.standard_error == 0.0
        assert found.greedy == (best == list(answer))


CAUSAL = [("idlm", "strided"), ("idlm", "autoregressive")] + [
    ("nemotron_labs_diffusion", name) for name in ("causal_blocks", "self_speculation", "autoregressive")
]


@pytest.mark.parametrize("family, strategy", CAUSAL)
@pytest.mark.parametrize("rows", [4096, 16])
def test_causal_networks_score_an_answer_in_as_few_passes_as_rows_allow(tmp_path, family, strategy, rows):
    """By the chain rule with causal attention; in parts, together and alone."""
    options = {"block_size": 4} if strategy not in ("autoregressive", "strided") else {}
    llm, network = made(tmp_path, family, decoding_strategy=strategy, max_num_batched_tokens=rows, **options)
    pairs = pairs_of(llm, (1, 3, 9, 40))
    likelihoods = Likelihoods(llm.engine)
    found = likelihoods.of(pairs)
    assert likelihoods.steps <= (8 if rows > 16 else 24)
    for (prompt, answer), together in zip(pairs, found, strict=True):
        logits = logits_of(network, torch.tensor([[*prompt, *answer]]), 1, causal=True)[0, len(prompt) :]
        value = float(logits.log_softmax(-1).gather(-1, torch.tensor(answer)[:, None]).sum())
        (alone,) = likelihoods.of([(prompt, answer)])
        assert together.value == pytest.approx(value, abs=LOGITS * len(answer)) == alone.value
        assert together.greedy == alone.greedy == (logits.argmax(-1).tolist() == list(answer))


@pytest.mark.parametrize("family", ["idlm", "llada"])
def test_a_longer_pair_than_the_model_is_refused(tmp_path, family):
    llm, _ = made(tmp_path, family, max_model_len=32)
    likelihoods = Likelihoods(llm.engine, MonteCarlo(2, 2))
    assert likelihoods.of([((5,) * 24, (6,) * 8)])
    with pytest.raises(DlstepError, match="a prompt of 25 tokens and an answer of 8 are longer than max_model_len=32: shorten"):
        likelihoods.of([((5,) * 25, (6,) * 8)])

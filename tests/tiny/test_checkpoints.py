"""The shipped checkpoints are ordinary Hugging Face folders, small, complete and trained."""

import json
import random

import pytest
import torch
from safetensors import safe_open
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast, Qwen3ForCausalLM

from dlstep.tiny import names, path, problems
from dlstep.tiny.batches import grid_of
from dlstep.tiny.layout import Noise, Sample, add_noise, attention, lay_out, single_block_noise
from dlstep.tiny.model import logits_at
from dlstep.tiny.recipes import RECIPES
from dlstep.tiny.task import draw_response
from dlstep.tiny.tokenizer import VOCABULARY

FOUR_MEGABYTES = 4_000_000

shipped = pytest.mark.parametrize("name", names())


@shipped
def test_the_model_loads_with_exactly_its_keys(name: str) -> None:
    model, loading = AutoModelForCausalLM.from_pretrained(path(name), output_loading_info=True)
    assert isinstance(model, Qwen3ForCausalLM)
    assert not any(loading.values()), loading
    assert model.lm_head.weight is model.model.embed_tokens.weight
    with safe_open(path(name) / "model.safetensors", framework="pt") as file:
        assert set(file.keys()) == set(model.state_dict()) - {"lm_head.weight"}
        assert {file.get_tensor(key).dtype for key in file.keys()} == {torch.bfloat16}  # noqa: SIM118


@shipped
def test_the_configuration_tells_how_to_decode(name: str) -> None:
    config = AutoConfig.from_pretrained(path(name))
    assert (config.mask_token_id, config.block_size, config.max_position_embeddings) == (1, 8, 512)
    assert (config.vocab_size, config.tie_word_embeddings, config.head_dim) == (192, True, 32)
    assert config.dlstep == {
        "mask_token_id": 1,
        "block_size": 8,
        "decoding_strategy": RECIPES[name].decoding_strategy,
        "buffer_size": 4,
        "head_shift": 0,
        "accept_rule": "A",
    }
    generation = json.loads((path(name) / "generation_config.json").read_text(encoding="utf-8"))
    assert (generation["eos_token_id"], generation["pad_token_id"]) == (2, 0)
    assert generation.get("bos_token_id") is None


@shipped
def test_the_tokenizer_loads(name: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(path(name))
    assert isinstance(tokenizer, PreTrainedTokenizerFast)
    assert tokenizer.convert_ids_to_tokens(list(range(len(tokenizer)))) == list(VOCABULARY)


@shipped
def test_the_folder_is_small_and_complete(name: str) -> None:
    files = {file.name: file.stat().st_size for file in path(name).iterdir()}
    assert set(files) == {
        "README.md",
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    assert sum(files.values()) < FOUR_MEGABYTES


@shipped
def test_the_model_fills_single_gaps_of_held_out_stories(name: str) -> None:
    """With seven of eight tokens given, nearly every missing one follows from the story."""
    model = AutoModelForCausalLM.from_pretrained(path(name), dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(path(name))
    source = random.Random(0)
    samples = []
    for problem in problems(64, seed=9):
        prompt, response = tokenizer([problem.prompt, draw_response(problem, source)])["input_ids"]
        samples.append(Sample(tuple(prompt), tuple(response)))
    grid = grid_of(RECIPES[name])
    rows = lay_out(samples, grid)
    generator = torch.Generator().manual_seed(0)
    noise = single_block_noise(rows, generator)
    rows = add_noise(rows, samples, Noise(torch.full_like(noise.level, 1 / 8), noise.window), generator)
    with torch.no_grad():
        logits = logits_at(model, rows.inputs, rows.positions, attention(rows), rows.masked)
    right = logits.argmax(-1) == rows.targets[rows.masked]
    assert len(right) > 300
    assert right.float().mean() > 0.95

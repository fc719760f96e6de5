"""The shipped checkpoints are ordinary Hugging Face folders, small, complete and trained."""

import json
import random

import pytest
import torch
from safetensors import safe_open
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    DiffusionGemmaForBlockDiffusion,
    PreTrainedTokenizerFast,
    Qwen3ForCausalLM,
)

from dlstep import LLM
from dlstep.tiny import names, path, problems, score
from training.batches import grid_of
from training.canvas import canvas_logits, draw_canvases
from training.layout import AbsoluteGrid, Noise, Sample, add_noise, answer_places, attention, lay_out, single_block_noise
from training.lessons import joint_blocks, masked_canvas, shifted_blocks
from training.masks import LONGEST_CANVAS
from training.model import logits_at
from training.recipes import RECIPES, Stage
from training.stories import draw_response
from training.tokenizer import MASK_ID, VOCABULARY

FOUR_MEGABYTES = 4_000_000
QWEN = tuple(name for name in names() if RECIPES[name].lesson != "random canvas")
BLOCKWISE = tuple(name for name in QWEN if RECIPES[name].lesson in ("blocks", "edits"))

shipped = pytest.mark.parametrize("name", names())


def held_out_samples(tokenizer: PreTrainedTokenizerFast) -> list[Sample]:
    """Problems that no training run may see, with one of their right answers each."""
    source = random.Random(0)
    samples = []
    for problem in problems(64, seed=9):
        prompt, response = tokenizer([problem.prompt, draw_response(problem, source)])["input_ids"]
        samples.append(Sample(tuple(prompt), tuple(response)))
    return samples


@pytest.mark.parametrize("name", QWEN)
def test_the_model_loads_with_exactly_its_keys(name: str) -> None:
    model, loading = AutoModelForCausalLM.from_pretrained(path(name), output_loading_info=True)
    assert isinstance(model, Qwen3ForCausalLM)
    assert not any(loading.values()), loading
    assert model.lm_head.weight is model.model.embed_tokens.weight
    with safe_open(path(name) / "model.safetensors", framework="pt") as file:
        assert set(file.keys()) == set(model.state_dict()) - {"lm_head.weight"}
        assert {file.get_tensor(key).dtype for key in file.keys()} == {torch.bfloat16}  # noqa: SIM118


@pytest.mark.parametrize("name", QWEN)
def test_the_configuration_tells_how_to_decode(name: str) -> None:
    config = AutoConfig.from_pretrained(path(name))
    assert (config.mask_token_id, config.block_size, config.max_position_embeddings) == (1, 8, 512)
    assert (config.vocab_size, config.tie_word_embeddings, config.head_dim) == (192, True, 32)
    assert config.dlstep == {
        "mask_token_id": 1,
        "block_size": 8,
        "decoding_strategy": RECIPES[name].decoding_strategy,
        "training": RECIPES[name].training,
        "buffer_size": 1 if name in ("tiny-joint", "tiny-llada") else 4,
        "head_shift": 1 if name == "tiny-fdv2" else 0,
        "accept_rule": "A",
    }
    generation = json.loads((path(name) / "generation_config.json").read_text(encoding="utf-8"))
    assert (generation["eos_token_id"], generation["pad_token_id"]) == (2, 0)
    assert generation.get("bos_token_id") is None
    assert generation.get("max_new_tokens") == (LONGEST_CANVAS if name == "tiny-llada" else None)


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
def test_a_call_without_parameters_answers_a_story(name: str) -> None:
    llm, (problem,) = LLM(name), problems(1, seed=0)
    (output,) = llm.generate(problem.prompt)
    assert score(problem, output.text).answer and output.finish_reason == "stop" and not output.why_empty
    assert "".join(llm.stream(problem.prompt)) == output.text
    session = llm.session()
    number = session.submit(problem.prompt)
    session.run()
    assert session.output(number).token_ids == output.token_ids


@pytest.mark.parametrize("name", BLOCKWISE)
def test_the_model_fills_single_gaps_of_held_out_stories(name: str) -> None:
    """With seven of eight tokens given, nearly every missing one follows from the story."""
    model = AutoModelForCausalLM.from_pretrained(path(name), dtype=torch.float32)
    samples = held_out_samples(AutoTokenizer.from_pretrained(path(name)))
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


@pytest.mark.parametrize("name", ["tiny-fdv2", "tiny-llada"])
def test_the_model_knows_most_of_the_block_at_the_cursor(name: str) -> None:
    """All before the block is clean, all behind it masked; what is masked in it may well be open."""
    model = AutoModelForCausalLM.from_pretrained(path(name), dtype=torch.float32)
    samples = held_out_samples(AutoTokenizer.from_pretrained(path(name)))
    generator = torch.Generator().manual_seed(0)
    stage = Stage("cursor", 1, 1.0, 1.0, cursor_share=1.0)
    if name == "tiny-fdv2":
        exercise = shifted_blocks(RECIPES[name], stage, samples, generator)
    else:
        exercise = masked_canvas(stage, samples, generator)
    with torch.no_grad():
        logits = logits_at(model, exercise.inputs, exercise.positions, exercise.seen, exercise.predicted)
    right = logits.argmax(-1) == exercise.answers
    assert len(right) > 150
    assert right.float().mean() > 0.85


def test_the_joint_model_predicts_the_next_token_and_whole_blocks() -> None:
    """Its drafts are less accurate, because they depend only on the first token of the block."""
    model = AutoModelForCausalLM.from_pretrained(path("tiny-joint"), dtype=torch.float32)
    samples = held_out_samples(AutoTokenizer.from_pretrained(path("tiny-joint")))
    exercise, _ = joint_blocks(samples, torch.Generator().manual_seed(0))
    with torch.no_grad():
        logits = logits_at(model, exercise.inputs, exercise.positions, exercise.seen, exercise.predicted)
    right = logits.argmax(-1) == exercise.answers
    masked = exercise.inputs[exercise.predicted] == MASK_ID
    assert right[~masked].float().mean() > 0.95
    assert right[masked].float().mean() > 0.85


def test_an_editing_model_corrects_wrong_tokens() -> None:
    """A random token in a block of an otherwise right answer is mostly replaced by the right one, the others stay."""
    name = "tiny-edit"
    model = AutoModelForCausalLM.from_pretrained(path(name), dtype=torch.float32)
    samples = held_out_samples(AutoTokenizer.from_pretrained(path(name)))
    rows = lay_out(samples, AbsoluteGrid(8))
    generator = torch.Generator().manual_seed(0)
    noise = single_block_noise(rows, generator)
    rows = add_noise(rows, samples, Noise(torch.full_like(noise.level, 1 / 16), noise.window), generator)
    wrong = torch.where(rows.masked, torch.randint(3, len(VOCABULARY), rows.masked.shape, generator=generator), rows.targets)
    answers = answer_places(rows, samples)
    with torch.no_grad():
        logits = logits_at(model, wrong, rows.positions, attention(rows), answers)
    right = logits.argmax(-1) == rows.targets[answers]
    broken = (wrong != rows.targets)[answers]
    assert right[broken].float().mean() > 0.85
    assert right[~broken].float().mean() > 0.97


def test_the_canvas_model_restores_held_out_canvases() -> None:
    folder = path("tiny-canvas")
    model, loading = DiffusionGemmaForBlockDiffusion.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    assert not any(loading.values()), loading
    assert model.lm_head.weight is model.model.decoder.embed_tokens.weight
    assert model.config.canvas_length == 32
    assert model.config.dlstep["decoding_strategy"] == RECIPES["tiny-canvas"].decoding_strategy
    assert model.generation_config.sampler_config is not None
    assert (model.generation_config.eos_token_id, model.generation_config.pad_token_id) == (2, 0)
    samples = held_out_samples(AutoTokenizer.from_pretrained(folder))
    canvases = draw_canvases(samples, torch.Generator().manual_seed(0))
    with torch.no_grad():
        right = canvas_logits(model, canvases).argmax(-1) == canvases.targets
    assert right.float().mean() > 0.75


def test_the_canvas_model_generates_with_its_own_class() -> None:
    """Answers have the right form, though its sums are often wrong."""
    folder = path("tiny-canvas")
    model = DiffusionGemmaForBlockDiffusion.from_pretrained(folder, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    torch.manual_seed(0)
    formed = 0
    for problem in problems(8, seed=9):
        prompt = tokenizer(problem.prompt, return_tensors="pt")["input_ids"]
        tokens = model.generate(input_ids=prompt).sequences[0, prompt.shape[1] :]
        text = tokenizer.decode(tokens, skip_special_tokens=True)
        formed += text.count("=") == len(problem.events) and problem.thing in text and text.endswith(".")
    assert formed >= 6

"""Every family, loaded from a folder under its published names, computes what its class of transformers does."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from transformers import Ministral3ForCausalLM

from dlstep.models import ATTENTION, PagedContext, load_checkpoint
from dlstep.models.shapes import kv_shapes
from dlstep.models.transformers_internals import NO_MASKS
from dlstep_kernels import Spans, lay_out, visible_range
from training.tokenizer import EMBEDDING_ROWS

from ...helpers.tiny_families import FACTS, write_checkpoint

CLOSE = 2e-5
LENGTH, PROMPT = 19, 7
# Origin and size of the groups of positions that see one another.
GRIDS = {"block-causal": (0, 4), "full": (0, LENGTH), "causal": (0, 1), "prompt in full": (PROMPT, 5)}
MASKS = (*GRIDS, "random")
VARIANTS = {
    "plain": {},
    "seven query heads a key head": {"heads": (7, 1)},
    "tied": {"tied": True},
    "biased": {"biases": True, "shards": 3},
}
# Gemma's head is always tied, and it has no biases.
CASES = [
    (family, variant)
    for family in FACTS
    for variant in VARIANTS
    if family != "diffusion_gemma" or variant not in ("tied", "biased")
]


def visibility(mask):
    """Which position sees which."""
    if mask == "random":
        seen = torch.rand((LENGTH, LENGTH), generator=torch.Generator().manual_seed(3)) < 0.5
        return seen | torch.eye(LENGTH, dtype=torch.bool)
    origin, size = GRIDS[mask]
    positions = np.arange(LENGTH)
    _, until = visible_range(positions, positions * 0 + origin, positions * 0 + size, positions * 0 + LENGTH)
    return torch.arange(LENGTH)[None] < torch.from_numpy(until)[:, None]


def dense(network, ids, seen):
    """Logits of the class, with its own attention under a mask."""
    mask = seen[None, None]
    if not hasattr(network.model, "encoder"):
        return network(ids, attention_mask=mask, use_cache=False).logits[0]
    masks = {"full_attention": mask, "sliding_attention": mask}
    return network.lm_head(network.model.encoder.language_model(input_ids=ids, attention_mask=masks).last_hidden_state[0])


def paged(network, ids, mask):
    """Logits with keys and values in pages, in a forward pass of all rows."""
    length = ids.shape[1]
    positions, count = np.arange(length), -(-length // 3)
    filled = [np.full(length, value) for value in (*GRIDS[mask], length)]
    since, until = visible_range(positions, *filled)
    pages = np.random.default_rng(0).permutation(count)[None]
    spans = Spans(np.array([length]), np.array([length]), pages, until, since, 3)
    layout = lay_out(spans, dtype=torch.float32, device=torch.device("cpu"))
    room = [tuple(torch.zeros(3 * count, each.kv_heads, each.head_dim) for each in kv_shapes(network.config)) for _ in range(2)]
    slots = torch.from_numpy(pages[0][positions // 3] * 3 + positions % 3)
    views = {shape.view: layout for shape in kv_shapes(network.config)}
    context = PagedContext(room[0], room[1], slots, views)
    where = torch.arange(length)[None]
    return network(ids, position_ids=where, attention_mask=NO_MASKS, use_cache=False, paged=context).logits[0]


@pytest.mark.parametrize("family, variant", CASES)
@torch.inference_mode()
def test_logits_equal_those_of_the_class(family, variant, tmp_path):
    reference, _ = write_checkpoint(tmp_path, family, seed=1, **VARIANTS[variant])
    network = load_checkpoint(tmp_path, family=family).network
    assert type(network) is type(reference)
    if any("experts" in name for name, _ in reference.named_parameters()):
        reference.set_experts_implementation("eager")
    ids = torch.randint(0, EMBEDDING_ROWS - 8, (1, LENGTH), generator=torch.Generator().manual_seed(2))
    answers = []
    for mask in MASKS:
        expected = dense(reference, ids, visibility(mask))
        network.set_attn_implementation("sdpa")
        torch.testing.assert_close(dense(network, ids, visibility(mask)), expected, atol=CLOSE, rtol=0)
        if mask in GRIDS and family != "diffusion_gemma":
            network.set_attn_implementation(ATTENTION)
            torch.testing.assert_close(paged(network, ids, mask), expected, atol=CLOSE, rtol=0)
        answers.append(expected)
    assert all((a - b).abs().max() > 0.01 for a, b in pairwise(answers))  # the masks matter


@torch.inference_mode()
def test_a_nemotron_beyond_its_original_window_equals_what_transformers_loads(tmp_path):
    rope = FACTS["nemotron_labs_diffusion"]((4, 2), False)["rope_parameters"] | {"original_max_position_embeddings": 64}
    written, _ = write_checkpoint(tmp_path / "ours", "nemotron_labs_diffusion", seed=1, rope_parameters=rope)
    written.save_pretrained(tmp_path / "theirs")
    reference = Ministral3ForCausalLM.from_pretrained(tmp_path / "theirs", dtype=torch.float32).eval()
    network = load_checkpoint(tmp_path / "ours").network
    ids = torch.randint(0, EMBEDDING_ROWS - 8, (1, 140), generator=torch.Generator().manual_seed(2))
    expected = reference(ids, use_cache=False).logits[0]
    torch.testing.assert_close(paged(network, ids, "causal"), expected, atol=1e-5, rtol=0)
    reference.config.rope_parameters["llama_4_scaling_beta"] = 0.0
    unscaled = reference(ids, use_cache=False).logits[0]
    assert torch.equal(unscaled[:64], expected[:64]) and (unscaled[64:] - expected[64:]).abs().max() > 1e-3


@torch.inference_mode()
def test_canvases_equal_those_of_the_class(tmp_path):
    reference, facts = write_checkpoint(tmp_path, "diffusion_gemma", seed=1)
    network = load_checkpoint(tmp_path).network
    network.set_attn_implementation("sdpa")
    generator = torch.Generator().manual_seed(2)
    ids = torch.randint(0, EMBEDDING_ROWS - 8, (1, LENGTH), generator=generator)
    canvas = torch.randint(0, EMBEDDING_ROWS - 8, (1, facts["canvas_length"]), generator=generator)
    signals = torch.randn((1, facts["canvas_length"], EMBEDDING_ROWS), generator=generator)
    for signal in (None, signals):
        expected, got = (
            each(input_ids=ids, decoder_input_ids=canvas, self_conditioning_logits=signal).logits
            for each in (reference, network)
        )
        torch.testing.assert_close(got, expected, atol=CLOSE, rtol=0)

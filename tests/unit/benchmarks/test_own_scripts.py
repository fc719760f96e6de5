"""Networks called as scripts call them: what is cached is what a whole pass computes."""

from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import DynamicCache

from benchmarks.device import Ceilings
from benchmarks.own_scripts import ScriptLoad, imported, measure, measure_script, script_network

from ...helpers.shapes import shrunk

CPU, FP32, MASK = torch.device("cpu"), torch.float32, 299
IDS = torch.arange(5, 29)[None]


def near(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-4)


@torch.no_grad()
def test_a_replaced_block_of_a_full_canvas_equals_a_whole_pass() -> None:
    network = script_network(shrunk("llada-8b"), CPU, FP32, MASK)
    first = network(IDS, use_cache=True)
    changed, where = IDS.clone(), torch.zeros_like(IDS, dtype=torch.bool)
    where[:, 8:16] = True
    near(network(IDS).logits, first.logits)
    again = network(IDS[:, 8:16], past_key_values=first.past_key_values, use_cache=True, replace_position=where)
    near(again.logits, first.logits[:, 8:16])
    changed[:, 8:16] = 7
    other = network(changed[:, 8:16], past_key_values=first.past_key_values, use_cache=True, replace_position=where)
    assert not torch.allclose(other.logits, again.logits), "rows see the tokens of their block"
    assert network.passes == 4 and (first.logits[..., MASK] == -torch.inf).all()


@torch.no_grad()
def test_blocks_over_stored_keys_equal_a_whole_pass_with_the_mask() -> None:
    network = script_network(shrunk("sdar-1.7b"), CPU, FP32, MASK)
    blocks = torch.arange(24) // 8
    mask = (blocks[:, None] >= blocks[None]).float()[None]
    whole, cache = network(IDS, mask).logits, DynamicCache()
    for start in range(0, 24, 8):
        rows, seen = slice(start, start + 8), mask[:, start : start + 8, : start + 8]
        for store in (False, False, True):  # what is not stored leaves nothing
            found = network(IDS[:, rows], seen, past_key_values=cache, use_cache=True, store_kv=store).logits
            near(found, whole[:, rows])


def test_a_script_is_imported_timed_and_compared(tmp_path: Path) -> None:
    path = tmp_path / "generate.py"
    path.write_text("def generate(model, prompt, steps, **named):\n    [model(prompt) for _ in range(steps)]\n")
    load, given = ScriptLoad(IDS, 8, 2, MASK), Ceilings(1e10, 1e11)
    row = measure_script("llada", imported(path), shrunk("llada-8b"), load, FP32, given)
    assert (row["passes"], row["context"], row["answer"]) == (4, 24, 8)
    assert row["script_tokens_per_s"] == pytest.approx(2e3 / row["script_pass_ms"])
    assert row["faster"] == pytest.approx(row["tokens_per_s"] / row["script_tokens_per_s"])
    with pytest.raises(ValueError, match="--script llada needs the file of the script: fetch its code and give --path"):
        next(measure("llada", "", "", 24, 8, 1))


def test_transformers_loop_of_diffusion_gemma_counts_its_passes() -> None:
    load = ScriptLoad(IDS, 16, 4, MASK)
    row = measure_script("diffusion_gemma", None, shrunk("diffusion-gemma-26b"), load, FP32, Ceilings(1e10, 1e11))
    assert 1 <= row["passes"] <= 4

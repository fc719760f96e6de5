"""`dlstep models check`: what it says of whole and of damaged folders, with no weights read and no code run."""

import json

import pytest
import torch

from dlstep import LLM
from dlstep.cli import main
from dlstep.models import load_checkpoint
from dlstep.models.check import check
from dlstep.models.shapes import kv_bytes_per_token

from ...helpers.files import edit
from ...helpers.tiny_families import FACTS, write_checkpoint


def facts(folder, capsys, *options, code=0):
    """Output of the command for machines."""
    assert main(["models", "check", str(folder), "--json", *options]) == code
    return json.loads(capsys.readouterr().out)


@pytest.fixture
def folder(tmp_path):
    write_checkpoint(tmp_path / "folder", "sdar", shards=2)
    return tmp_path / "folder"


@pytest.mark.parametrize("family", FACTS)
def test_every_family_is_told_as_it_would_be_loaded(family, tmp_path, capsys):
    reference, _ = write_checkpoint(tmp_path, family)
    told = facts(tmp_path, capsys, "--family", family)
    assert told["problems"] == []
    assert (told["family"], told["network"]) == (family, type(reference).__name__)
    assert told["parameters"] == sum(parameter.numel() for parameter in reference.parameters())
    made = load_checkpoint(tmp_path, family=family)
    assert told["mask_id"] == made.spec.mask_id
    assert told["strategies"][made.description.decoding_strategy] is None


def test_bytes_per_token_are_those_of_every_layer(tmp_path, capsys):
    write_checkpoint(tmp_path, "diffusion_gemma")
    told = facts(tmp_path, capsys)
    assert told["kv_bytes_per_token"] == {"16-bit": 2 * 4 * 2 * 16, "32-bit": 4 * 4 * 2 * 16}
    shapes = check(tmp_path).kv_shapes
    assert kv_bytes_per_token(shapes, torch.float16) == told["kv_bytes_per_token"]["16-bit"]


def test_the_text_says_the_same(tmp_path, capsys):
    write_checkpoint(tmp_path, "diffusion_gemma")
    assert main(["models", "check", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    for part in (
        "family: diffusion_gemma, loaded as DiffusionGemmaForBlockDiffusion",
        "256 bytes in 16-bit, 512 bytes in 32-bit",
        "strategies that fit: diffusion_gemma\n",
        "not multi_bd: ",
        ") fits into cpu",
        "problems: none",
    ):
        assert part in out


@pytest.mark.parametrize(
    "family", [*(pytest.param(each, marks=pytest.mark.full) for each in ("sdar", "diffusion_gemma")), "llada"]
)
def test_the_defaults_are_those_of_a_loaded_engine(family, tmp_path, capsys, caplog):
    write_checkpoint(tmp_path, family)
    (tmp_path / "generation_config.json").write_text('{"max_new_tokens": 7, "eos_token_id": 2}')
    told = facts(tmp_path, capsys)["by_default"]
    engine = LLM(str(tmp_path)).engine
    assert [record.getMessage() for record in caplog.records] == [f"dlstep: {told}"]
    length = engine.first.config.max_model_len
    assert told.startswith("weights in float32 (the network is small), KV cache in float32 of ")
    assert told.endswith(f"requests of max_model_len={length}")
    assert engine.max_tokens == (7 if family == "llada" else length)


def test_a_strategy_that_does_not_fit_says_why(folder, capsys):
    told = facts(folder, capsys)
    assert told["decoding_strategy"] == "multi_bd"
    assert told["strategies"]["diffusion_gemma"].startswith("it was trained block-causal")


def test_what_a_checkpoint_leaves_open_can_be_given(tmp_path, capsys):
    write_checkpoint(tmp_path, "sdar")
    edit(tmp_path / "config.json", model_type="qwen3", architectures=["Qwen3ForCausalLM"], auto_map=None, dlstep=None)
    assert "head_shift: give 1 if" in facts(tmp_path, capsys, code=1)["problems"][0]
    found = facts(tmp_path, capsys, "--head_shift", "1", "--training", "bidirectional", "--mask_token_id", "3")
    assert (found["family"], found["mask_id"], found["decoding_strategy"], found["problems"]) == ("qwen3", 3, "dual_cache", [])

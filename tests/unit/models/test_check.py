"""`dlstep models check`: what it says of whole and of damaged folders, with no weights read and no code run."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from dlstep.cli import main
from dlstep.models import load_checkpoint
from dlstep.models.check import check
from dlstep.models.shapes import kv_bytes_per_token, kv_shapes

from ...helpers.tiny_families import FACTS, write_checkpoint

Captured = pytest.CaptureFixture[str]


def facts(folder: Path, capsys: Captured, *options: str, code: int = 0) -> dict[str, Any]:
    """Output of the command for machines."""
    assert main(["models", "check", str(folder), "--json", *options]) == code
    return json.loads(capsys.readouterr().out)


def edit(folder: Path, name: str, **changes: object) -> None:
    said = json.loads((folder / name).read_text())
    (folder / name).write_text(json.dumps(said | changes))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_checkpoint(tmp_path / "folder", "sdar", shards=2)
    return tmp_path / "folder"


@pytest.mark.parametrize("family", FACTS)
def test_every_family_is_told_as_it_would_be_loaded(family: str, tmp_path: Path, capsys: Captured) -> None:
    reference, _ = write_checkpoint(tmp_path, family)
    told = facts(tmp_path, capsys, "--model_name", family)
    assert told["problems"] == []
    assert (told["family"], told["network"]) == (family, type(reference).__name__)
    assert told["parameters"] == sum(parameter.numel() for parameter in reference.parameters())
    made = load_checkpoint(tmp_path, model_name=family)
    assert told["mask_id"] == made.spec.mask_id
    assert told["strategies"][made.description.decoding_strategy] is None
    assert sum(layer["layers"] for layer in told["kv_layers"]) == len(kv_shapes(made.network.config))


def test_bytes_per_token_are_those_of_every_layer(tmp_path: Path, capsys: Captured) -> None:
    write_checkpoint(tmp_path, "diffusion_gemma")
    told = facts(tmp_path, capsys)
    sizes = {(layer["kv_heads"], layer["head_dim"], layer["window"]): layer["layers"] for layer in told["kv_layers"]}
    assert sizes == {(2, 8, 6): 2, (1, 16, None): 2}
    assert told["kv_bytes_per_token"] == {"16-bit": 2 * 4 * 2 * 16, "32-bit": 4 * 4 * 2 * 16}
    shapes = check(tmp_path).kv_shapes
    assert kv_bytes_per_token(shapes, torch.float16) == told["kv_bytes_per_token"]["16-bit"]


def test_the_text_says_the_same(tmp_path: Path, capsys: Captured) -> None:
    write_checkpoint(tmp_path, "diffusion_gemma")
    assert main(["models", "check", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    for part in (
        "family: diffusion_gemma, loaded as DiffusionGemmaForBlockDiffusion",
        "2 layers: 2 heads of 8, a window of 6",
        "2 layers: 1 heads of 16, full attention",
        "256 bytes in 16-bit, 512 bytes in 32-bit",
        "strategies that fit: diffusion_gemma\n",
        "not multi_bd: ",
        "problems: none",
    ):
        assert part in out


def test_a_strategy_that_does_not_fit_says_why(folder: Path, capsys: Captured) -> None:
    told = facts(folder, capsys)
    assert told["decoding_strategy"] == "multi_bd"
    assert told["strategies"]["diffusion_gemma"].startswith("it was trained block-causal")


def test_tensors_that_do_not_fit_are_listed(tmp_path: Path, capsys: Captured) -> None:
    write_checkpoint(tmp_path, "llada2")
    tensors = load_file(tmp_path / "model.safetensors")
    removed = tensors.pop("model.layers.2.mlp.experts.5.up_proj.weight")
    tensors["model.layers.0.extra"] = removed.clone()
    tensors["model.norm.weight"] = torch.ones(5)
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    assert facts(tmp_path, capsys, code=1)["problems"] == [
        "missing: model.layers.2.mlp.experts.gate_up_proj, expert 5, half 1 of its rows",
        "not used: model.layers.0.extra",
        "other shape: model.norm.weight has [5], the network takes [32]",
    ]
    assert main(["models", "check", str(tmp_path)]) == 1
    assert (
        "problems: 3\n  missing: model.layers.2.mlp.experts.gate_up_proj, expert 5, half 1 of its rows\n"
        in capsys.readouterr().out
    )


def test_a_truncated_shard(folder: Path, capsys: Captured) -> None:
    path = folder / "model-00002-of-00002.safetensors"
    path.write_bytes(path.read_bytes()[:-5])
    (problem,) = facts(folder, capsys, code=1)["problems"]
    assert f"{path.name} is cut off" in problem


def test_a_missing_index_entry(folder: Path, capsys: Captured) -> None:
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    del index["weight_map"]["model.norm.weight"]
    path.write_text(json.dumps(index))
    (problem,) = facts(folder, capsys, code=1)["problems"]
    assert "holds model.norm.weight, for which model.safetensors.index.json has no entry" in problem


def test_an_unknown_model_type(folder: Path, capsys: Captured) -> None:
    edit(folder, "config.json", model_type="strange", architectures=["StrangeLM"], auto_map=None)
    told = facts(folder, capsys, code=1)
    assert "family" not in told
    assert "model_type 'strange' and architecture StrangeLM" in told["problems"][0]


def test_a_config_that_only_code_could_read(folder: Path, capsys: Captured) -> None:
    auto_map = {"AutoConfig": "configuration_own.OwnConfig", "AutoModel": "modeling_own.OwnModel"}
    (folder / "config.json").write_text(json.dumps({"model_type": "own", "auto_map": auto_map}))
    (problem,) = facts(folder, capsys, code=1)["problems"]
    assert "model_type 'own'" in problem
    assert "code that a checkpoint brings is never run" in problem


def test_a_pickle_instead_of_safetensors(folder: Path, capsys: Captured) -> None:
    for path in folder.glob("model*"):
        path.unlink()
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x02")
    (problem,) = facts(folder, capsys, code=1)["problems"]
    assert "pytorch_model.bin may hold code and is not read: convert it to safetensors" in problem


def test_no_folder_is_a_wrong_request(tmp_path: Path, capsys: Captured) -> None:
    assert main(["models", "check", str(tmp_path / "nothing")]) == 2
    assert "does not exist: give a folder, or a name like org/name" in capsys.readouterr().err


def test_weights_are_not_read(tmp_path: Path, capsys: Captured) -> None:
    """A file of the right size whose data are a hole is enough."""
    write_checkpoint(tmp_path, "sdar")
    path = tmp_path / "model.safetensors"
    whole = path.read_bytes()
    header = 8 + struct.unpack("<Q", whole[:8])[0]
    with path.open("wb") as file:
        file.write(whole[:header])
        file.truncate(len(whole))
    assert facts(tmp_path, capsys)["problems"] == []


CODE = """
from pathlib import Path
Path({mark!r}).write_text("was here")
from transformers import PretrainedConfig, PreTrainedTokenizerFast
class OwnConfig(PretrainedConfig): pass
class OwnTokenizer(PreTrainedTokenizerFast): pass
"""


def test_code_of_the_folder_is_not_run(tmp_path: Path, capsys: Captured) -> None:
    for name in ("sdar", "strange"):
        folder, mark = tmp_path / name, tmp_path / f"{name}.mark"
        write_checkpoint(folder, "sdar")
        for module in ("own", "configuration_sdar", "modeling_sdar", "tokenization_own"):
            (folder / f"{module}.py").write_text(CODE.format(mark=str(mark)))
        named = {"AutoTokenizer": ["own.OwnTokenizer", "own.OwnTokenizer"]}
        edit(folder, "tokenizer_config.json", auto_map=named, tokenizer_class="OwnTokenizer")
        auto_map = {"AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.OwnModel"} | named
        if name == "strange":
            edit(folder, "config.json", auto_map=auto_map, model_type="strange", architectures=["OwnModel"])
            facts(folder, capsys, code=1)
            with pytest.raises(ValueError, match="model_type 'strange'"):
                load_checkpoint(folder)
        else:
            edit(folder, "config.json", auto_map=auto_map)
            assert facts(folder, capsys)["family"] == "sdar"
            load_checkpoint(folder)
        assert not mark.exists()

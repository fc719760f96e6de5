"""From files to parameters: what fits is placed, what does not is refused by name."""

import json
import re
import shutil
from collections.abc import Callable
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st
from safetensors.torch import load_file, save_file
from tiny_families import FACTS, write_checkpoint
from torch import nn

from dlstep.models import FAMILIES, load_checkpoint, weights
from dlstep.models.names import Rule
from dlstep.models.placement import Wanted, make_plan, shortened
from dlstep.models.shards import read_contents
from dlstep.views.progress_bars import loading_bar

RULES = (
    Rule(r"blocks\.(\d+)\.experts\.(?P<expert>\d+)\.gate", (r"layers.\1.gate_up",), 0),
    Rule(r"blocks\.(\d+)\.experts\.(?P<expert>\d+)\.up", (r"layers.\1.gate_up",), 1),
    Rule(r"blocks\.(\d+)\.qkv\.(weight|bias)", (r"layers.\1.q.\2", r"layers.\1.k.\2")),
    Rule(r"(?:model\.)?word_embeddings", ("embed",)),
)
SHAPES = {"embed": (9, 4), "norm": (4,)} | {
    name: shape
    for layer in range(2)
    for name, shape in {
        f"layers.{layer}.gate_up": (3, 10, 4),
        f"layers.{layer}.q.weight": (6, 4),
        f"layers.{layer}.k.weight": (2, 4),
        f"layers.{layer}.q.bias": (6,),
        f"layers.{layer}.k.bias": (2,),
    }.items()
}
WANTED = Wanted(SHAPES, {name: (name, "head") if name == "embed" else (name,) for name in SHAPES})
STORED = {"word_embeddings": (9, 4), "norm": (4,)} | {
    name: shape
    for layer in range(2)
    for name, shape in {
        f"blocks.{layer}.qkv.weight": (8, 4),
        f"blocks.{layer}.qkv.bias": (8,),
        **{f"blocks.{layer}.experts.{expert}.{half}": (5, 4) for expert in range(3) for half in ("gate", "up")},
    }.items()
}


def test_every_parameter_is_filled_once() -> None:
    plan = make_plan(WANTED, STORED, RULES, ())
    assert plan.problems == ()
    covered = dict.fromkeys(SHAPES, 0)
    for placement in plan.placements:
        size = prod(STORED[placement.tensor])
        if placement.rows is not None:
            size = size // STORED[placement.tensor][0] * (placement.rows[1] - placement.rows[0])
        covered[placement.parameter] += size
    assert covered == {name: prod(shape) for name, shape in SHAPES.items()}


@given(st.sampled_from(sorted(STORED)))
def test_a_tensor_that_is_taken_out_is_named(removed: str) -> None:
    plan = make_plan(WANTED, {name: shape for name, shape in STORED.items() if name != removed}, RULES, ())
    assert (plan.unused, plan.misshaped) == ((), ())
    (missing,) = plan.missing
    assert removed in missing.split(" or ")


@given(st.sampled_from(sorted(STORED)), st.integers(1, 3))
def test_a_tensor_of_another_shape_is_named_with_both(changed: str, more: int) -> None:
    shape = (STORED[changed][0] + more, *STORED[changed][1:])
    plan = make_plan(WANTED, STORED | {changed: shape}, RULES, ())
    assert (plan.missing, plan.unused) == ((), ())
    assert plan.misshaped == (f"{changed} has {list(shape)}, the network takes {list(STORED[changed])}",)


@pytest.mark.parametrize("added", ["extra", "blocks.2.qkv.weight", "blocks.0.experts.3.up", "layers.0.nothing"])
def test_a_tensor_too_many_is_named(added: str) -> None:
    plan = make_plan(WANTED, STORED | {added: (5, 4)}, RULES, ())
    assert (plan.missing, plan.misshaped, plan.unused) == ((), (), (added,))
    assert not make_plan(WANTED, STORED | {added: (5, 4)}, RULES, (re.escape(added),)).problems


@pytest.mark.parametrize("added", [{"embed": (9, 4)}, {"layers.0.q.bias": (6,)}, {"layers.0.gate_up": (3, 10, 4)}])
def test_two_tensors_for_one_parameter_are_refused(added: dict[str, tuple[int, ...]]) -> None:
    plan = make_plan(WANTED, STORED | added, RULES, ())
    assert any("another tensor fills" in name for name in plan.unused)


def test_a_long_list_is_cut_and_counted() -> None:
    assert shortened(map(str, range(25))).endswith("18; 19; and 5 more")


# Folders.


def edit_tensors(folder: Path, change: Any) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    write_checkpoint(tmp_path / "sharded", "sdar", shards=3)
    return tmp_path / "sharded"


@pytest.mark.parametrize("family", FACTS)
def test_one_tensor_less_or_more_is_named(family: str, tmp_path: Path) -> None:
    write_checkpoint(tmp_path, family)
    names = sorted(load_file(tmp_path / "model.safetensors"))
    whole = (tmp_path / "model.safetensors").read_bytes()
    for removed in {names[0], names[len(names) // 2], names[-1], *(name for name in names if ".1.mlp" in name)}:
        edit_tensors(tmp_path, lambda tensors, removed=removed: tensors.pop(removed))
        with pytest.raises(ValueError, match=rf"do not fit .*missing: .*{re.escape(removed)}"):
            load_checkpoint(tmp_path, model_name=family)
        (tmp_path / "model.safetensors").write_bytes(whole)
    edit_tensors(tmp_path, lambda tensors: tensors.update({"model.layers.0.surplus.weight": torch.ones(3)}))
    with pytest.raises(ValueError, match=r"do not fit .*not used: model\.layers\.0\.surplus\.weight"):
        load_checkpoint(tmp_path, model_name=family)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("family", ["dream", "llada", "sdar", "sdar_moe", "llada2", "diffusion_gemma"])
def test_all_that_is_in_a_network_is_as_transformers_makes_it(family: str, dtype: torch.dtype, tmp_path: Path) -> None:
    reference, _ = write_checkpoint(tmp_path, family, tied=family in ("dream", "sdar"), biases=family == "llada", shards=2)
    network = load_checkpoint(tmp_path, dtype=dtype, model_name=family).network
    assert not network.training
    made = type(reference)._from_config(network.config, dtype=dtype)  # what is computed
    stated = reference.state_dict()  # what is stored
    ours = dict(network.named_parameters(remove_duplicate=False)) | dict(network.named_buffers(remove_duplicate=False))
    theirs = dict(made.named_parameters(remove_duplicate=False)) | dict(made.named_buffers(remove_duplicate=False))
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        assert (tensor.dtype, tensor.device) == (theirs[name].dtype, torch.device("cpu")), name
        assert torch.equal(tensor, stated[name].to(tensor.dtype) if name in stated else theirs[name]), name
    assert len(list(network.parameters())) == len(list(made.parameters()))  # what is tied is one


def test_a_head_stored_beside_the_embedding_it_is_tied_to(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, "sdar", tied=True)
    head: dict[str, torch.Tensor] = {}

    def store(tensors: dict[str, torch.Tensor]) -> None:
        tensors["lm_head.weight"] = head.setdefault("is", tensors["model.embed_tokens.weight"].clone())

    edit_tensors(tmp_path, store)
    network: Any = load_checkpoint(tmp_path).network
    assert network.lm_head.weight is network.model.embed_tokens.weight
    head["is"][3] += 1.0
    edit_tensors(tmp_path, store)
    with pytest.raises(ValueError, match=r"model\.embed_tokens\.weight with other values than lm_head\.weight"):
        load_checkpoint(tmp_path)


@pytest.mark.parametrize("dtype", [torch.float64, torch.int8, torch.float8_e4m3fn], ids=str)
def test_numbers_that_cannot_be_read_are_named(dtype: torch.dtype, tmp_path: Path) -> None:
    write_checkpoint(tmp_path, "sdar")
    edit_tensors(tmp_path, lambda tensors: tensors.update({"model.norm.weight": tensors["model.norm.weight"].to(dtype)}))
    with pytest.raises(ValueError, match=r"other dtype: model\.norm\.weight is [FI]\w+, not one of F32, F16, BF16"):
        load_checkpoint(tmp_path)


# Files that are not whole.


def shard(folder: Path) -> Path:
    return sorted(folder.glob("model-*.safetensors"))[1]


def cut_data(folder: Path) -> None:
    path = shard(folder)
    path.write_bytes(path.read_bytes()[:-1])


def cut_header(folder: Path) -> None:
    path = shard(folder)
    path.write_bytes(path.read_bytes()[:20])


def spoil_header(folder: Path) -> None:
    path = shard(folder)
    path.write_bytes(path.read_bytes().replace(b'{"', b"[[", 1))


def remove_shard(folder: Path) -> None:
    shard(folder).unlink()


def pickle_shard(folder: Path) -> None:
    shard(folder).write_bytes(b"PK\x03\x04" + bytes(100))


def edit_index(folder: Path, change: Any) -> None:
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    change(index["weight_map"])
    path.write_text(json.dumps(index))


def edit_header(folder: Path, change: Callable[[dict[str, Any], str], int]) -> None:
    """Change the entry of a shard's last tensor; `change` says how many bytes go in front of its data."""
    path = shard(folder)
    content = path.read_bytes()
    data = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:data])
    last = max((name for name in header if name != "__metadata__"), key=lambda name: header[name]["data_offsets"])
    begin = data + header[last]["data_offsets"][0]
    more = bytes(change(header[last], last))
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + content[data:begin] + more + content[begin:])


def leave_gap(folder: Path) -> None:
    def change(entry: dict[str, Any], _: str) -> int:
        entry["data_offsets"] = [offset + 8 for offset in entry["data_offsets"]]
        return 8

    edit_header(folder, change)


def give_other_size(folder: Path) -> None:
    def change(entry: dict[str, Any], _: str) -> int:
        entry["shape"] = [*entry["shape"], 2]
        return 0

    edit_header(folder, change)


def drop_entry(folder: Path) -> None:
    edit_index(folder, lambda where: where.pop("model.norm.weight"))


def false_entry(folder: Path) -> None:
    edit_index(folder, lambda where: where.update({"model.ghost": next(iter(where.values()))}))


def entry_outside(folder: Path) -> None:
    edit_index(folder, lambda where: where.update({"model.ghost": "../other.safetensors"}))


def entry_pickled(folder: Path) -> None:
    edit_index(folder, lambda where: where.update({"model.ghost": "pytorch_model.bin"}))


def spoil_index(folder: Path) -> None:
    (folder / "model.safetensors.index.json").write_text("{")


def empty_index(folder: Path) -> None:
    (folder / "model.safetensors.index.json").write_text('{"weight_map": []}')


DAMAGES = {
    cut_data: r"model-00002-of-00003\.safetensors is cut off: it has \d+ of \d+ bytes, download it again",
    cut_header: r"model-00002-of-00003\.safetensors is cut off in its header, after 20 bytes: download it again",
    spoil_header: r"model-00002-of-00003\.safetensors has no valid safetensors header",
    leave_gap: r"model-00002-of-00003\.safetensors is damaged: \S+ leaves a gap behind \S+, download it again",
    give_other_size: r"model-00002-of-00003\.safetensors.* of shape \[.*, 2\] and \w+ has data from byte \d+ to \d+",
    remove_shard: r"model-00002-of-00003\.safetensors is missing: download it again",
    pickle_shard: r"model-00002-of-00003\.safetensors is a pickle, .*: convert it to safetensors",
    drop_entry: r"holds model\.norm\.weight, for which model\.safetensors\.index\.json has no entry",
    false_entry: r"places model\.ghost in model-\d+-of-00003\.safetensors, which does not hold it",
    entry_outside: r"names '\.\./other\.safetensors', which is no safetensors file of this folder",
    entry_pickled: r"names 'pytorch_model\.bin', which is no safetensors file",
    spoil_index: r"is not the index of a checkpoint: .*: download it again",
    empty_index: r"is not the index of a checkpoint: it has no weight_map",
}


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_damaged_files_are_refused(damage: Any, sharded: Path) -> None:
    assert read_contents(sharded).problems == ()
    damage(sharded)
    with pytest.raises(ValueError, match=DAMAGES[damage]):
        load_checkpoint(sharded)


def test_pickles_are_not_opened(sharded: Path) -> None:
    for path in sharded.glob("*.safetensors*"):
        path.unlink()
    (sharded / "pytorch_model.bin").write_bytes(b"no pickle at all")
    with pytest.raises(FileNotFoundError, match=r"pytorch_model\.bin may hold code and is not read: convert it to safetensors"):
        load_checkpoint(sharded)


def test_small_pieces_of_files_make_the_same_network(sharded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = load_checkpoint(sharded).network.state_dict()
    monkeypatch.setattr(weights, "MAPPED_BYTES", 1000)
    pieces = load_checkpoint(sharded).network.state_dict()
    assert all(torch.equal(whole[name], pieces[name]) for name in whole)


def test_progress_is_not_drawn_where_nobody_looks(sharded: Path, capfd: pytest.CaptureFixture[str]) -> None:
    load_checkpoint(sharded, progress=partial(loading_bar, enabled=True))
    assert capfd.readouterr() == ("", "")


# Mixtures of experts.


def experts_of(network: nn.Module) -> str:
    config: Any = network.config
    return config.get_text_config()._experts_implementation


@pytest.mark.parametrize("family", ["sdar_moe", "llada2", "diffusion_gemma"])
def test_experts_are_multiplied_as_a_group_where_torch_can(family: str, tmp_path: Path) -> None:
    write_checkpoint(tmp_path, family)
    assert experts_of(load_checkpoint(tmp_path, model_name=family).network) == "grouped_mm"
    assert experts_of(load_checkpoint(tmp_path, dtype=torch.float64, model_name=family).network) == "eager"


def test_experts_whose_rows_do_not_align_are_multiplied_one_by_one(tmp_path: Path) -> None:
    reference, _ = write_checkpoint(tmp_path, "sdar_moe", moe_intermediate_size=7)
    network: Any = load_checkpoint(tmp_path).network
    assert experts_of(network) == "eager"
    network.set_attn_implementation("sdpa")
    reference.set_experts_implementation("eager")
    ids = torch.arange(9)[None]
    torch.testing.assert_close(network(ids).logits, reference(ids).logits, atol=2e-5, rtol=0)


def test_families_of_the_table_are_tested() -> None:
    assert set(FACTS) <= set(FAMILIES)


def test_a_copied_folder_loads_alone(sharded: Path, tmp_path: Path) -> None:
    shutil.copytree(sharded, tmp_path / "copy")
    network = load_checkpoint(tmp_path / "copy").network
    shutil.rmtree(tmp_path / "copy")
    assert all(bool(tensor.isfinite().all()) for tensor in network.state_dict().values())

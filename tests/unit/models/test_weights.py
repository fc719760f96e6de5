"""From files to a network: what fits is loaded, what does not is refused by name."""

import pytest
import torch
from safetensors.torch import load_file

from dlstep.models import load_checkpoint, weights
from dlstep.models.reading import SINGLE

from ...helpers.files import edit_tensors
from ...helpers.tiny_families import FACTS, write_checkpoint


@pytest.mark.full
@pytest.mark.parametrize("family", FACTS)
def test_one_tensor_less_or_more_is_named(family, tmp_path):
    write_checkpoint(tmp_path, family)
    names = sorted(load_file(tmp_path / SINGLE))
    whole = (tmp_path / SINGLE).read_bytes()
    for removed in {names[0], names[len(names) // 2], names[-1], *(name for name in names if ".1.mlp" in name)}:
        edit_tensors(tmp_path / SINGLE, lambda tensors, removed=removed: tensors.pop(removed))
        with pytest.raises(ValueError, match=r"do not fit .*missing: "):
            load_checkpoint(tmp_path, family=family)
        (tmp_path / SINGLE).write_bytes(whole)
    edit_tensors(tmp_path / SINGLE, lambda tensors: tensors.update({"model.layers.0.surplus.weight": torch.ones(3)}))
    with pytest.raises(ValueError, match=r"do not fit .*not used: model\.layers\.0\.surplus\.weight"):
        load_checkpoint(tmp_path, family=family)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("family", ["dream", "llada", "sdar", "sdar_moe", "llada2", "diffusion_gemma"])
def test_all_that_is_in_a_network_is_as_transformers_makes_it(family, dtype, tmp_path):
    reference, _ = write_checkpoint(tmp_path, family, tied=family in ("dream", "sdar"), biases=family == "llada", shards=2)
    network = load_checkpoint(tmp_path, dtype=dtype, family=family).network
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


def test_efficient_dlm_may_be_stored_under_the_names_of_its_class(tmp_path):
    facts = FACTS["efficient_dlm"]((4, 2), False)
    reference, _ = write_checkpoint(tmp_path, "sdar", **facts)
    checkpoint = load_checkpoint(tmp_path)
    assert checkpoint.description.family.name == "efficient_dlm"
    for name, tensor in reference.state_dict().items():
        assert torch.equal(checkpoint.network.state_dict()[name], tensor), name


def test_a_head_stored_beside_the_embedding_it_is_tied_to(tmp_path):
    write_checkpoint(tmp_path, "sdar", tied=True)
    head = {}

    def store(tensors):
        tensors["lm_head.weight"] = head.setdefault("is", tensors["model.embed_tokens.weight"].clone())

    edit_tensors(tmp_path / SINGLE, store)
    network = load_checkpoint(tmp_path).network
    assert network.lm_head.weight is network.model.embed_tokens.weight
    head["is"][3] += 1.0
    edit_tensors(tmp_path / SINGLE, store)
    with pytest.raises(ValueError, match=r"model\.embed_tokens\.weight with other values than lm_head\.weight"):
        load_checkpoint(tmp_path)


@pytest.mark.parametrize("dtype", [torch.float64, torch.int8, torch.float8_e4m3fn], ids=str)
def test_numbers_that_cannot_be_read_are_named(dtype, tmp_path):
    write_checkpoint(tmp_path, "sdar")
    edit_tensors(
        tmp_path / SINGLE, lambda tensors: tensors.update({"model.norm.weight": tensors["model.norm.weight"].to(dtype)})
    )
    with pytest.raises(ValueError, match=r"other dtype: model\.norm\.weight is [FI]\w+, not one of F32, F16, BF16"):
        load_checkpoint(tmp_path)


def test_small_pieces_of_files_make_the_same_network(sharded, monkeypatch):
    whole = load_checkpoint(sharded).network.state_dict()
    monkeypatch.setattr(weights, "MAPPED_BYTES", 1000)
    pieces = load_checkpoint(sharded).network.state_dict()
    assert all(torch.equal(whole[name], pieces[name]) for name in whole)

"""Models by name: what is downloaded and when, what is kept, and what each failure says."""

import json
import os
import re
import socket
from collections import Counter
from contextlib import contextmanager
from shutil import copytree

import pytest
import torch
from huggingface_hub import constants

from dlstep import LLM, SamplingParams, tiny
from dlstep.cli import main
from dlstep.engine.hub import HubModel, folder_of
from dlstep.models import read_description
from dlstep.models.check import check
from dlstep.models.reading import INDEX, SINGLE, read_contents
from dlstep.models.weights import empty_network

from ...helpers.files import edit
from ...helpers.hub import COMMIT, hub_of, use_hub
from ...helpers.tiny_families import write_checkpoint

NAME = "some-lab/Tiny-BD"


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A hub with an embedded model, which also holds code and pickled weights, and one without safetensors."""
    folder = tmp_path / "model"
    copytree(tiny.path("tiny-bd"), folder)
    for name in ("modeling_tiny.py", "pytorch_model.bin", "training/optimizer.safetensors"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("raise SystemExit")
    pickled = tmp_path / "pickled"
    pickled.mkdir()
    (pickled / "config.json").write_text("{}")
    with hub_of({NAME: folder, "some-lab/gated": folder, "some-lab/pickled": pickled}, frozenset(["some-lab/gated"])) as server:
        use_hub(monkeypatch, server, tmp_path / "cache")
        yield server


def test_only_safe_files_are_downloaded_and_only_once(hub):
    folder = folder_of(NAME)
    names = {path.name for path in tiny.path("tiny-bd").iterdir()}
    assert {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} <= names
    assert {"config.json", "tokenizer.json"} <= set(hub.sent) and any(name.endswith(".safetensors") for name in hub.sent)
    sent = len(hub.sent)
    assert folder_of(NAME) == folder_of(f"{NAME}@main") == folder_of(f"{NAME}@{COMMIT}") == folder
    assert len(hub.sent) == sent


@pytest.mark.parametrize(
    "model, said",
    [
        ("some-lab/gated", "is gated: accept its conditions"),
        ("some-lab/none", "has no model some-lab/none, or it is private.* there is no folder 'some-lab/none' in /"),
        (f"{NAME}@v9", "has no revision 'v9'"),
        ("some-lab/pickled", r"has no \*\.safetensors"),
        ("some--lab/x", "cannot be the name of a model"),
    ],
)
def test_a_failure_is_one_sentence_with_a_remedy(hub, model, said):
    del hub
    with pytest.raises(ValueError, match=said) as caught:
        folder_of(model)
    assert "\n" not in str(caught.value)


def test_without_a_network_the_cache_answers(hub, monkeypatch):
    folder = folder_of(NAME)
    hub.shutdown()
    hub.server_close()
    assert folder_of(NAME) == folder
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert folder_of(NAME) == folder
    with pytest.raises(ValueError, match=r"not complete in the cache .* HF_HUB_OFFLINE is set.* no folder"):
        folder_of("some-lab/other")


@contextmanager
def silent_hub():
    """The address of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_silent_hub_ends_at_the_deadline(hub, monkeypatch):
    folder = folder_of(NAME)
    with silent_hub() as url:
        monkeypatch.setattr(constants, "ENDPOINT", url)
        monkeypatch.setattr(constants, "HF_HUB_ETAG_TIMEOUT", 0.2)
        assert folder_of(NAME) == folder, "the cache answers"
        with pytest.raises(ValueError, match=r"does not answer within 0\.2 s .* check the network and HF_ENDPOINT.* no folder"):
            folder_of("some-lab/other")


def test_a_model_by_name_answers_like_its_folder(hub, capsys):
    by_name, by_folder = LLM(NAME), LLM(hub.folders[NAME])
    assert by_name.engine.name == NAME
    one, other = (llm.generate("Max has 53 shells.", SamplingParams(max_tokens=24)) for llm in (by_name, by_folder))
    assert one[0].token_ids == other[0].token_ids
    assert main(["models", "check", NAME]) == 0
    assert "problems: none" in capsys.readouterr().out


LARGE = {"hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36, "head_dim": 128}


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A checkpoint folder of 11 GB, whose weights are holes: reading them would take minutes, and finds only zeros."""
    folder = tmp_path_factory.mktemp("large")
    write_checkpoint(folder, "sdar")
    edit(folder / "config.json", **LARGE)
    description = read_description(folder)
    header = {}
    end = 0
    for name, tensor in empty_network(description.family.network, description.config, torch.bfloat16).state_dict().items():
        header[name] = {"dtype": "BF16", "shape": [*tensor.shape], "data_offsets": [end, end := end + 2 * tensor.numel()]}
    text = json.dumps(header).encode()
    (folder / SINGLE).write_bytes(len(text).to_bytes(8, "little") + text)
    os.truncate(folder / SINGLE, 8 + len(text) + end)
    return folder


def loads(model, **options):
    """What loading says."""
    with pytest.raises(ValueError, match=r".") as caught:
        LLM(model, device="cpu", **options)
    return str(caught.value)


@pytest.mark.full
@pytest.mark.parametrize(
    "facts, problem, last",
    [
        ({}, "", SINGLE),
        ({"num_hidden_layers": 40}, "missing: model.layers.36.", SINGLE),
        ({"model_type": "mamba", "architectures": ["MambaForCausalLM"], "auto_map": None}, "not supported", "config.json"),
        ({"hidden_act": "gelu"}, "hidden_act='gelu' is not supported", "config.json"),
        ({"mask_token_id": 999}, "mask_token_id=999 is not an id", "tokenizer.json"),
    ],
    ids=["whole", "tensors are missing", "another class", "a field", "a mask"],
)
def test_a_large_model_is_checked_and_refused_before_its_weights(facts, problem, last, large, hub, capsys):
    folder = hub.folders[NAME].parent / "large"
    copytree(large, folder, copy_function=os.link)
    (folder / "config.json").unlink()
    (folder / "config.json").write_text(json.dumps(json.loads((large / "config.json").read_text()) | facts))
    hub.folders = {NAME: folder}
    assert main(["models", "check", NAME, "--json"]) == bool(problem)
    report = json.loads(capsys.readouterr().out)
    assert problem in "".join(report["problems"]) and report["download_bytes"] > 10e9
    if problem:
        assert problem in loads(NAME)
    assert SINGLE not in hub.sent and max(Counter(hub.sent).values()) == 1
    assert (SINGLE in hub.parts) == (last == SINGLE) and ("tokenizer.json" in hub.sent) == (last != "config.json")
    assert hub.sent_bytes < 2e6


def without_paths(found):
    """Tensors and problems, with names of files in place of paths."""
    return {
        name: (its.shape, its.dtype, its.file.name, its.offset, its.size) for name, its in found.tensors.items()
    }, found.problems


def sharded(hub):
    """A checkpoint of three files, which the hub now serves."""
    folder = hub.folders[NAME].parent / "sharded"
    write_checkpoint(folder, "sdar", shards=3)
    hub.folders = {NAME: folder}
    return folder


@pytest.mark.full
@pytest.mark.parametrize("index", ["whole", "moved", "forgotten"])
def test_headers_on_the_hub_are_those_of_the_folder(index, hub):
    folder = sharded(hub)
    where = json.loads((folder / INDEX).read_text())["weight_map"]
    (first, file), *_ = where.items()
    if index == "moved":
        where[first] = next(its for its in where.values() if its != file)
    elif index == "forgotten":
        del where[first]
    edit(folder / INDEX, weight_map=where)
    remote = HubModel(NAME)
    found = without_paths(remote.contents())
    assert found == without_paths(read_contents(folder)) and bool(found[1]) == (index != "whole")
    assert not [name for name in hub.sent if name.endswith(".safetensors")]
    assert without_paths(read_contents(folder_of(NAME))) == found
    assert remote.missing_bytes == 0


def test_a_fitting_model_downloads_each_file_once(hub):
    folder = sharded(hub)
    wanted = sum(path.stat().st_size for path in folder.iterdir())
    report = check(HubModel(NAME))
    sent = sum((folder / name).stat().st_size for name in hub.sent)
    assert not report.problems and report.download_bytes == wanted - sent
    LLM(NAME, device="cpu")
    assert Counter(hub.sent) == {path.name: 1 for path in folder.iterdir()}
    before = len(hub.parts)
    LLM(NAME, device="cpu")
    assert check(HubModel(NAME)).download_bytes == 0
    assert len(hub.parts) == before and len(hub.sent) == len([*folder.iterdir()])


def test_a_checked_model_is_not_taken_for_complete_without_a_network(hub, monkeypatch):
    assert main(["models", "check", NAME]) == 0
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert "not complete in the cache" in loads(NAME)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    folder_of(NAME)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    LLM(NAME, device="cpu")


def test_a_model_larger_than_the_memory_is_refused_before_its_weights(large, hub, monkeypatch, capsys):
    hub.folders = {NAME: large}
    monkeypatch.setattr("dlstep.engine.loader.memory_of", lambda device: 9 << 30)
    monkeypatch.setattr("dlstep.engine.memory_needs.memory_of", lambda device: 9 << 30)
    assert "weights of some-lab/Tiny-BD take 10.6 GiB as torch.bfloat16, and cpu has 9 GiB of memory" in loads(
        NAME, dtype="bfloat16"
    )
    assert main(["models", "check", NAME]) == 0
    out = capsys.readouterr().out
    assert re.search(r"memory in bfloat16: 1\d\.\d GiB \(weights 10\.6 GiB, .*\) does not fit into cpu of 9 GiB", out)
    assert re.search(r"with quantization=fp8: 5\.\d+ GiB \(weights 5\.28 GiB, .*\) fits into cpu of 9 GiB", out)
    assert SINGLE not in hub.sent and hub.sent_bytes < 2e6

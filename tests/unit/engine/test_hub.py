"""Models by name: what is downloaded, what is kept, and what each failure says."""

import socket
from contextlib import contextmanager
from shutil import copytree

import pytest
from huggingface_hub import constants

from dlstep import LLM, SamplingParams, tiny
from dlstep.cli import main
from dlstep.engine.hub import fetched

from ...helpers.hub import COMMIT, hub_of, use_hub

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
    folder = fetched(NAME)
    names = {path.name for path in tiny.path("tiny-bd").iterdir()}
    assert {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} <= names
    assert {"config.json", "tokenizer.json"} <= set(hub.sent) and any(name.endswith(".safetensors") for name in hub.sent)
    sent = len(hub.sent)
    assert fetched(NAME) == fetched(f"{NAME}@main") == fetched(f"{NAME}@{COMMIT}") == folder
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
        fetched(model)
    assert "\n" not in str(caught.value)


def test_without_a_network_the_cache_answers(hub, monkeypatch):
    folder = fetched(NAME)
    hub.shutdown()
    hub.server_close()
    assert fetched(NAME) == folder
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert fetched(NAME) == folder
    with pytest.raises(ValueError, match=r"not complete in the cache .* HF_HUB_OFFLINE is set.* no folder"):
        fetched("some-lab/other")


@contextmanager
def silent_hub():
    """The address of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_silent_hub_ends_at_the_deadline(hub, monkeypatch):
    folder = fetched(NAME)
    with silent_hub() as url:
        monkeypatch.setattr(constants, "ENDPOINT", url)
        monkeypatch.setattr(constants, "HF_HUB_ETAG_TIMEOUT", 0.2)
        assert fetched(NAME) == folder, "the cache answers"
        with pytest.raises(ValueError, match=r"does not answer within 0\.2 s .* check the network and HF_ENDPOINT.* no folder"):
            fetched("some-lab/other")


def test_a_model_by_name_answers_like_its_folder(hub, capsys):
    prompt, params = (
        "Max has 53 shells. Later Max buys 39 more. How many shells does Max have?\n",
        SamplingParams(max_tokens=24),
    )
    by_name, by_folder = LLM(NAME), LLM(hub.folders[NAME])
    assert by_name.engine.name == NAME
    answers = [llm.generate([prompt], params)[0].token_ids for llm in (by_name, by_folder)]
    assert answers[0] == answers[1]
    assert main(["models", "check", NAME]) == 0
    assert "problems: none" in capsys.readouterr().out

"""Files in a checkpoint folder beside weights and facts: code, which is never run, and tokenizers of every kind."""

import json

import pytest

from dlstep.models import read_description

from ...helpers.files import edit
from ...helpers.published import SDAR_8B
from ...helpers.tiny_families import write_checkpoint
from .folders import folder_of


@pytest.fixture
def planted(tmp_path):
    """A checkpoint of a family with code of its own, which leaves a mark wherever it is run."""
    folder = tmp_path / "checkpoint"
    write_checkpoint(folder, "dream")
    code = f"open({str(tmp_path / 'mark')!r}, 'w').close()\nclass DreamConfig: pass\nclass DreamModel: pass\n"
    for module in ("configuration_dream", "modeling_dream", "tokenization_dream"):
        (folder / f"{module}.py").write_text(code + "class DreamTokenizer: pass\n")
    auto_map = {"AutoTokenizer": ["tokenization_dream.DreamTokenizer", None]}
    edit(folder / "tokenizer_config.json", tokenizer_class="DreamTokenizer", auto_map=auto_map)
    return folder


def test_the_files_of_a_slow_tokenizer_of_qwen_are_enough(planted):
    (planted / "tokenizer.json").unlink()
    letters = "abcdefghijklmnopqrstuvwxyz"
    vocabulary = {letter: number for number, letter in enumerate(letters)} | {"th": 26, "the": 27, "Ġ": 28}
    (planted / "vocab.json").write_text(json.dumps(vocabulary))
    (planted / "merges.txt").write_text("#version: 0.2\nt h\nth e\n")
    added = {"29": {"content": "<|mask|>", "special": True}, "30": {"content": "<|endoftext|>", "special": True}}
    edit(
        planted / "tokenizer_config.json",
        added_tokens_decoder=added,
        eos_token="<|endoftext|>",
        pad_token=None,
        mask_token=None,
    )
    edit(planted / "config.json", mask_token_id=None, eos_token_id=None)
    found = read_description(planted)
    assert found.tokenizer.encode("the a") == [27, 28, 0]
    assert (found.spec.mask_id, found.spec.eos_ids) == (29, (30,))


@pytest.mark.parametrize("file", ["special_tokens_map.json", "tokenizer_config.json"])
@pytest.mark.parametrize("names", [["eos_token", "mask_token"], ["additional_special_tokens"], ["image_token"]])
def test_special_tokens_may_be_objects(tmp_path, file, names):
    folder = folder_of(tmp_path, SDAR_8B)
    plain, (end, *_) = read_description(folder), read_description(folder).tokenizer.all_special_tokens
    token = {"content": end, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
    stated = json.loads((folder / file).read_text()) if (folder / file).exists() else {}
    stated |= {name: [token] if name.endswith("tokens") else token for name in names}
    (folder / file).write_text(json.dumps(stated))
    found = read_description(folder).tokenizer
    assert end in found.all_special_tokens and found.encode(end) == plain.tokenizer.encode(end)


def test_special_tokens_may_be_listed_without_names(tmp_path):
    folder = folder_of(tmp_path, SDAR_8B)
    edit(folder / "tokenizer_config.json", extra_special_tokens=["<a>", "<b>"])
    assert read_description(folder).spec.vocab_size == 141

"""Reading checkpoint folders, and saying what is wrong with them."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from dlstep.core.spec import BIDIRECTIONAL, RESIZES, TRAININGS
from dlstep.models import load_checkpoint, read_description
from dlstep.models.check import check
from dlstep.models.checkpoint import SMALL, default_dtype
from dlstep.models.description import pieces
from dlstep.models.reading import Contents, Stored

from ...helpers.files import edit
from ...helpers.random_checkpoints import BLOCK, EOS_ID, MASK_ID, ROWS, WORDS, write_checkpoint


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Checkpoint folders with random weights: an ordinary one, and one with a shift head."""
    base = tmp_path_factory.mktemp("checkpoints")
    return {"plain": write_checkpoint(base / "plain"), "shifted": write_checkpoint(base / "shifted", head_shift=1)}


@pytest.fixture
def folder(folders, tmp_path):
    """A copy to damage."""
    return Path(shutil.copytree(folders["plain"], tmp_path / "copy"))


def test_the_facts_of_a_folder(folders):
    description = read_description(folders["shifted"])
    assert (description.name, description.family.name) == ("shifted", "qwen3")
    assert (description.options, description.decoding_strategy) == ({"block_size": BLOCK, "buffer_size": 3}, "multi_bd")
    assert description.max_model_len == 256
    spec = description.spec
    assert (spec.mask_id, spec.eos_ids, spec.vocab_size) == (MASK_ID, (EOS_ID,), WORDS)
    assert (spec.head_shift, spec.accept_rule) == (1, "A")
    assert spec.pieces[:5] == (b"", b"", b"", b"w3", b"w4")


def test_only_a_canvas_as_long_as_the_answer_has_a_default_length(folder):
    edit(folder / "generation_config.json", max_new_tokens=24)
    own = json.loads((folder / "config.json").read_text())["dlstep"]
    for training, able in TRAININGS.items():
        edit(folder / "config.json", dlstep=own | {"training": training, "decoding_strategy": able[0]})
        assert read_description(folder).max_tokens == (24 if training in (BIDIRECTIONAL, RESIZES) else None), training
    edit(folder / "config.json", dlstep=own | {"training": BIDIRECTIONAL, "decoding_strategy": "dual_cache"})
    edit(folder / "generation_config.json", max_new_tokens=None)
    assert read_description(folder).max_tokens == 512
    for wrong in (0, -1, 2.5, True, "24"):
        edit(folder / "generation_config.json", max_new_tokens=wrong)
        with pytest.raises(ValueError, match=r"generation_config\.json: max_new_tokens must be at least 1, got "):
            read_description(folder)


@pytest.mark.parametrize(
    "stored, device, processor, dtype",
    [
        ({"BF16": SMALL, "F32": 9}, "cpu", {"amx_bf16"}, torch.bfloat16),
        ({"BF16": SMALL}, "cpu", {"avx2", "avx512_f", "avx512_fp16"}, torch.float32),
        ({"BF16": SMALL - 1}, "cpu", {"amx_bf16"}, torch.float32),
        ({"F16": SMALL}, "cpu", {"avx512_fp16"}, torch.float16),
        ({"F16": SMALL}, "cpu", {"amx_bf16", "avx512_bf16"}, torch.float32),
        ({"F32": SMALL, "BF16": 9}, "cpu", {"amx_bf16", "avx512_bf16"}, torch.float32),
        ({"F32": SMALL}, "cuda", set(), torch.bfloat16),
    ],
)
def test_weights_have_a_dtype_that_the_device_multiplies_fast(stored, device, processor, dtype, monkeypatch):
    names = {"avx2", "avx512_f", "avx512_bf16", "avx512_fp16", "amx_bf16", "amx_fp16"} | processor
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {name: name in processor for name in names})
    tensors = {name: Stored(name, (count,), name, Path(), 0, 0) for name, count in stored.items()}
    chosen, reason = default_dtype(device, Contents(tensors, ()))
    assert chosen == dtype
    assert reason


def test_the_tokenizer_is_the_last_source(folder):
    edit(folder / "config.json", eos_token_id=None, mask_token_id=None, dlstep={"head_shift": 0})
    edit(folder / "generation_config.json", eos_token_id=None)
    spec = read_description(folder).spec
    assert (spec.mask_id, spec.eos_ids) == (MASK_ID, (EOS_ID,))
    edit(folder / "tokenizer_config.json", mask_token=None)
    with pytest.raises(ValueError, match="names no mask token"):
        read_description(folder)


def test_a_tokenizer_with_gaps_in_its_ids_keeps_its_largest_ids(folder):
    described = json.loads((folder / "tokenizer.json").read_text())
    vocabulary = described["model"]["vocab"]
    for name, moved in (("w38", ROWS - 3), ("w39", ROWS - 2)):
        vocabulary[name] = moved
    (folder / "tokenizer.json").write_text(json.dumps(described))
    edit(folder / "config.json", eos_token_id=ROWS - 2)
    spec = read_description(folder).spec
    assert (spec.vocab_size, spec.eos_ids) == (ROWS - 1, (ROWS - 2, EOS_ID))
    assert spec.pieces[37:] == (b"w37", *[b""] * (ROWS - 41), b"w38", b"w39")
    assert not check(folder).problems
    edit(folder / "config.json", eos_token_id=[ROWS - 2, ROWS - 1])
    (problem,) = check(folder).problems
    assert f"eos_token_id={ROWS - 1} is not an id of its tokenizer, whose largest one is {ROWS - 2}: " in problem
    with pytest.raises(ValueError, match="is not an id of its tokenizer"):
        load_checkpoint(folder)


def test_pieces_of_a_byte_level_tokenizer():
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {character: index for index, character in enumerate(alphabet)}
    backend = Tokenizer(models.BPE(vocabulary, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<end>")
    tokenizer.add_tokens(["<plain>"])
    found = pieces(tokenizer)
    assert sorted(found[:256]) == [bytes([byte]) for byte in range(256)]
    text = "naïve 🙂\n\tx"
    assert b"".join(found[index] for index in tokenizer.encode(text)) == text.encode()
    assert found[tokenizer.eos_token_id] == b""
    assert found[tokenizer.convert_tokens_to_ids("<plain>")] == b"<plain>"


def test_pieces_of_a_tokenizer_with_byte_fallback():
    vocabulary = {"▁two": 0, "<0xE2>": 1, "x": 2}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="x"))
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    assert pieces(PreTrainedTokenizerFast(tokenizer_object=backend)) == (b" two", b"\xe2", b"x")

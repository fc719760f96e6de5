"""A folder that would take all memory or time is refused by one sentence, under limits that a whole folder never meets."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from dlstep.models.reading import LONGEST_MESSAGE
from dlstep.models.tokenizer_limits import MOST_GROWTH, check_tokenizer
from dlstep.text.detokenize import encode

from ...helpers.tiny_families import write_checkpoint
from .folders import folder_of
from .hostile_folders import FILES, KINDS, SECONDS, make_hostile, replace, sequence

Facts = dict[str, Any]
META = {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}
LLAMA = sequence("normalizers", [{"type": "Prepend", "prepend": "\u2581"}, replace({"String": " "}, "\u2581")])
PUBLISHED_CHAINS: dict[str, Facts] = {
    "qwen": {"normalizer": {"type": "NFC"}, "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}},
    "gemma": {
        "normalizer": replace({"String": " "}, "\u2581"),
        "pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False},
        "decoder": sequence("decoders", [META, {"type": "ByteFallback"}, {"type": "Fuse"}]),
    },
    "llama": {
        "normalizer": LLAMA,
        "decoder": sequence(
            "decoders",
            [META, {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}],
        ),
    },
    "compatible": {"normalizer": sequence("normalizers", [{"type": "NFKC"}, replace({"Regex": " {2,}"}, " ")])},
}


@pytest.mark.skipif(sys.platform != "linux", reason="limits of address space and /proc are Linux's")
def test_hostile_folders_are_refused_in_bounded_memory_and_time(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "whole", "sdar")
    due: dict[str, str] = {}
    for kind in KINDS:
        shutil.copytree(tmp_path / "whole", tmp_path / kind)
        due[kind] = make_hostile(tmp_path / kind, kind)
    folders = [str(tmp_path / kind) for kind in ("whole", *KINDS)]
    script = Path(__file__).with_name("hostile_folders.py")
    done = subprocess.run([sys.executable, script, *folders], capture_output=True, text=True, timeout=10 * SECONDS, check=True)
    found = {Path(folder).name: said for folder, said in json.loads(done.stdout.splitlines()[-1]).items()}
    assert found["whole"] == {"problems": [], "error": "", "text": "a" * 200 + "b"}
    wrong = {kind: said for kind, said in found.items() if "raised" in said}
    assert not wrong, wrong
    for kind in KINDS:
        problems, error = found[kind]["problems"], found[kind]["error"]
        assert all(len(text) <= LONGEST_MESSAGE for text in (*problems, error)), kind
        if due[kind]:
            assert problems and due[kind] in problems[0], (kind, problems[:1])
            assert due[kind] in error and str(tmp_path / kind) in error, (kind, error)
        else:
            assert problems == [] and error == ""
    assert len(KINDS) >= 40 and len(found["an index of missing files"]["problems"]) <= 201


@pytest.mark.parametrize("name", PUBLISHED_CHAINS)
def test_published_chains_are_accepted(name: str, tmp_path: Path) -> None:
    from .published import SDAR_8B

    folder = folder_of(tmp_path, SDAR_8B)
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | PUBLISHED_CHAINS[name]))
    check_tokenizer(folder)
    Tokenizer.from_file(str(path))


def test_what_is_accepted_grows_no_further_than_the_limit(tmp_path: Path) -> None:
    """Any chain of normalizers is refused, or makes of no text more than `MOST_GROWTH` times as many bytes."""
    random, accepted = Random(0), 0
    plain = {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}
    for _ in range(150):
        parts: list[Facts] = []
        for _ in range(random.randint(1, 8)):
            text, content = (
                random.choice(("a", "b", "ab", "\u2581", "ﬃ")),
                random.choice(("a", "ab", "aa", "bbb", "ﷺ", "\u2581a")),
            )
            kind = random.choice(("String", "Regex"))
            made = {"type": random.choice(("NFKC", "NFD", "Lowercase", "ByteLevel"))}
            parts.append(random.choice((replace({kind: text}, content), made)))
        described = {"version": "1.0", "model": plain, "normalizer": sequence("normalizers", parts), "added_tokens": []}
        (tmp_path / "tokenizer.json").write_text(json.dumps(described))
        try:
            check_tokenizer(tmp_path)
        except ValueError:
            continue
        accepted += 1
        normalizer = Tokenizer.from_str(json.dumps(described)).normalizer
        assert normalizer is not None
        for text in ("a" * 50, "ab" * 30, "ﷺ" * 20, "ﬃb" * 20, "\u2581" * 9):
            grown = normalizer.normalize_str(text)
            assert len(grown.encode()) <= MOST_GROWTH * len(text.encode()), parts
    assert accepted > 30


def test_a_panic_of_the_tokenizer_is_an_error_of_the_prompt() -> None:
    backend = Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex("(?:a?a)+$"), behavior="isolated")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    assert len(encode(tokenizer, "a" * 20)) == 1
    with pytest.raises(ValueError, match=r"the model's tokenizer cannot encode this text: .*retry-limit"):
        encode(tokenizer, "a" * 100 + "b")


def test_every_kind_of_file_is_covered() -> None:
    assert len(set(KINDS)) == len(KINDS) and set(FILES) < set(KINDS)

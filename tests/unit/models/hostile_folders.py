"""Checkpoint folders that would take all memory or all time, or end the process; and how one is read under limits.

Run as a script, it reads each of the folders that it is given in a process of its own, with little memory, and prints what
happened as JSON. It imports torch once and forks.
"""

import json
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

MEMORY = 768 << 20  # bytes beyond what the imports take
SECONDS = 20  # of processor time; a whole folder takes 0.1
Facts = dict[str, Any]


def replace(pattern: Facts, content: str) -> Facts:
    return {"type": "Replace", "pattern": pattern, "content": content}


def sequence(name: str, parts: list[Facts]) -> Facts:
    return {"type": "Sequence", name: parts}


EOS = {"SpecialToken": {"id": "<eos>", "type_id": 0}}
TEXT = {"Sequence": {"id": "A", "type_id": 0}}
PAIR = [TEXT, {"Sequence": {"id": "B", "type_id": 0}}]
DOUBLING = replace({"String": "a"}, "aa")


def template(single: list[Facts], ids: int = 1) -> Facts:
    special = {"<eos>": {"id": "<eos>", "ids": [2] * ids, "tokens": ["<eos>"] * ids}}
    return {"type": "TemplateProcessing", "single": single, "pair": PAIR, "special_tokens": special}


def split(pattern: str) -> Facts:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def nested(depth: int) -> Facts:
    part: Facts = {"type": "NFC"}
    for _ in range(depth):
        part = sequence("normalizers", [part])
    return part


PADDING = {"direction": "Right", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0, "pad_token": "<pad>"}
BPE = {"type": "BPE", "dropout": None, "unk_token": None, "vocab": {"a": 0}, "merges": []}

# Changes of tokenizer.json, and a part of the sentence that refuses them.
TOKENIZERS: dict[str, tuple[Facts, str]] = {
    "doubling normalizers": (
        {"normalizer": sequence("normalizers", [DOUBLING] * 30)}, "normalizer can make a text 128 times as long",
    ),
    "more normalizers": ({"normalizer": sequence("normalizers", [DOUBLING] * 40)}, "normalizer must be a list of at most 32"),
    "one long replacement": ({"normalizer": replace({"String": "a"}, "b" * 10**7)}, "1e+07 times as long"),
    "a replacement of nothing": ({"normalizer": replace({"String": ""}, "bb")}, "must be a text of at least one letter"),
    "an expression that matches nothing": (
        {"normalizer": sequence("normalizers", [replace({"Regex": "(?=a)"}, "aaaaaaa")] * 9)}, "normalizer can make a text 512",
    ),
    "growth of two chains": (
        {
            "normalizer": sequence("normalizers", [DOUBLING] * 5),
            "pre_tokenizer": sequence("pretokenizers", [{"type": "ByteLevel", "add_prefix_space": False}] * 5),
        },
        "normalizer and pre_tokenizer can make a text 1.02e+03 times as long",
    ),
    "doubling bytes": (
        {"pre_tokenizer": sequence("pretokenizers", [{"type": "ByteLevel", "add_prefix_space": False}] * 30)},
        "pre_tokenizer can make a text 128 times",
    ),
    "a long text in front": ({"normalizer": {"type": "Prepend", "prepend": "a" * 10**7}}, "a text of at most 1000 letters"),
    "a map of letters": ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": ""}}, "type 'Precompiled'"),
    "nested normalizers": ({"normalizer": nested(60)}, "normalizer has more than 32 parts"),
    "a long template": ({"post_processor": template([TEXT, *[EOS] * 10**4])}, "single of a TemplateProcessing must be a list"),
    "a template of many ids": ({"post_processor": template([TEXT, EOS], 10**5)}, "must have at most 16 ids"),
    "a doubling template": ({"post_processor": template([TEXT, TEXT])}, "repeats its text 2 times"),
    "doubling decoders": ({"decoder": sequence("decoders", [DOUBLING] * 30)}, "decoder can make a text 128 times as long"),
    "a decoder of another chain": (
        {"decoder": sequence("decoders", [DOUBLING] * 30) | {"normalizers": []}}, "decoder can make a text 128 times as long",
    ),
    "a decoder with a suffix": ({"decoder": {"type": "BPEDecoder", "suffix": ""}}, "type 'BPEDecoder'"),
    "a decoder that strips too much": (
        {"decoder": {"type": "Strip", "content": " ", "start": 0, "stop": 5}}, "must have start 0 or 1 and stop 0",
    ),
    "an exponential expression": ({"pre_tokenizer": split("(a+)+$")}, "repeats a group whose content varies in length"),
    "a large expression": ({"pre_tokenizer": split("(((a{1000}){1000}){1000})")}, "counts that stand for more than 50000"),
    "no vocabulary": ({"model": {"type": "WordLevel", "vocab": {}, "unk_token": "?"}}, "vocab of its model holds no tokens"),
    "no unknown token": ({"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "?"}}, "unk_token='?'"),
    "a large id": ({"model": BPE | {"vocab": {"a": 2**32 - 1}}}, "the id 4294967295"),
    "chance": ({"model": BPE | {"dropout": 0.5}}, "would split equal texts differently"),
    "another model": ({"model": {"type": "Unigram", "vocab": [["a", 0.0]], "unk_id": 9}}, "its model is of type 'Unigram'"),
    "much padding": ({"padding": PADDING | {"strategy": {"Fixed": 10**10}}}, "padding pads to 10000000000 tokens"),
    "many added tokens": (
        {"added_tokens": [{"id": n, "content": f"<{n}>", "special": True} for n in range(50_001)]}, "added_tokens has 50001",
    ),
    "a long added token": ({"added_tokens": [{"id": 0, "content": "a" * 10**6, "special": True}]}, "of 1000000 characters"),
}  # fmt: skip
QWEN3: Facts = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "auto_map": None}
# Changes of config.json; nothing where the folder can be loaded all the same.
CONFIGS: dict[str, tuple[Facts, str]] = {
    "labels": (QWEN3 | {"num_labels": 10**9}, ""),
    "a long name": ({"architectures": ["A" * 10**6], "model_type": None, "auto_map": None}, "not supported"),
    "a long mask": ({"mask_token_id": "1" * 10**6}, "is not an id of"),
    "long ends": ({"eos_token_id": [10**9] * 10**4}, "is not an id of its network"),
    "a long activation": ({"hidden_act": "s" * 10**6}, "is no activation"),
    "long numbers": ({"rope_scaling": {"rope_type": "linear", "factor": [1] * 10**5}}, "must be a number above 0"),
}


def write_file(folder: Path, kind: str) -> str:
    """Change another file of a folder, and return a part of the sentence that refuses it."""
    index, header = folder / "model.safetensors.index.json", folder / "model.safetensors"
    if kind == "an index of many files":
        header.unlink()
        index.write_text(json.dumps({"weight_map": {f"t{n}": f"m{n}.safetensors" for n in range(20_000)}}))
        return "names 20000 files"
    if kind == "an index of missing files":
        header.unlink()
        index.write_text(json.dumps({"weight_map": {f"t{n}": f"{'m' * 200}{n}.safetensors" for n in range(2_000)}}))
        return "is missing"
    if kind == "a header of many values":
        content = b'{"a":' + b"[],[]," * 10**6 + b"[]}"
        header.write_bytes(len(content).to_bytes(8, "little") + content)
        return "values, and at most 4000000 are read"
    if kind == "a file of many values":
        (folder / "generation_config.json").write_text("[" + "[]," * (3 * 10**6) + "[]]")
        return "values, and at most 4000000 are read"
    if kind == "a name that is stated twice":
        text = (folder / "tokenizer.json").read_text()
        twice = json.dumps(sequence("normalizers", [DOUBLING] * 30))
        (folder / "tokenizer.json").write_text(text.replace('"normalizer":', f'"normalizer": {twice}, "normalizer":', 1))
        return "states 'normalizer' twice"
    if kind == "many special tokens":
        tokens = {str(n): {"content": f"<{n}>", "special": True} for n in range(50_001)}
        (folder / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": tokens}))
        return "added_tokens_decoder has 50001 tokens"
    assert kind == "a large template"
    with (folder / "chat_template.jinja").open("wb") as file:
        file.truncate(1 << 40)  # takes no room on the disk
    return "has 1099511627776 bytes"


FILES = (
    "an index of many files", "an index of missing files", "a header of many values", "a file of many values",
    "a name that is stated twice", "many special tokens", "a large template",
)  # fmt: skip
KINDS = (*TOKENIZERS, *CONFIGS, *FILES)


def make_hostile(folder: Path, kind: str) -> str:
    """Make a whole checkpoint folder a hostile one: a part of the sentence that refuses it, nothing if it can be loaded."""
    for file, changes in (("tokenizer.json", TOKENIZERS), ("config.json", CONFIGS)):
        if kind in changes:
            facts, due = changes[kind]
            path = folder / file
            path.write_text(json.dumps(json.loads(path.read_text()) | facts))
            return due
    return write_file(folder, kind)


def read(folder: Path) -> Facts:
    """The problems that the check finds, and the error of loading, or what it decodes."""
    from dlstep.models import load_checkpoint
    from dlstep.models.check import check

    problems = check(folder).problems
    try:
        tokenizer = load_checkpoint(folder).tokenizer
    except (ValueError, FileNotFoundError) as error:
        return {"problems": problems, "error": str(error)}
    ids = tokenizer.encode("a" * 200 + "b")
    return {"problems": problems, "error": "", "text": tokenizer.decode(ids)}


def limited(read: Callable[[Path], Facts], folder: Path) -> Facts:
    """Return what `read` says of a folder, or how the process ended that it ran in."""
    reads, writes = os.pipe()
    if not (child := os.fork()):
        os.close(reads)
        here = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (here + MEMORY, here + MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        try:
            found = read(folder)
        except BaseException as error:  # noqa: BLE001 - a panic, or no memory
            found = {"problems": [], "error": "", "raised": f"{type(error).__name__}: {str(error)[:200]}"}
        with os.fdopen(writes, "w") as pipe:
            pipe.write(json.dumps(found))
        os._exit(0)
    os.close(writes)
    with os.fdopen(reads) as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    return json.loads(said) if said else {"problems": [], "error": "", "raised": f"ended with status {status}"}


if __name__ == "__main__":
    import torch

    from dlstep.models import check

    assert check, "imported before the forks"
    torch.set_num_threads(1)
    print(json.dumps({folder: limited(read, Path(folder)) for folder in sys.argv[1:]}))

"""`models check` and loading say the same of every folder that cannot be used: one sentence, no traceback."""

import json
import os
import shutil
import struct
import time
from pathlib import Path

import pytest

from dlstep import LLM

from ...helpers.files import edit
from ...helpers.tiny_families import write_checkpoint
from .folders import refused, told
from .test_adapter import noisy_adapter

pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")

CONFIG, TOKENIZER, WEIGHTS, ADAPTER = "config.json", "tokenizer.json", "model.safetensors", "adapter_config.json"
NATIVE = {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "auto_map": None}
NEVER_WRITTEN = "adapter_config.json has a value that peft never writes, save it again: "
DEEP = "[" * 100_000 + "]" * 100_000


def config(name=CONFIG, /, **changes):
    return lambda folder: edit(folder / name, **changes)


def native(**changes):
    return config(**(NATIVE | {"dlstep": {"decoding_strategy": "multi_bd", "head_shift": 0}} | changes))


def write(name, text):
    return lambda folder: (folder / name).write_text(text)


def header(change, more=b""):
    """A change of the header of the weights, and bytes after the data."""

    def damage(folder):
        whole = (folder / WEIGHTS).read_bytes()
        end = 8 + struct.unpack("<Q", whole[:8])[0]
        entries = json.loads(whole[8:end])
        change(entries)
        text = json.dumps(entries).encode()
        (folder / WEIGHTS).write_bytes(struct.pack("<Q", len(text)) + text + whole[end:] + more)

    return damage


def raw_header(text):
    return lambda folder: (folder / WEIGHTS).write_bytes(struct.pack("<Q", len(text)) + text)


def typed(key, value):
    return lambda entries: entries["model.norm.weight"].update({key: value})


def tokens(change):
    def damage(folder):
        said = json.loads((folder / TOKENIZER).read_text())
        change(said)
        (folder / TOKENIZER).write_text(json.dumps(said))

    return damage


BAD = {
    "trailing bytes": (header(lambda entries: None, b"12345"), "is cut off or damaged, download it again"),
    "offsets as text": (header(typed("data_offsets", ["0", "128"])), "is cut off or damaged, download it again"),
    "a shape of fractions": (header(typed("shape", [32.0])), "is cut off or damaged, download it again"),
    "a deep header": (raw_header(DEEP.encode()), "is cut off or damaged, download it again"),
    "a large file": (
        lambda folder: os.truncate(folder / "config.json", (64 << 20) + 1),
        "config.json has 67108865 bytes, and at most 67108864 are read: check that it is the right file",
    ),
    "layers below none": (native(num_hidden_layers=-2), "num_hidden_layers"),
    "a width beyond everything": (config(hidden_size=10**15, head_dim=10**12), "no Qwen3ForCausalLM can be made"),
    "block_size 0": (config(block_size=0), "block_size: must be at least 1, got 0"),
    "block_size as text": (config(block_size="4"), "block_size: must be a whole number of 64 bits, got '4'"),
    "buffer_size in the section": (config(dlstep={"buffer_size": -3}), "buffer_size: must be at least 1, got -3"),
    "a threshold as text": (
        config(dlstep={"accept_threshold": "high"}),
        "accept_threshold: must be a number, got 'high'",
    ),
    "an option of nobody": (config(dlstep={"blocksize": 4}), "states blocksize=4, which no strategy knows"),
    "a path for a rule": (config(dlstep={"rule": "evil.rule"}), "asks for 'evil.rule', and a checkpoint may only ask for"),
    "an unknown strategy": (config(dlstep={"decoding_strategy": "nonsense"}), "asks for 'nonsense'"),
    "a strategy that is a number": (
        config(dlstep={"decoding_strategy": 5}),
        "decoding_strategy of its section dlstep must be a name, got 5",
    ),
    "a strategy that does not fit": (
        config(dlstep={"decoding_strategy": "diffusion_gemma"}),
        "decoding_strategy: 'diffusion_gemma'",
    ),
    "a shift as text": (config(dlstep={"head_shift": "1"}), "head_shift: must be one of 0, 1, got '1'"),
    "EOS as text": (config(eos_token_id="<eos>"), "config.json, read as sdar: Validation error"),
    "EOS beyond the network": (config(eos_token_id=99_999), "eos_token_id=99999 is not an id of "),
    "EOS beyond the tokenizer": (config(eos_token_id=189), "eos_token_id=189 is not an id of its tokenizer"),
    "EOS below 0": (config("generation_config.json", eos_token_id=-1), "eos_token_id=-1 is not an id"),
    "EOS equal to the mask": (config(eos_token_id=1, mask_token_id=1), "is also in eos_ids"),
    "a mask as text": (config(mask_token_id="<mask>"), "mask_token_id='<mask>' is not an id of"),
    "a sampler that is none": (
        config("generation_config.json", sampler_config="x"),
        "sampler_config must be an object",
    ),
    "a long number": (write(CONFIG, '{"vocab_size": ' + "9" * 5000 + "}"), "config.json is no JSON: Exceeds the limit"),
    "not UTF-8": (lambda folder: (folder / CONFIG).write_bytes(b'{"a": "\xff"}'), "config.json is no JSON: 'utf-8' codec"),
    "zero heads of a native class": (native(num_attention_heads=0), "no Qwen3ForCausalLM can be made as config.json"),
    "an unknown activation": (
        native(hidden_act="nonsense"),
        "no Qwen3ForCausalLM can be made as config.json describes it: KeyError 'nonsense'",
    ),
    "a fact named like a method": (native(to_dict=5), "no Qwen3ForCausalLM can be made as config.json"),
    "layers of an unknown type": (native(layer_types=["nonsense"] * 2), "config.json, read as qwen3: "),
    "two rotary embeddings": (
        config(
            rope_parameters={"rope_type": "default", "rope_theta": 1e4},
            rope_scaling={"type": "linear", "factor": 4.0},
        ),
        "state two rotary embeddings: keep only the right one",
    ),
    "two rotary embeddings of a native class": (
        native(rope_parameters={"rope_type": "default", "rope_theta": 1e4}, rope_scaling={"type": "yarn", "factor": 4.0}),
        "state two rotary embeddings: keep only the right one",
    ),
    "a tokenizer that is a list": (write(TOKENIZER, "[]"), "cannot be read: "),
    "a deep tokenizer": (write(TOKENIZER, DEEP), "cannot be read: "),
    "a tokenizer without a model": (tokens(lambda said: said.pop("model")), "cannot be read: "),
    "a special token that is a number": (config("tokenizer_config.json", eos_token=5), "cannot be read: "),
    "added tokens that are text": (
        config("tokenizer_config.json", added_tokens_decoder="x"),
        "cannot be read: ",
    ),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A checkpoint folder and an adapter for it, with nothing wrong."""
    base, adapter = (tmp_path_factory.mktemp("whole") / name for name in ("base", "adapter"))
    network, _ = write_checkpoint(base, "sdar")
    noisy_adapter(network, target_modules=["q_proj", "up_proj"]).save_pretrained(str(adapter))
    return base, adapter


@pytest.fixture
def folder(whole, tmp_path):
    return Path(shutil.copytree(whole[0], tmp_path / "folder"))


@pytest.fixture
def adapter(whole, tmp_path):
    return Path(shutil.copytree(whole[1], tmp_path / "adapter"))


def test_whole_folders_have_no_problem(folder, adapter, capsys):
    assert told(capsys, folder, adapter) == []
    LLM(folder, device="cpu", lora_path=str(adapter))
    native()(folder)
    assert told(capsys, folder) == []
    LLM(folder, device="cpu")


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name == "a large file" else pytest.mark.full) for name in BAD])
def test_check_and_loading_say_the_same(name, folder, capsys):
    damage, sentence = BAD[name]
    damage(folder)
    begun = time.monotonic()
    message = str(refused(capsys, folder))
    assert time.monotonic() - begun < 30
    assert sentence in message
    assert "\n" not in message
    assert "libtorch" not in message


BAD_ADAPTERS = {
    "truncated": (
        lambda folder: os.truncate(folder / "adapter_model.safetensors", 777),
        "adapter_model.safetensors is cut off or damaged, download it again",
    ),
    "no regex": (config(ADAPTER, target_modules="(q_proj"), NEVER_WRITTEN),
    "a rank as text": (config(ADAPTER, r="8"), "adapter"),
    "patterns that are a list": (config(ADAPTER, rank_pattern=[1]), NEVER_WRITTEN),
    "layers without targets": (config(ADAPTER, target_modules=".*q", layers_to_transform=[1]), "adapter_config.json"),
    "no JSON": (write(ADAPTER, "{"), "adapter_config.json is no JSON: "),
    "no configuration": (lambda folder: (folder / ADAPTER).unlink(), "holds no adapter_config.json"),
    "another kind": (config(ADAPTER, peft_type="IA3"), "has peft_type 'IA3': only LORA is supported"),
    **{
        f"{name}={value}": (config(ADAPTER, **{name: value}), f"not supported: {name}={value!r}")
        for name, value in (
            ("fan_in_fan_out", True),
            ("use_dora", True),
            ("target_parameters", ["experts.down_proj"]),
            ("init_lora_weights", "pissa"),
            ("bias", "some"),
            ("target_modules", None),
        )
    },
}


@pytest.mark.full
@pytest.mark.parametrize("name", BAD_ADAPTERS)
def test_check_and_loading_say_the_same_of_an_adapter(name, folder, adapter, capsys):
    damage, sentence = BAD_ADAPTERS[name]
    damage(adapter)
    begun = time.monotonic()
    message = str(refused(capsys, folder, adapter))
    assert time.monotonic() - begun < 30
    assert sentence in message and [message] == told(capsys, folder, adapter)


def test_a_long_pattern_of_names_is_matched(folder, adapter, capsys):
    names = "|".join(f"{number}.self_attn.q_proj|{number}.mlp.up_proj" for number in range(300))
    edit(adapter / ADAPTER, target_modules=rf"model\.layers\.({names})")
    assert told(capsys, folder, adapter) == []

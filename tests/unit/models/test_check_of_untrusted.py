"""Nothing in a folder that somebody else made is run or imported: not by `models check`, not by loading, not by decoding.

Modules are planted in the folder and beside it, where Python would find them by every name that a file gives. Each writes a
mark when it runs.
"""

import copy
import pickle
import re
import sys

import pytest

from dlstep import LLM, SamplingParams

from ...helpers.files import edit
from ...helpers.tiny_families import write_checkpoint
from .folders import refused, told
from .test_adapter import noisy_adapter

pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")

MODULES = (
    "planted",
    "modeling_sdar",
    "configuration_sdar",
    "tokenization_planted",
    "__init__",
    "setup",
    "conftest",
    "peft_own",
)
CODE = """
with open({mark!r}, "a") as file:
    file.write(__name__ + chr(10))
class Planted:
    def __init__(self, *args, **kwargs): pass
STRATEGY = PlantedConfig = PlantedTokenizer = PlantedTokenizerFast = Planted
"""
PLACES = ("planted", "evil.planted:Planted", "evil.planted.Planted")
LOCAL = {"AutoConfig": "planted.PlantedConfig", "AutoModelForCausalLM": "planted.Planted", "AutoTokenizer": ["planted.P", None]}


class Marks:
    """Runs code when it is read as a pickle."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return (exec, (f"open({self.mark!r}, 'a').write('pickle')",))


def plant(folder, mark):
    """Modules and pickles in a folder, under names that something might look for."""
    for module in MODULES:
        (folder / f"{module}.py").write_text(CODE.format(mark=str(mark)))
    for name in ("pytorch_model.bin", "adapter_model.bin", "training_args.bin", "optimizer.pt", "scheduler.pkl"):
        (folder / name).write_bytes(pickle.dumps(Marks(str(mark))))
    (folder / "custom_generate").mkdir()
    (folder / "custom_generate" / "generate.py").write_text(CODE.format(mark=str(mark)))


@pytest.fixture
def mark(tmp_path, monkeypatch):
    """Where planted code leaves its mark; the folder `evil`, its parent and itself, is on the path of imports."""
    (tmp_path / "evil").mkdir()
    monkeypatch.syspath_prepend(tmp_path / "evil")
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path / "mark"
    mark = tmp_path / "mark"
    assert not mark.exists(), mark.read_text()
    found = [name for name, module in sys.modules.items() if str(tmp_path) in str(getattr(module, "__file__", None))]
    assert found == []


@pytest.fixture
def folder(mark):
    """A checkpoint folder that names planted modules wherever a file names classes, and can be loaded all the same."""
    folder = mark.parent / "evil"
    write_checkpoint(folder, "sdar")
    plant(folder, mark)
    edit(
        folder / "config.json",
        auto_map=LOCAL,
        architectures=["SDARForCausalLM", "planted.Planted", "evil.planted.Planted"],
        custom_pipelines={"text-generation": {"impl": "planted.Planted", "pt": ["AutoModelForCausalLM"]}},
        transformers_weights="pytorch_model.bin",
        attn_implementation="evil/planted",
        _attn_implementation="evil/planted",
        experts_implementation="evil/planted",
        tokenizer_class="planted.PlantedTokenizer",
        kernel_config="evil/planted",
    )
    edit(
        folder / "tokenizer_config.json",
        auto_map=LOCAL,
        tokenizer_class="PlantedTokenizer",
        processor_class="planted.Planted",
        fast_tokenizer_class="evil.planted.PlantedTokenizerFast",
        backend="planted",
        chat_template="{{ cycler.__init__.__globals__['__builtins__'].__import__('planted') }}",
    )
    generation = {
        "custom_generate": "planted",
        "generation_class": "planted.Planted",
        "auto_map": LOCAL,
        "trust_remote_code": True,
    }
    edit(folder / "generation_config.json", **generation)
    return folder


def test_code_and_pickles_beside_whole_weights_are_not_run(folder, capsys):
    assert told(capsys, folder) == []
    llm = LLM(folder, device="cpu")
    assert len(llm.generate([[5, 9, 33]], SamplingParams(max_tokens=4, ignore_eos=True))[0].token_ids) == 4
    with pytest.raises(ValueError, match="the chat template cannot render these messages: "):
        llm.chat([{"role": "user", "content": "Hello"}])


@pytest.mark.parametrize("name", PLACES)
def test_the_strategy_of_a_folder_is_looked_up_only(name, folder, capsys):
    edit(folder / "config.json", dlstep={"decoding_strategy": name})
    words = f"asks for {name!r}, and a checkpoint may only ask for one of autoregressive, causal_blocks, d2f, "
    assert words in str(refused(capsys, folder))
    # What is given wins, so that the folder can be used at all.
    assert LLM(folder, device="cpu", decoding_strategy="multi_bd").engine.first.strategy


@pytest.mark.parametrize(
    "changes",
    [
        {"model_type": "evil.planted", "architectures": ["evil.planted.Planted"], "auto_map": LOCAL},
        {
            "model_type": "qwen3",
            "architectures": ["Qwen3ForCausalLM"],
            "hidden_act": "planted.Planted",
            "dlstep": {"decoding_strategy": "multi_bd"},
        },
        {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "quantization_config": {"quant_method": "planted"}},
        {"dlstep": {"block_size": {"class_path": "planted.Planted"}}},
        {"dlstep": "planted.Planted"},
        {"dlstep": {"decoding_strategy": {"class_path": "planted.Planted"}}},
        {"rope_parameters": {"rope_type": "planted.Planted", "rope_theta": 1e4}, "rope_theta": None},
    ],
)
def test_names_of_classes_in_a_configuration(changes, folder, capsys):
    edit(folder / "config.json", **changes)
    assert isinstance(refused(capsys, folder), ValueError)


def test_a_tokenizer_that_is_code_is_not_run(folder, capsys):
    (folder / "tokenizer.json").unlink()
    error = refused(capsys, folder)
    assert isinstance(error, FileNotFoundError) and "code that a checkpoint brings is never run" in str(error)


@pytest.mark.parametrize("file", ["model.safetensors", "pytorch_model.bin"])
def test_a_pickle_is_not_opened_under_any_name(file, folder, capsys):
    (folder / "model.safetensors").unlink()
    (folder / file).write_bytes(pickle.dumps(Marks(str(folder.parent / "mark")), protocol=0 if file.endswith("s") else 4))
    refused(capsys, folder)


ADAPTER_PLACES = {
    "auto_mapping": {"base_model_class": "planted.Planted", "parent_library": "evil.planted"},
    "base_model_name_or_path": "evil/planted",
    "megatron_core": "evil.planted",
    "init_lora_weights": "planted.Planted",
    "target_modules": ["planted.Planted", "q_proj"],
    "modules_to_save": ["planted.Planted"],
    "runtime_config": {"class_path": "planted.Planted"},
    "loftq_config": {"__reduce__": "planted"},
    "peft_type": "planted.Planted",
    "layer_replication": "planted",
}


@pytest.fixture
def adapter(folder, mark):
    """An adapter for the folder, with modules and pickles of its own."""
    path = mark.parent / "adapter"
    reference, _ = write_checkpoint(mark.parent / "plain", "sdar")
    noisy_adapter(copy.deepcopy(reference), target_modules=["q_proj"]).save_pretrained(str(path))
    plant(path, mark)
    return path


@pytest.mark.full
@pytest.mark.parametrize("option", ADAPTER_PLACES)
def test_names_in_an_adapter_are_not_imported(option, folder, adapter, capsys, monkeypatch):
    monkeypatch.syspath_prepend(adapter)
    edit(adapter / "adapter_config.json", **{option: ADAPTER_PLACES[option]})
    if told(capsys, folder, adapter):
        refused(capsys, folder, adapter)
    else:
        LLM(folder, device="cpu", lora_path=str(adapter))


def test_a_pickled_adapter_is_not_opened(folder, adapter, capsys):
    (adapter / "adapter_model.safetensors").unlink()
    error = refused(capsys, folder, adapter)
    assert isinstance(error, FileNotFoundError) and re.search("adapter_model.bin.*may hold code and is not read", str(error))

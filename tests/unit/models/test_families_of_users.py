"""A family is a file of a user, too: found by name, path, value and entry point, and each mistake in it is one sentence."""

import json
import sys
from dataclasses import replace

import pytest

from dlstep import LLM, SamplingParams
from dlstep.cli.main import main
from dlstep.cli.models import family_rows
from dlstep.models import FAMILIES, Signs, read_description
from dlstep.models.weights import WeightRule

from ...helpers.files import edit_tensors
from ...helpers.random_checkpoints import write_checkpoint

FILE = """
from dataclasses import replace
from transformers import GPT2LMHeadModel
from dlstep.models import FAMILIES, Family, Signs, Token, configs
from dlstep.models.weights import WeightRule

def raising(facts):
    return {{"hidden_size": facts["hidden_dim"]}}

FACTS = {{"name": "acme", "signs": Signs(("AcmeLM",)), "training": "bidirectional", "decoding_strategy": "dual_cache"}}
{last}
"""
GOOD = 'FAMILY = replace(FAMILIES["qwen3"], **FACTS)'


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A network whose class no family of this package has; modules that a test imports are forgotten after it."""
    before = set(sys.modules)
    path = write_checkpoint(tmp_path / "acme-1m")
    facts = json.loads((path / "config.json").read_text())
    facts |= {"architectures": ["AcmeLM"], "model_type": "acme", "dlstep": {"block_size": 4}}
    (path / "config.json").write_text(json.dumps(facts))
    monkeypatch.chdir(tmp_path)
    yield path
    for name in set(sys.modules) - before:
        if name.startswith("acme"):
            del sys.modules[name]


def write(folder, last=GOOD):
    path = folder.parent / "acme_family.py"
    path.write_text(FILE.format(last=last))
    return path


def answer(folder, **options):
    (output,) = LLM(folder, **options).generate([[5, 6, 7]], SamplingParams(max_tokens=8, ignore_eos=True), progress=False)
    return output.token_ids


def test_a_family_is_a_path_or_a_value_and_decodes_like_its_class(folder):
    with pytest.raises(ValueError, match=r"AcmeLM are not supported: .* or a file of yours, as family"):
        LLM(folder)
    due = answer(folder, family="qwen3", decoding_strategy="dual_cache", training="bidirectional", head_shift=0)
    value = replace(FAMILIES["qwen3"], name="acme", training="bidirectional", decoding_strategy="dual_cache")
    assert answer(folder, family=str(write(folder))) == answer(folder, family=value) == due
    with pytest.raises(ValueError, match="it was trained bidirectional, which dual_cache, d2f can decode"):
        LLM(folder, family=value, decoding_strategy="multi_bd")


def test_a_family_renames_fields_and_tensors(folder):
    due, names = answer(folder, family=str(write(folder))), {"n_embd": "hidden_size", "n_layer": "num_hidden_layers"}
    facts = json.loads((folder / "config.json").read_text())
    back = {theirs: ours for ours, theirs in names.items()}
    (folder / "config.json").write_text(json.dumps({back.get(name, name): value for name, value in facts.items()}))

    def to_body(tensors):
        for name in list(tensors):
            tensors[name.replace("model.", "body.")] = tensors.pop(name)

    def config(facts):
        return FAMILIES["qwen3"].config({names.get(name, name): value for name, value in facts.items()})

    edit_tensors(folder / "model.safetensors", to_body)
    rules = (WeightRule(r"body\.(.*)", (r"model.\1",)),)
    kept = {"training": "bidirectional", "decoding_strategy": "dual_cache"}
    family = replace(FAMILIES["qwen3"], name="acme", config=config, weights=rules, **kept)
    assert answer(folder, family=family) == due and read_description(folder, family).unknown == ()


def test_an_entry_point_is_recognised_and_listed(folder, monkeypatch):
    write(folder)
    about = folder.parent / "acme_package-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-package\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[dlstep.models]\nacme = acme_family:FAMILY\n")
    monkeypatch.syspath_prepend(folder.parent)
    assert read_description(folder).family == read_description(folder, "acme").family
    assert [row["name"] for row in family_rows()] == ["acme", *FAMILIES]


@pytest.mark.parametrize("command", ["generate w5 --max_tokens 4 --model", "models check"])
def test_commands_take_the_file(folder, command, capsys):
    words = command.split()
    assert main([*words, str(folder), "--family", str(write(folder))]) == 0
    assert main([*words, str(folder), "--family", "acm"]) != 0
    assert "family 'acm' is unknown: choose from a2d_llama, " in " ".join("".join(capsys.readouterr()).split())


def test_an_option_file_cannot_import_a_family(folder, capsys):
    path = write(folder)
    assert main(["generate", "w5", "--model", str(folder), "--config", f"family: {path}"]) == 2
    assert "which imports a module: give it on the command line, as --family" in " ".join(capsys.readouterr().err.split())
    assert "acme_family" not in sys.modules


# The last line of the file, and the words of the message. Those of the module's own errors name the line. Where a value has
# a wrong type, the rest of the message is that of beartype if other tests of the process let it check this package.
QWEN3 = 'FAMILY = replace(FAMILIES["qwen3"], **FACTS | dict({}))'
MISTAKES = {
    "nothing": ("", "has no FAMILY: let its last line be FAMILY = Family(...)"),
    "another kind": ("RULE = 5", "has no FAMILY (it has a RULE, which is another kind)"),
    "no family": ("FAMILY = FACTS", "FAMILY must be a name or a dlstep.models.Family, got {"),
    "no such field": (QWEN3.format("masks=3"), "unexpected keyword argument 'masks' (acme_family.py:11)"),
    "wrong type": (QWEN3.format("head_shift=2"), "(acme_family.py:11)"),
    "training": (QWEN3.format("training='both'"), "training: 'both' is no way of training: give one of 'block-causal', "),
    "options": (QWEN3.format("options=3"), "(acme_family.py:11)"),
    "classes": ('FAMILY = Signs("AcmeLM")', "(acme_family.py:11)"),
    "regex": ('FAMILY = Signs(("Acme(",))', "unterminated subpattern at position 4 (acme_family.py:11)"),
    "network": (QWEN3.format("network=GPT2LMHeadModel"), "or a class derived from one, got GPT2LMHeadModel"),
    "config": (QWEN3.format("config=raising"), "read as acme: KeyError 'hidden_dim' (acme_family.py:8)"),
    "require": (QWEN3.format("config=lambda facts: configs.require(facts, 'd')"), "does not state d (acme_family.py:11)"),
    "none": (QWEN3.format("config=lambda facts: None"), "must be a mapping, not NoneType"),
    "template": (QWEN3.format(r"weights=(WeightRule('m(.*)', (r'\2',)),)"), "do not fit together: invalid group reference 2"),
    "ignored": (QWEN3.format("ignored=('a(',)"), "do not fit together: missing )"),
    "targets": (QWEN3.format(r"weights=(WeightRule('m(.*)', r'n\1'),)"), "(acme_family.py:11)"),
    "strategy": (QWEN3.format("decoding_strategy='dual_cach'"), "asks for 'dual_cach'"),
    "option": (QWEN3.format("options={'blocksize': 8}"), "take it out of the options of family acme"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_sentence_when_checked_and_when_loaded(folder, mistake, capsys):
    last, words = MISTAKES[mistake]
    path = write(folder, last)
    with pytest.raises(ValueError) as caught:
        LLM(folder, family=str(path), decoding_strategy=None if mistake == "strategy" else "dual_cache")
    assert words in str(caught.value) and "\n" not in str(caught.value)
    assert main(["models", "check", str(folder), "--family", str(path)]) == 1
    assert words in capsys.readouterr().out


def test_a_registered_family_precedes_those_of_the_package(folder, monkeypatch):
    own = replace(FAMILIES["sdar"], name="acme", signs=Signs(("SDARForCausalLM",)))
    monkeypatch.setattr("dlstep.models.families.FamilyGroup.values", lambda _: (own, *FAMILIES.values()))
    facts = json.loads((folder / "config.json").read_text()) | {"architectures": ["SDARForCausalLM"]}
    (folder / "config.json").write_text(json.dumps(facts))
    assert read_description(folder).family.name == "acme"

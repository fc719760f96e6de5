"""Every file of configs/ is complete and fits its family; there is one for each strategy and family."""

from dataclasses import fields, replace

import pytest

from dlstep import LLM, EngineConfig, strategies
from dlstep.cli.options import load, options_in
from dlstep.core import Spec
from dlstep.core.spec import PROMPT_IN_FULL
from dlstep.engine.compatibility import refusal_of_family
from dlstep.engine.config import engine_config
from dlstep.engine.strategy_choice import embedded_facts, embedded_models_for, strategy_for
from dlstep.evaluate.options import EvalOptions
from dlstep.models import FAMILIES

from ..helpers.descriptions import Facts
from ..helpers.given import ROOT

OWN = [field.name for field in fields(EvalOptions)]
FILES = sorted((ROOT / "configs").glob("*.yaml"))
NATIVE = ("qwen2", "llama", "qwen3", "qwen3_moe")  # whose folder says how it is decoded
SIZES = {"diffusion_gemma": {"canvas_length": 256}, "dream": {}, "diffucoder": {}, "llada": {}}


def described(name, model=None):
    """The facts of a checkpoint of the family, as its authors publish it, or of the embedded model."""
    if model is not None:
        facts = embedded_facts()[model]
        spec = Spec(facts.get("mask_token_id"), (2,), 1000, facts["head_shift"])
        known = ("block_size", "bd_size", "canvas_length")
        sizes = {option: facts[option] for option in known if option in facts}
        return Facts(spec, model, sizes, facts["decoding_strategy"], facts["training"])
    family = FAMILIES[name]
    spec = Spec(0 if family.masked else None, (1,), 1000, family.head_shift, family.accept_rule)
    options = family.options | SIZES.get(name, {})
    return Facts(spec, name, options, family.decoding_strategy, family.training, max_model_len=4096)


def options_of(path):
    """The options of the engine in a file for an evaluation, whose own options are right."""
    flat = options_in(str(path), "eval")
    own = {name: value for name, value in flat.items() if name in OWN}
    EvalOptions(**own | {"tasks": tuple(own["tasks"])})
    return {name: value for name, value in flat.items() if name not in own}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_fits_its_family(path):
    family, strategy = path.stem.split(".")
    engine = options_of(path)
    assert engine["decoding_strategy"] == strategy
    facts = described(family, engine.get("model"))
    if "adapter" in path.read_text():  # taught by it to see its prompt in full
        facts = replace(facts, decoding_strategy="d2f", training=PROMPT_IN_FULL)
    assert strategies.name_of(type(strategy_for(engine_config(engine), facts))) == strategy
    head, command = path.read_text().splitlines()[:2]
    assert strategy in head and f"--config configs/{path.name}" in command


RESULTS = {"llada_base": "llada", "fast_dllm_llada": "llada", "sdar_chat": "sdar", "dmax_math": "llada2_mini_dmax"}
# No settings of DreamReasoner and LLaDA-MoE are known, and no checkpoint of A2D's Llama.
# `llada2` and `llada2_moe` name the same models as `llada2_mini`.
WITHOUT_SETTINGS = {"dream_reasoner", "llada_moe", "a2d_llama", "llada2", "llada2_moe", *NATIVE}


def test_published_settings_fit_their_families_and_say_what_to_expect():
    files = sorted((ROOT / "configs" / "published").glob("*.yaml"))
    family_of = {path.stem: RESULTS.get(path.stem, path.stem) for path in files}
    assert set(family_of) >= set(RESULTS) and set(family_of.values()) == set(FAMILIES) - WITHOUT_SETTINGS
    for path in files:
        engine = options_of(path)
        decoder = strategy_for(engine_config(engine), described(family_of[path.stem]))
        assert strategies.name_of(type(decoder)) == engine["decoding_strategy"]
        head = "".join(line for line in path.read_text().splitlines(keepends=True) if line.startswith("#"))
        assert "Source: " in head
        assert path.stem not in RESULTS or ("Published: GSM8K" in head and "github.com/" in head)
        assert f"--config configs/published/{path.name} --model" in head


def test_there_is_one_for_each():
    of_families = {
        f"{family.name}.{strategy}"
        for family in FAMILIES.values()
        for strategy in strategies.available()
        if family.name not in NATIVE and not refusal_of_family(strategy, family)
    }
    embedded = {name for name in strategies.own() if embedded_models_for(EngineConfig(decoding_strategy=name))}
    assert {path.stem for path in FILES} == of_families | {f"tiny.{strategy}" for strategy in embedded}


@pytest.mark.parametrize("path", sorted((ROOT / "configs" / "policies").glob("*.yaml")), ids=lambda path: path.name)
def test_a_buffer_policy_fits_the_model_of_its_name(path):
    name = path.name.partition(".")[0]
    llm = LLM(name, buffer_policy=load(path.read_text()))
    assert llm.engine.buffer_policy.rungs[-1][0] is None

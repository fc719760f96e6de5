"""Which family a folder is recognised as."""

import pytest

from dlstep.core.spec import BIDIRECTIONAL, PROMPT_IN_FULL, TRAININGS
from dlstep.models import read_description
from dlstep.models.families import name_of

from ...helpers.published import (
    A2D_QWEN3,
    DREAM_7B,
    DREAM_REASONER_8B,
    IDLM_8B,
    LLADA2_MINI,
    LLADA_8B,
    LLADA_MOE_7B,
    OPEN_DCODER,
    QWEN3_8B,
    SDAR_8B,
    SDLM_3B,
    STABLE_DIFFCODER_8B,
    WEDLM_7B,
    WEDLM_8B,
)
from ...helpers.tiny_families import write_checkpoint
from .folders import described, folder_of, strategy_of


def test_a_name_overrides_what_the_folder_says(tmp_path):
    folder = folder_of(tmp_path, LLADA2_MINI)
    found = read_description(folder, "llada2dot1_mini")
    assert (found.family.name, found.decoding_strategy) == ("llada2dot1_mini", "multi_bd_edit")
    assert type(strategy_of(found)).__name__ == "MultiBDEdit"
    with pytest.raises(ValueError, match="sdar: use_regular_causal=True is not supported, only False is"):
        read_description(folder_of(tmp_path / "causal", IDLM_8B), "sdar")
    dmax = read_description(folder, "llada2_mini_dmax")
    assert type(strategy_of(dmax)).__name__ == "DMax"
    assert type(strategy_of(dmax, sampling_mode="naive", decoding_strategy="multi_bd")).__name__ == "MultiBD"
    with pytest.raises(ValueError, match=r"family 'lada' is unknown: did you mean llada"):
        read_description(folder, "lada")


@pytest.mark.parametrize(
    "place, facts, changes, family",
    [
        ("models--inclusionAI--LLaDA2.1-mini/snapshots/12ab", LLADA2_MINI, {}, "llada2dot1_mini"),
        ("mine", LLADA2_MINI, {"_name_or_path": "Zigeng/DMax-Coder-16B"}, "llada2_mini_dmax"),
        ("a", DREAM_7B, {"expand_token_id": 151667}, "dreamon"),
        ("dmax", SDAR_8B, {}, "sdar"),
        ("midlm", SDAR_8B, {}, "sdar"),
        ("I-DLM-8B", SDAR_8B, {}, "idlm"),
        ("a", IDLM_8B, {}, "idlm"),
        ("a", SDAR_8B, {"use_regular_causal": False}, "sdar"),
        ("a", SDAR_8B, {"architectures": None, "auto_map": None}, "sdar"),
        ("a", STABLE_DIFFCODER_8B, {"architectures": ["LlamaForCausalLM"]}, "stable_diffcoder"),
        ("a", WEDLM_8B, {}, "wedlm_qwen3"),
        ("a", SDLM_3B, {}, "sdlm"),
        ("a", WEDLM_7B, {}, "wedlm"),
        ("Qwen2.5-Coder-0.5B", OPEN_DCODER, {"dlstep": {"head_shift": 0}}, "qwen2"),
        ("a", LLADA_MOE_7B, {"model_type": "lladamoe"}, "llada_moe"),
        ("a", LLADA_8B, {"model_type": None, "architectures": None}, "llada"),
    ],
)
def test_the_most_particular_sign_decides(tmp_path, place, facts, changes, family):
    assert described(tmp_path / place, facts, mask_token="<mask>", **changes).family.name == family


def test_a_network_that_decodes_otherwise_is_refused_by_name(tmp_path):
    """`test_public_checkpoints.py` has the others."""
    with pytest.raises(ValueError, match=r"^LLaDA-V is not supported: .* give family"):
        described(tmp_path, LLADA_8B, mask_token="<mask>", architectures=["LlavaLLaDAModelLM"])


def test_a_known_network_that_is_not_supported_loads_as_a_family(tmp_path):
    folder = folder_of(tmp_path / "CDLM-Dream", DREAM_7B, mask_token="<mask>")
    found = read_description(folder, "dream", training=PROMPT_IN_FULL)
    assert (found.training, type(strategy_of(found)).__name__) == (PROMPT_IN_FULL, "D2F")


@pytest.mark.parametrize(
    "place, facts, size",
    [
        ("models--JetLM--SDAR-4B-Chat-b32/snapshots/12ab", SDAR_8B, 32),
        ("SDAR-1.7B-Chat-b8-fp8", SDAR_8B, 8),
        ("SDAR-4B-Chat", SDAR_8B, 4),
        ("SDAR-4B-Chat-b32", SDAR_8B | {"block_size": None}, 32),
        ("SDAR-4B-Chat-b32", SDAR_8B | {"block_size": 16, "dlstep": {"block_size": 2}}, 2),
        ("Dream-b32", DREAM_7B, None),
    ],
)
def test_a_name_ends_in_the_size_of_a_block(tmp_path, place, facts, size):
    assert described(tmp_path / place, facts, mask_token="<mask>").options.get("block_size") == size


def test_what_only_a_name_can_tell_is_asked_for(tmp_path):
    place = tmp_path / "Qwen3-0.6B-diffusion"
    with pytest.raises(
        ValueError,
        match=r"^give family, which can be a2d_qwen3 \(named mdlm\) or a2d_qwen3_bd3lm .* or opdlm \(named opdlm\): ",
    ):
        described(place, A2D_QWEN3, mask_token="<mask>")
    assert read_description(place, "opdlm").options == {"block_size": 4}


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize("family", ["dream", "dream_reasoner"])
def test_tensors_tell_dream_from_its_reasoner(tmp_path, family, shards):
    write_checkpoint(tmp_path, family, shards=shards)
    assert read_description(tmp_path).family.name == family
    assert described(tmp_path / "no weights", DREAM_REASONER_8B).family.name == "dream"


@pytest.mark.parametrize(
    "changes, message",
    [
        (
            {"model_type": "mamba", "architectures": ["MambaForCausalLM"], "auto_map": None},
            "'mamba' and architecture MambaForCausalLM",
        ),
        ({"model_type": None, "architectures": None, "auto_map": {"AutoModel": "model.Own"}}, "is never run"),
        ({"auto_map": None, "model_type": "qwen3", "architectures": ["Qwen3ForSequenceClassification"]}, "not supported"),
    ],
)
def test_other_networks_are_refused(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        described(tmp_path, SDAR_8B, **changes)


@pytest.mark.parametrize("class_name", ["Qwen2ForCausalLM", "LlamaForCausalLM", "Qwen3ForCausalLM"])
def test_an_autoregressive_network_is_refused(tmp_path, class_name):
    with pytest.raises(ValueError, match="names no mask token, so it does not look like a diffusion language model"):
        described(tmp_path, QWEN3_8B | {"architectures": [class_name]})
    with pytest.raises(ValueError, match=r"names no mask token, .*; its tokenizer has no <M>$"):
        read_description(folder_of(tmp_path, QWEN3_8B), "open_dcoder")
    folder = folder_of(tmp_path / "named", QWEN3_8B | {"architectures": [class_name]})
    for given in ({}, {"training": BIDIRECTIONAL}):
        with pytest.raises(ValueError, match=r"^head_shift: give 1 if .* has the mask token 7, but nothing states"):
            read_description(folder, mask_token_id=7, **given)
    with pytest.raises(ValueError, match="does not name its decoding strategy"):
        strategy_of(read_description(folder, mask_token_id=7, head_shift=1))
    for training, (default, *_) in TRAININGS.items():
        found = read_description(folder, mask_token_id=7, head_shift=1, training=training)
        assert (found.spec.mask_id, found.spec.head_shift, found.training, found.decoding_strategy) == (7, 1, training, default)


def test_a_folder_of_the_hubs_cache_has_the_name_of_its_model(tmp_path):
    assert name_of(tmp_path / "models--some-lab--LLaDA2.0-mini-dmax" / "snapshots" / "0a1b") == "some-lab/LLaDA2.0-mini-dmax"
    assert name_of(tmp_path / "snapshots" / "0a1b") == "0a1b" and name_of(tmp_path / "LLaDA-8B") == "LLaDA-8B"

"""A checkpoint folder says which family it is of and how it is decoded; what is given wins over what it says."""

import re

import pytest

from dlstep import LLM, SamplingParams
from dlstep.core.spec import TRAININGS
from dlstep.models import FAMILIES, read_description
from dlstep.models.shapes import kv_shapes
from dlstep.rules.quota import Quota
from dlstep.rules.threshold import Threshold
from training.tokenizer import EOS_ID, MASK_ID

from ...helpers.files import edit
from ...helpers.published import (
    A2D_QWEN2,
    A2D_QWEN3,
    CODA,
    DIFFUSION_GEMMA_26B,
    DREAM_7B,
    EFFICIENT_DLM_4B,
    FAST_DLLM_V2_7B,
    IDLM_8B,
    ILLADA_8B,
    LLADA2_MINI,
    LLADA_8B,
    LLADA_MOE_7B,
    NEMOTRON_8B,
    OPEN_DCODER,
    QWEN3_8B,
    RND1_30B,
    SDAR_8B,
    SDAR_30B,
    STABLE_DIFFCODER_8B,
)
from ...helpers.tiny_families import FACTS, write_checkpoint
from .folders import described, folder_of, strategy_of

NATIVE = ("qwen2", "llama", "qwen3", "qwen3_moe")
# Families that no file tells apart from the one whose checkpoints they share, but for a name.
SHARED = ("diffucoder", "llada2_moe", "llada2_mini", "llada2dot1_mini", "llada2_mini_dmax")


@pytest.mark.parametrize(
    "facts, family, mask_id, eos_ids, shift, options, strategy",
    [
        (DREAM_7B, "dream", 151666, (151643, 151645), 1, {}, "dual_cache"),
        (FAST_DLLM_V2_7B, "fast_dllm_v2", 151665, (151645, 151643), 1, {"bd_size": 32}, "fast_dllm_v2"),
        (SDAR_8B, "sdar", 151669, (151643, 151645), 0, {"block_size": 4}, "multi_bd"),
        (IDLM_8B, "idlm", 151669, (151643, 151645), 1, {"block_size": 3}, "strided"),
        (SDAR_30B, "sdar_moe", 151669, (151643, 151645), 0, {"block_size": 4}, "multi_bd"),
        (A2D_QWEN3, "a2d_qwen3", None, (151645, 151643), 0, {}, "dual_cache"),
        (A2D_QWEN2, "a2d_qwen2", None, (151643, 151645), 0, {}, "dual_cache"),
        (OPEN_DCODER, "open_dcoder", None, (151643, 151645), 1, {}, "dual_cache"),
        (CODA, "coda", 151669, (151643, 151645), 1, {}, "dual_cache"),
        (EFFICIENT_DLM_4B, "efficient_dlm", 151662, (151643, 151645), 0, {"block_size": 32}, "d2f"),
        (RND1_30B, "rnd1", 151669, (151645, 151643), 1, {}, "dual_cache"),
        (ILLADA_8B, "illada", None, (2,), 0, {}, "dual_cache"),
        (LLADA_MOE_7B, "llada_moe", 156895, (156892,), 0, {}, "dual_cache"),
        (LLADA_8B, "llada", 126336, (126081, 126348), 0, {}, "dual_cache"),
        (STABLE_DIFFCODER_8B, "stable_diffcoder", None, (2,), 0, {"block_size": 4}, "multi_bd"),
        (LLADA2_MINI, "llada2", 156895, (156892,), 0, {"block_size": 32}, "multi_bd"),
    ],
)
def test_published_configs(tmp_path, facts, family, mask_id, eos_ids, shift, options, strategy):
    # Id 5 is another token of this tokenizer, so the one of Stable-DiffCoder must come from it.
    place = tmp_path / {"a2d": "mdlm", "ope": "open-dcoder-0.5B"}.get(family[:3], "a")
    found = described(place, facts, mask_token="<mask>" if mask_id is None else None)
    assert (found.family.name, found.unknown) == (family, ())
    assert (found.spec.mask_id, found.spec.eos_ids) == (MASK_ID if mask_id is None else mask_id, eos_ids)
    assert (found.spec.head_shift, found.decoding_strategy) == (shift, strategy)
    assert found.max_model_len == facts.get("max_sequence_length", facts.get("max_position_embeddings"))
    assert found.options.items() >= options.items()
    assert found.config.rope_parameters.items() >= {"rope_theta": facts["rope_theta"], "rope_type": "default"}.items()
    assert found.spec.accept_rule == ("B" if family == "stable_diffcoder" else "A")
    same = {"hidden_size": "d_model", "num_hidden_layers": "n_layers", "num_key_value_heads": "n_kv_heads"}
    for ours, theirs in same.items():
        assert getattr(found.config, ours) == facts.get(theirs, facts.get(ours))


def test_the_published_diffusion_gemma(tmp_path):
    found = described(tmp_path, DIFFUSION_GEMMA_26B)
    assert (found.family.name, found.spec.mask_id, found.spec.eos_ids) == ("diffusion_gemma", None, (1, 106))
    assert (found.options, found.decoding_strategy) == ({"canvas_length": 256}, "diffusion_gemma")
    assert (found.max_model_len, found.unknown) == (262144, ())
    # Layers are named by two digits where there are more than ten.
    shapes = kv_shapes(found.config)
    assert {shape.window for shape in shapes[5::6]} == {None}
    assert {(shape.kv_heads, shape.head_dim) for shape in shapes[5::6]} == {(2, 512)}
    assert {(shape.kv_heads, shape.head_dim, shape.window) for shape in shapes[:5]} == {(8, 256, 1024)}


def test_the_published_nemotron_labs_diffusion(tmp_path):
    found = described(tmp_path / "8B", NEMOTRON_8B)
    assert (found.family.name, found.family.network.__name__) == ("nemotron_labs_diffusion", "Ministral3ForCausalLM")
    assert (found.spec.mask_id, found.spec.eos_ids[0], found.spec.head_shift) == (100, 11, 0)
    assert (found.decoding_strategy, found.max_model_len, found.unknown) == ("causal_blocks", 262144, ())
    strategy = strategy_of(found)
    assert (strategy.block_size, strategy.rule) == (32, Threshold(0.9, inclusive=True))
    assert found.config.rope_parameters == NEMOTRON_8B["rope_parameters"] and found.config.head_dim == 128
    # The 3B base model states a factor below 1, and a larger one another base of its rotary embedding.
    rope = NEMOTRON_8B["rope_parameters"] | {"factor": 0.25, "rope_theta": 1e9}
    base = described(tmp_path / "3B", NEMOTRON_8B, hidden_size=3072, rope_parameters=rope, dlm_type="llada", prefix_ratio=0.8)
    assert base.config.rope_parameters == rope and base.config.head_dim == 128 and base.unknown == ()
    with pytest.raises(ValueError, match="'nemotron_labs_diffusion_vlm' and architecture NemotronLabsDiffusionVLMModel"):
        names = {"model_type": "nemotron_labs_diffusion_vlm", "architectures": ["NemotronLabsDiffusionVLMModel"]}
        described(tmp_path / "VLM", NEMOTRON_8B, **names, auto_map=None)


def test_what_sdar_moe_leaves_out_is_what_its_own_code_takes(tmp_path):
    config = described(tmp_path, SDAR_30B, norm_topk_prob=None, num_experts_per_tok=None).config
    assert (config.norm_topk_prob, config.num_experts_per_tok) == (True, 2)


def test_the_rotary_embedding_may_be_stated_in_either_way(tmp_path):
    new = {"rope_type": "default", "rope_theta": 1000000.0}
    found = described(tmp_path / "new", SDAR_8B, rope_theta=None, rope_parameters=new)
    assert found.config.rope_parameters == described(tmp_path / "old", SDAR_8B).config.rope_parameters == new
    scaling = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
    scaled = described(tmp_path / "scaled", SDAR_8B, rope_scaling=scaling).config.rope_parameters
    assert (scaled["rope_type"], scaled["factor"], scaled["rope_theta"]) == ("yarn", 4.0, 1e6)
    inside = {"rope_type": "default", "rope_theta": 600000, "partial_rotary_factor": 0.5}
    half = described(tmp_path / "half", LLADA2_MINI, rope_theta=None, partial_rotary_factor=None, rope_parameters=inside)
    assert half.config.rope_parameters["partial_rotary_factor"] == 0.5


# Values of fields that change what the network computes, in a way that is not implemented.
NOT_SUPPORTED = [
    (
        SDAR_8B,
        {
            "hidden_act": "gelu",
            "use_sliding_window": True,
            "partial_rotary_factor": 0.5,
            "quantization_config": {"bits": 4},
            "use_relay": True,
        },
    ),
    (
        LLADA_8B,
        {
            "scale_logits": True,
            "input_emb_norm": True,
            "alibi": True,
            "attention_layer_norm": True,
            "layer_norm_type": "default",
            "activation_type": "swiglu",
            "block_type": "sequential",
            "include_bias": True,
            "rope": False,
            "rope_full_precision": False,
            "quantization_config": {"bits": 4},
        },
    ),
    (
        LLADA2_MINI,
        {
            "norm_softmax": True,
            "multi_gate": True,
            "router_dtype": "bf16",
            "use_bias": True,
            "score_function": "softmax",
            "rotary_dim": 128,
            "expert_capacity": 48,
            "delete_token_id": 156930,
            "split_token_id": 156931,
        },
    ),
    (
        NEMOTRON_8B,
        {
            "dlm_paradigm": "block_diff",
            "dlm_type": "dream",
            "num_ar_layers": 2,
            "num_diffusion_layers": 2,
            "attention_bias": True,
            "mlp_bias": True,
            "sliding_window": 4096,
        },
    ),
    (IDLM_8B, {"use_relay": True}),
    (ILLADA_8B, {"layer_norm_eps": 1e-5}),
    (CODA, {"is_causal": True}),
    (EFFICIENT_DLM_4B, {"dlm_paradigm": "block_diff", "dlm_type": "dream", "dlm_arch": "decoder", "disable_qk_norm": True}),
    (RND1_30B, {"is_causal": True, "use_sliding_window": True}),
    (
        LLADA_MOE_7B,
        {
            "clip_qkv": 8.0,
            "model_type": "llada_moe_v2",
            "moe_router_enable_expert_bias": True,
            "moe_router_score_function": "sigmoid",
            "norm_topk_prob": True,
            "partial_rotary_factor": 0.5,
            "qk_layernorm": False,
            "routed_scaling_factor": 2.5,
            "shared_expert_intermediate_size": 1024,
        },
    ),
    (SDAR_30B, {"use_regular_causal": True}),
]


@pytest.mark.parametrize(
    "facts, field, value", [(facts, *change) for facts, changes in NOT_SUPPORTED for change in changes.items()]
)
def test_a_value_that_is_not_supported_is_refused_by_name(tmp_path, facts, field, value):
    with pytest.raises(ValueError, match=re.escape(f"{field}={value!r} is not supported")) as caught:
        described(tmp_path, facts, **{field: value})
    assert "config.json, read as " in str(caught.value)


@pytest.mark.parametrize(
    "facts, changes, message",
    [
        (SDAR_8B, {"rope_theta": None}, "it does not state rope_theta"),
        (SDAR_8B, {"rope_parameters": {"rope_type": "default", "rope_theta": 1.0}}, "rope_theta is stated twice"),
        (SDAR_8B, {"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "rope_type='dynamic' is not supported"),
        (SDAR_8B, {"rope_scaling": {"rope_type": "spiral"}}, "rope_type='spiral' is not supported"),
        (SDAR_8B, {"layer_types": ["full_attention", "sliding_attention"]}, "layer_types='sliding_attention' is not supported"),
        (SDAR_8B, {"hidden_size": None}, "it does not state hidden_size"),
        (SDAR_8B, {"hidden_size": "big"}, "hidden_size"),
        (DREAM_7B, {"hidden_size": 3585}, "hidden_size=3585 is no multiple of num_attention_heads=28"),
        (LLADA_8B, {"rope_theta": None}, "it does not state rope_theta"),
        (
            DIFFUSION_GEMMA_26B,
            {"text_config": DIFFUSION_GEMMA_26B["text_config"] | {"use_bidirectional_attention": "all"}},
            "use_bidirectional_attention='all' is not supported, only 'vision' is",
        ),
        (LLADA2_MINI, {"partial_rotary_factor": None}, "it does not state partial_rotary_factor"),
        (LLADA2_MINI, {"n_group": None}, "it does not state n_group"),
        (NEMOTRON_8B, {"head_dim": None}, "it does not state head_dim"),
        (
            NEMOTRON_8B,
            {"rope_parameters": NEMOTRON_8B["rope_parameters"] | {"llama_4_scaling_beta": None}},
            "it does not state llama_4_scaling_beta",
        ),
        (
            NEMOTRON_8B,
            {"rope_parameters": NEMOTRON_8B["rope_parameters"] | {"original_max_position_embeddings": None}},
            "it does not state original_max_position_embeddings",
        ),
        (
            IDLM_8B,
            {"use_regular_causal": False, "_name_or_path": "a/I-DLM-8B"},
            "idlm: use_regular_causal=False is not supported, only True is",
        ),
        (SDAR_30B, {"num_experts": None}, "it does not state num_experts"),
        (LLADA_MOE_7B, {"moe_layer_freq": [0, 1]}, "moe_layer_freq=0 is not supported, only 1 is"),
        (LLADA_MOE_7B, {"qk_layernorm": None}, "it does not state qk_layernorm"),
        (LLADA_MOE_7B, {"num_experts_per_tok": None}, "it does not state num_experts_per_tok"),
        (DIFFUSION_GEMMA_26B, {"text_config": {}}, "it does not state rope_theta for full_attention"),
        (DIFFUSION_GEMMA_26B, {"text_config": "gemma"}, "text_config must be an object, got 'gemma'"),
        (SDAR_8B, {"rope_scaling": "linear"}, "rope_scaling must be an object, got 'linear'"),
        (DREAM_7B, {"num_attention_heads": 0}, "zero"),
        (QWEN3_8B | {"architectures": ["Qwen3ForCausalLM"]}, {"rope_theta": None}, "it does not state rope_theta"),
    ],
)
def test_what_cannot_be_computed_is_refused_by_name(tmp_path, facts, changes, message):
    with pytest.raises(ValueError, match=message) as caught:
        described(tmp_path, facts, **changes)
    assert "config.json, read as " in str(caught.value)


@pytest.mark.parametrize(
    "facts, changes",
    [
        (LLADA_8B, dict.fromkeys(("scale_logits", "alibi", "block_type", "layer_norm_type", "n_kv_heads", "mlp_hidden_size"))),
        (LLADA2_MINI, {"num_nextn_predict_layers": 0, "use_sliding_window": False, "use_rmsnorm": True, "head_dim": None}),
        (LLADA2_MINI, {"expert_capacity": 0, "delete_token_id": None}),
        (SDAR_8B, {"use_regular_causal": False, "use_relay": None}),
        (SDAR_8B, {"sliding_window": 4096, "hidden_act": None, "num_key_value_heads": None}),
    ],
)
def test_what_changes_nothing_is_accepted(tmp_path, facts, changes):
    described(tmp_path, facts, **changes)


def test_the_mask_token_is_the_first_that_is_named(tmp_path):
    folder = folder_of(tmp_path, SDAR_8B, mask_token="<mask>", dlstep={"mask_token_id": 11})
    edit(folder / "generation_config.json", mask_token_id=12)
    assert read_description(folder, mask_token_id=10).spec.mask_id == 10
    for expected, file, changes in (
        (11, "config.json", {"dlstep": None}),
        (151669, "config.json", {"mask_token_id": None}),
        (12, "generation_config.json", {"mask_token_id": None}),
        (MASK_ID, "tokenizer_config.json", {"mask_token": None, "extra_special_tokens": ["<|MASK|>"]}),
        (139, "tokenizer_config.json", {"extra_special_tokens": []}),
    ):
        assert read_description(folder).spec.mask_id == expected
        edit(folder / file, **changes)
    assert read_description(folder).spec.mask_id == 151669  # as published
    edit(folder / "config.json", vocab_size=151669)
    with pytest.raises(ValueError, match="names no mask token"):
        read_description(folder)


def test_a_published_id_that_is_another_token_is_not_taken(tmp_path):
    with pytest.raises(ValueError, match="names no mask token"):
        described(tmp_path, STABLE_DIFFCODER_8B)


def test_ends_are_gathered(tmp_path):
    folder = folder_of(tmp_path, DREAM_7B, eos_token_id=[151643, 9])
    edit(folder / "generation_config.json", eos_token_id=[8])
    assert read_description(folder).spec.eos_ids == (151643, 9, 8, 151645)


def test_options_that_are_given_win_also_when_they_are_defaults(tmp_path):
    sdar = described(tmp_path, SDAR_8B)
    strategy = strategy_of(sdar)
    assert (strategy.block_size, strategy.rule) == (4, Threshold(0.95))
    strategy = strategy_of(sdar, block_size=32, accept_threshold=0.9)
    assert (strategy.block_size, strategy.rule) == (32, Threshold(0.9))
    own = described(tmp_path, SDAR_8B, dlstep={"accept_threshold": 0.8, "block_size": 8, "decoding_strategy": "d2f"})
    strategy = strategy_of(own)
    assert (type(strategy).__name__, strategy.block_size, strategy.rule) == ("D2F", 8, Threshold(0.8))
    ruled = described(tmp_path, SDAR_8B, dlstep={"rule": "quota", "steps_per_block": 2})
    assert strategy_of(ruled).rule == Quota(2)
    assert strategy_of(ruled, rule="threshold").rule == Threshold(0.95)


@pytest.mark.parametrize(
    ("facts", "family", "training", "fields"),
    [
        (A2D_QWEN3, "a2d_qwen3", "bidirectional", {"block_size": 32, "rule": Threshold(0.9, inclusive=True)}),
        (A2D_QWEN3, "a2d_qwen3_bd3lm", "block-causal", {"block_size": 32, "grid_origin": "prompt_end"}),
        (A2D_QWEN3, "opdlm", "block-causal", {"block_size": 4, "grid_origin": "start", "rule": Threshold(0.9)}),
        (
            EFFICIENT_DLM_4B,
            "efficient_dlm",
            "prompt in full, blocks causal",
            {"buffer_size": 1, "rule": Threshold(inclusive=True)},
        ),
    ],
)
def test_a_family_is_decoded_as_it_was_trained(tmp_path, facts, family, training, fields):
    found = read_description(folder_of(tmp_path, facts, mask_token="<mask>"), family)
    strategy = strategy_of(found)
    assert found.training == training
    assert {name: getattr(strategy, name) for name in fields} == fields


def test_a_family_or_a_folder_says_how_it_was_trained(tmp_path):
    named = {name: family.training for name, family in FAMILIES.items() if family.training is not None}
    assert set(FAMILIES) - set(named) == set(NATIVE)
    assert all(FAMILIES[name].decoding_strategy in TRAININGS[training] for name, training in named.items())
    assert described(tmp_path, SDAR_8B, dlstep={"decoding_strategy": "d2f"}).training == "block-causal"
    own = described(tmp_path, SDAR_8B, dlstep={"training": "bidirectional", "decoding_strategy": "dual_cache"})
    assert own.training == "bidirectional" and type(strategy_of(own)).__name__ == "DualCache"
    with pytest.raises(ValueError, match=r"'multi_bd' does not go with .*: it was trained bidirectional, which dual_cache"):
        strategy_of(own, decoding_strategy="multi_bd")
    for wrong in ("upside down", 5, {}, ["bidirectional"]):
        with pytest.raises(ValueError, match=r"training: must be one of block-causal; .*got"):
            described(tmp_path, SDAR_8B, dlstep={"training": wrong})


@pytest.mark.parametrize(
    "options, sizes",
    [
        ({}, (8, 4)),
        ({"block_size": 16}, (16, 2)),
        ({"block_size": 8}, (8, 4)),
        ({"buffer_size": 8}, (4, 8)),
        ({"block_size": 8, "buffer_size": 2}, (8, 2)),
        ({"decoding_strategy": "multi_bd"}, (32, 4)),
        ({"decoding_strategy": "multi_bd", "block_size": 8, "buffer_size": 2}, (8, 2)),
    ],
)
def test_sub_blocks_divide_the_block_of_fast_dllm_v2(tmp_path, options, sizes):
    strategy = strategy_of(described(tmp_path, FAST_DLLM_V2_7B), **options)
    assert (strategy.block_size, strategy.buffer_size) == sizes


@pytest.mark.parametrize("name", FACTS)
def test_a_checkpoint_decodes_by_its_folder_alone(tmp_path, name):
    write_checkpoint(tmp_path, name)
    llm = LLM(tmp_path, family=name if name in SHARED else None)
    (output,) = llm.generate([[7, 8, 9, 10, 11]], SamplingParams(max_tokens=9, ignore_eos=True))
    assert (output.finish_reason, len(output.token_ids)) == (("stop", 4) if name == "dreamon" else ("length", 9))
    masked = FAMILIES[name].masked
    assert llm.engine.first.config.spec.mask_id == (MASK_ID if masked else None)
    assert EOS_ID in llm.engine.first.config.spec.eos_ids

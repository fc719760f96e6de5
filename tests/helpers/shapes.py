"""Published shapes with small sizes, for tests on a CPU."""

from copy import deepcopy
from dataclasses import replace

from benchmarks.shapes import SHAPES, Shape

SMALLER = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "vocab_size": 300,
    "head_dim": 16,
    "global_head_dim": 32,
    "num_global_key_value_heads": 1,
    "sliding_window": 16,
    "num_experts": 16,
    "num_experts_per_tok": 2,
    "top_k_experts": 2,
    "n_group": 4,
    "topk_group": 2,
    "moe_intermediate_size": 32,
    "d_model": 64,
    "n_layers": 2,
    "n_heads": 4,
    "n_kv_heads": 4,
    "mlp_hidden_size": 96,
}


def shrunk(name: str) -> Shape:
    """Return a shape whose sizes are small, everything else being as it is."""
    shape = SHAPES[name]
    facts, options = deepcopy(dict(shape.facts)), dict(shape.options)
    part = facts.get("text_config", facts)
    part.update({fact: size for fact, size in SMALLER.items() if fact in part})
    if "layer_types" not in part and "text_config" in facts:
        part["layer_types"] = ["sliding_attention", "full_attention"]
    if "canvas_length" in facts:
        facts["canvas_length"] = options["canvas_length"] = 16
    return replace(shape, facts=facts, options=options)

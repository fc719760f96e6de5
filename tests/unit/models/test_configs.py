"""Every field of a config.json is used, refused, harmless for a stated reason, or reported as unknown."""

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError

from dlstep.models import FAMILIES
from dlstep.models.configs import HARMLESS, Stated, unknown_fields
from dlstep.models.fingerprint import effective

from ...helpers import published
from ...helpers.tiny_configs import FACTS
from ...helpers.tiny_families import fill

NATIVE = {"qwen2": "dream", "llama": "stable_diffcoder", "qwen3": "sdar", "qwen3_moe": "sdar_moe"}
DISTINCT = (
    "dream",
    "stable_diffcoder",
    "llada",
    "sdar",
    "sdar_moe",
    "llada2",
    "diffusion_gemma",
    "qwen2",
    "llama",
    "qwen3_moe",
)
OLD = ("auto_map", "rope_theta", "rope_scaling", "torch_dtype", "use_sliding_window")  # what transformers no longer writes
IDS = torch.arange(3, 27)[None]
# Errors of a configuration that is refused, or that no network can be made of.
REFUSED = (
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    RuntimeError,
    AssertionError,
    StrictDataclassError,
)
# Values that make no difference to these networks, by the reason.
NO_DIFFERENCE = {
    "max_position_embeddings": "the longest context: a limit of requests",
    "max_sequence_length": "the same in LLaDA",
    "use_sliding_window": "without layers of the sliding kind, which max_window_layers makes",
    "decoder_sparse_step": "of the three layers of this network one is dense either way",
    "vocab_size": "LLaDA embeds embedding_size ids",
    "mlp_ratio": "LLaDA's mlp_hidden_size wins",
    "rope_parameters": "the same embedding stated in the new way",
    "final_logit_softcapping": "compared before the head",
}
# Values that state what the published code does without the field; True is 1.
DEFAULTS = [
    ("block_group_size", True), ("layer_norm_with_affine", True), ("partial_rotary_factor", True),
    ("rope_full_precision", True), ("use_bidirectional_attention", "vision"),
]  # fmt: skip
BY_NAME = {
    "layer_types": [
        ["sliding_attention"] * 2,
        ["sliding_attention", "full_attention", "full_attention"],
    ],
    "rope_scaling": [{"rope_type": "linear", "factor": 3.0}, {"rope_type": "dynamic", "factor": 3.0}],
    "mlp_only_layers": [[], [0, 1]],
    "hidden_act": ["gelu", "relu"],
    "hidden_activation": ["silu"],
    "rms_norm_eps": [0.5],
    "norm_topk_prob": [False],
    "use_bidirectional_attention": ["all", "vision"],
    "quantization_config": [{"quant_method": "fp8"}],
    "partial_rotary_factor": [0.25],
}


def facts_of(family):
    """The config.json of a tiny checkpoint; of a native family the one that transformers would write."""
    if family not in NATIVE:
        return FACTS[family]((4, 2), False)
    facts = FACTS[NATIVE[family]]((4, 2), False)
    own = {name: value for name, value in facts.items() if name not in OLD}
    return own | {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}


def made(family, facts):
    """The configuration of the network, and the fields that are reported. Raises what refuses the facts."""
    entry = FAMILIES[family]
    stated = Stated(facts)
    arguments = entry.config(stated)
    config_class = entry.network.config_class
    config = config_class(**arguments)
    return config, unknown_fields(stated, arguments, config)


def others(name, value):
    """Values that another checkpoint could state."""
    yield from BY_NAME.get(name, ())
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (value + 1, 2 * value)
    elif isinstance(value, float):
        yield 2 * value
    elif value is None:
        yield from (True, 7, 0.5)
    elif isinstance(value, str):
        yield "other"


def logits(family, config, shapes):
    """Return the logits of a network with this configuration and the same weights; None if they have other shapes."""
    network = FAMILIES[family].network._from_config(config, attn_implementation="eager", dtype=torch.float32).eval()
    if shapes is not None and {name: each.shape for name, each in network.state_dict().items()} != shapes:
        return None
    fill(network, 0)
    with torch.inference_mode():
        if family == "diffusion_gemma":
            return network(input_ids=IDS, decoder_input_ids=IDS[:, :8]).logits
        return network(IDS, use_cache=False).logits


def fields_of(family, facts):
    """Names of every field that the class or a published checkpoint has, with the value here."""
    config, _ = made(family, facts)
    stated = (facts for name, facts in vars(published).items() if name.isupper())
    names = {*facts, *effective(config), *BY_NAME, *(name for each in stated for name in each)}
    yield from ((name, facts.get(name)) for name in sorted(names - HARMLESS - {"text_config"}))


def check_family(family):
    """Change every field of a family's file; return how many changes reached the network."""
    facts = facts_of(family)
    config, unknown = made(family, facts)
    assert unknown == ()
    first, changed, unnoticed = logits(family, config, None), 0, []
    assert first is not None
    network = FAMILIES[family].network._from_config(config, dtype=torch.float32)
    shapes = {name: each.shape for name, each in network.state_dict().items()}
    places = [((name,), value) for name, value in fields_of(family, facts)]
    if (inner := facts.get("text_config")) is not None:
        text = set(effective(config.get_text_config())) - HARMLESS
        places += [(("text_config", name), inner.get(name)) for name in sorted(text | set(inner) - HARMLESS)]
    for path, value in places:
        for other in others(path[-1], value):
            if (path[-1], other) in DEFAULTS or effective(config).get(path[-1]) == other:
                continue
            told = facts | {path[0]: other} if len(path) == 1 else facts | {path[0]: (inner or {}) | {path[-1]: other}}
            try:
                now, reported = made(family, told)
                if ".".join(path) in reported or path[-1] in NO_DIFFERENCE:
                    continue
                answer = logits(family, now, shapes)
            except REFUSED:
                continue  # refused, or no network can be made of it
            changed += 1
            if effective(now) == effective(config) or (answer is not None and torch.equal(answer, first)):
                unnoticed.append(f"{path[-1]}={other!r}")
    assert not unnoticed, f"{family} reads these, and they make no difference: {unnoticed}"
    return changed


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", DISTINCT)
def test_every_field_is_used_refused_harmless_or_reported(family):
    assert check_family(family) >= 5


@pytest.mark.stress
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", [name for name in (*FACTS, *NATIVE) if name not in DISTINCT])
def test_every_field_of_the_other_families(family):
    assert check_family(family) >= 5

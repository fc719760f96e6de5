"""Networks with random weights in the shapes of published checkpoints, created on the device.

Sizes are those in the checkpoints' config.json files. Special tokens are the last
ids of the vocabulary, since their ids do not affect the cost.
"""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from dlstep import strategies
from dlstep.core import Spec, Strategy
from dlstep.distributed.ranks import ALONE, Ranks
from dlstep.models import Checkpoint
from dlstep.models.description import Description
from dlstep.models.families import FAMILIES, Family
from dlstep.models.layers import ATTENTION, install, install_experts
from dlstep.models.quantization import quantize
from dlstep.models.reading import Folder
from dlstep.models.sharding import install_ranks, parameter_shards
from dlstep.models.transformers_internals import new_model
from dlstep.models.weights import empty_network

# Strategies that use the network's own samples: their options determine the pace.
PACED_BY_OPTIONS = ("diffusion_gemma",)
SHARPNESS = 8.0  # with ordinary query and key norms, random attention would average over nearly all positions

_BLOCKS = {"block_size": 32, "buffer_size": 4}


@dataclass(frozen=True, slots=True)
class Shape:
    """A published checkpoint: its `family`, facts of its config.json, and options of its strategy.

    `mode` is a strategy other than the family's default. `tokens_per_pass` is the published average of
    tokens per request and forward pass, all passes counted; None: not published.
    """

    name: str
    family: str
    facts: Mapping[str, Any]
    options: Mapping[str, Any] = field(default_factory=dict)
    mode: str | None = None
    tokens_per_pass: float | None = None

    @property
    def decoding_strategy(self) -> str:
        """Return the name of its strategy."""
        return self.mode or FAMILIES[self.family].decoding_strategy or "multi_bd"

    def strategy(self, tokens_per_forward: float, buffer_size: int | None = None) -> Strategy:
        """Return its strategy, configured so that a script can set the tokens per forward pass.

        `buffer_size` replaces its number of blocks in flight, unless None.

        A block is never forced to unmask a token because the previous block is nearly complete. A
        canvas is committed after as many passes as give the requested average.
        """
        options = dict(self.options) | ({} if buffer_size is None else {"buffer_size": buffer_size})
        if self.decoding_strategy in PACED_BY_OPTIONS:
            options["max_denoising_steps"] = max(1, round(options["canvas_length"] / tokens_per_forward))
        return strategies.load(self.decoding_strategy)(**options)


def _facts(hidden: int, layers: int, heads: tuple[int, int], width: int, vocabulary: int, **others: Any) -> dict[str, Any]:
    """Return facts under the names that most families use; `heads` are those of queries and of keys."""
    return {
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads[0],
        "num_key_value_heads": heads[1],
        "intermediate_size": width,
        "vocab_size": vocabulary,
        "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e6,
        **others,
    }


_EXPERTS = {
    "head_dim": 128, "rope_theta": 6e5, "partial_rotary_factor": 0.5, "num_experts": 256, "num_experts_per_tok": 8,
    "num_shared_experts": 1, "n_group": 8, "topk_group": 4, "routed_scaling_factor": 2.5, "first_k_dense_replace": 1,
}  # fmt: skip
_LLADA2_MINI = _facts(2048, 20, (16, 4), 5120, 157184, moe_intermediate_size=512, **_EXPERTS)
_LLADA2_FLASH = _facts(4096, 32, (32, 4), 9216, 157184, moe_intermediate_size=1024, **_EXPERTS)
_LLADA = {
    "d_model": 4096, "n_layers": 32, "n_heads": 32, "n_kv_heads": 32, "mlp_hidden_size": 12288, "vocab_size": 126464,
    "max_sequence_length": 4096 + 1024, "rms_norm_eps": 1e-5, "rope_theta": 5e5, "weight_tying": False,
}  # fmt: skip
_YARN = {
    "beta_fast": 32.0, "beta_slow": 1.0, "factor": 16.0, "llama_4_scaling_beta": 0.1, "mscale": 1.0, "mscale_all_dim": 1.0,
    "original_max_position_embeddings": 16384, "rope_theta": 1e6, "rope_type": "yarn",
}  # fmt: skip
_NEMOTRON = _facts(4096, 34, (32, 8), 14336, 131072, head_dim=128, rope_parameters=_YARN)
_NEMOTRON |= {"max_position_embeddings": 262144, "rope_theta": None}
_DIFFUSION_GEMMA = {
    "canvas_length": 256,
    "text_config": {
        "model_type": "diffusion_gemma_text",
        "vocab_size": 262144,
        "hidden_size": 2816,
        "intermediate_size": 2112,
        "num_hidden_layers": 30,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 256,
        "global_head_dim": 512,
        "num_global_key_value_heads": 2,
        "sliding_window": 1024,
        "max_position_embeddings": 262144,
        "num_experts": 128,
        "top_k_experts": 8,
        "moe_intermediate_size": 704,
        "rope_parameters": {
            "full_attention": {"partial_rotary_factor": 0.25, "rope_theta": 1e6, "rope_type": "proportional"},
            "sliding_attention": {"rope_theta": 1e4, "rope_type": "default"},
        },
    },
    # A minimal vision tower: no images are read.
    "vision_config": {
        "model_type": "gemma4_vision",
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "position_embedding_size": 16,
    },
}
_CONFIDENT = _BLOCKS | {"semi_complete_threshold": 1.0}
_QWEN3 = {"head_dim": 128}
_QWEN3_MOE = _QWEN3 | {"num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768}
# Sources of tokens per pass: model cards of LLaDA2.1-mini and LLaDA2.0-flash; for Nemotron, 5.46 tokens per verifying
# pass of a draft without adapter, each after a drafting pass.
_ENTRIES = (
    Shape("llada-8b", "llada", _LLADA, {"block_size": 32}),
    Shape("sdar-1.7b", "sdar", _facts(2048, 28, (16, 8), 6144, 151936, tie_word_embeddings=True, **_QWEN3), _CONFIDENT),
    Shape("sdar-8b", "sdar", _facts(4096, 36, (32, 8), 12288, 151936, **_QWEN3), _CONFIDENT),
    Shape("sdar-30b-a3b", "sdar_moe", _facts(2048, 48, (32, 4), 6144, 151936, **_QWEN3_MOE), _CONFIDENT),
    Shape("llada2-mini", "llada2_mini", _LLADA2_MINI, _CONFIDENT, tokens_per_pass=2.6),
    Shape("llada2-flash", "llada2_mini", _LLADA2_FLASH, _CONFIDENT, tokens_per_pass=3.19),
    Shape("dream-7b", "dream", _facts(3584, 28, (28, 4), 18944, 152064), {"block_size": 32}),
    Shape(
        "fast-dllm-v2-1.5b",
        "fast_dllm_v2",
        _facts(1536, 28, (12, 2), 8960, 151936, tie_word_embeddings=True),
        {"block_size": 8, "buffer_size": 4},
    ),
    Shape("nemotron-8b", "nemotron_labs_diffusion", _NEMOTRON, {"block_size": 32}),
    Shape("nemotron-8b-drafts", "nemotron_labs_diffusion", _NEMOTRON, {"block_size": 32}, "self_speculation", 2.73),
    Shape("nemotron-8b-ar", "nemotron_labs_diffusion", _NEMOTRON, {}, "autoregressive", 1.0),
    Shape("diffusion-gemma-26b", "diffusion_gemma", _DIFFUSION_GEMMA, {"canvas_length": 256}),
)
SMALL = {  # sizes for a CPU
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "head_dim": 16,
}
SHAPES: dict[str, Shape] = {shape.name: shape for shape in _ENTRIES}


def shortened(shape: Shape, layers: int) -> Shape:
    """Return `shape` with only its first `layers` layers; 0 keeps all."""
    facts = deepcopy(dict(shape.facts))
    if layers:
        part = facts.get("text_config", facts)
        part["n_layers" if "n_layers" in part else "num_hidden_layers"] = layers
    return replace(shape, facts=facts)


def parameter_count(shape: Shape) -> int:
    """Return the number of parameters, without memory for them."""
    family = FAMILIES[shape.family]
    config_class: Any = family.network.config_class
    network = empty_network(family.network, config_class(**family.config(shape.facts)), torch.bfloat16)
    return sum(parameter.numel() for parameter in network.parameters())


def random_checkpoint(
    shape: Shape, device: torch.device, dtype: torch.dtype, ranks: Ranks = ALONE, quantization: str | None = None
) -> Checkpoint:
    """Return a checkpoint without a folder, with random parameters created on `device` in `dtype`, quantized if requested.

    Each of several `ranks` keeps its share; all other values agree if torch's seeds are equal.
    """
    family = FAMILIES[shape.family]
    config_class: Any = family.network.config_class
    made_config = config_class(**family.config(shape.facts))
    install()
    network = new_model(family.network, made_config, dtype, ATTENTION, device)
    if family.masked:
        _sharpen(network)
    _keep_share(network, ranks)
    install_experts(network)
    if quantization is not None:
        quantize(network)
    text: Any = made_config.get_text_config()
    backend = Tokenizer(WordLevel({"<unk>": 0}, unk_token="<unk>"))
    description = Description(
        name=shape.name,
        source=Folder(Path(shape.name)),
        family=family,
        config=made_config,
        tokenizer=PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>"),
        spec=_spec(family, text.vocab_size),
        options=shape.options,
        decoding_strategy=shape.decoding_strategy,
        training=family.training,
        max_model_len=text.max_position_embeddings,
    )
    return Checkpoint(network.eval(), description, dtype, ranks)


def expert_stacks(network: PreTrainedModel) -> list[Tensor]:
    """Return the parameters that stack the weights of a layer's experts."""
    parameters = network.named_parameters()
    return [
        parameter for name, parameter in parameters if parameter.ndim == 3 and name.endswith((".gate_up_proj", ".down_proj"))
    ]


@torch.no_grad()
def _keep_share(network: PreTrainedModel, ranks: Ranks) -> None:
    """Remove the parameters that other ranks hold."""
    cut: set[int] = set()  # tied parameters have two names
    for name, share in parameter_shards(network, ranks).items():
        parameter: Any = network.get_parameter(name)
        if share.dim is None and ranks.rank:
            parameter.zero_()
        elif share.dim is not None and id(parameter) not in cut:
            parameter.data = parameter.narrow(share.dim, share.start, share.stop - share.start).clone()
            cut.add(id(parameter))
    install_ranks(network, ranks)


def _spec(family: Family, vocabulary: int) -> Spec:
    return Spec(
        mask_id=vocabulary - 1 if family.masked else None,
        eos_ids=(vocabulary - 2,),
        vocab_size=vocabulary,
        head_shift=family.head_shift,
        accept_rule=family.accept_rule,
    )


@torch.no_grad()
def _sharpen(network: PreTrainedModel) -> None:
    """Let every position see different keys: otherwise deep layers would choose the same experts for all of them."""
    for name, parameter in network.named_parameters():
        if name.endswith("q_norm.weight"):
            parameter.fill_(SHARPNESS)

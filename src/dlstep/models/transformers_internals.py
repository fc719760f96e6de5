"""All names outside the public interface of transformers that dlstep uses. Only this module imports them.

`OLDEST` and `NEWEST` are the versions that `make oldest` and `make newest` test, and the bounds in pyproject.toml. Before
you raise `NEWEST`, compare every name below with the new version.
"""

import copy
from inspect import signature
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel
from transformers.activations import GELUTanh as GELUTanh, SiLUActivation as SiLUActivation
from transformers.convert_slow_tokenizer import bytes_to_unicode as bytes_to_unicode
from transformers.integrations.moe import ExpertsInterface as ExpertsInterface
from transformers.models.diffusion_gemma.modeling_diffusion_gemma import DiffusionGemmaTextRouter as DiffusionGemmaTextRouter
from transformers.models.glm4_moe.modeling_glm4_moe import Glm4MoeMoE as Glm4MoeMoE, Glm4MoeTopkRouter as Glm4MoeTopkRouter

from .shapes import KVShape

OLDEST, NEWEST = "5.17", "5.24"

# Passed as a mask, these keep transformers from building one: NO_MASKS if a class has a mask per
# kind of layer, NO_MASK (4-d) for all other classes. Neither is read, so NO_MASK has no memory.
NO_MASKS = {"full_attention": None, "sliding_attention": None}
NO_MASK = torch.empty((1, 1, 1, 1), device="meta")
INITIALIZED = "_is_hf_initialized"  # the attribute of tensors that `initialize_weights` skips
# Attributes of a module with the experts of a layer, with the values that `plain_experts` requires.
_PLAIN = {"has_gate": True, "is_concatenated": True, "has_bias": False, "is_transposed": False, "has_post_expert_norm": False}


def new_model(
    kind: type[PreTrainedModel], config: PretrainedConfig, dtype: torch.dtype, attention: str, device: torch.device
) -> PreTrainedModel:
    """Return a network with new weights and this implementation of attention."""
    with device:
        made: Any = kind._from_config(copy.deepcopy(config), dtype=dtype, attn_implementation=attention)
        return made


def cache_argument(module: nn.Module | type[nn.Module]) -> str:
    """Return the keyword for the cache of a network or layer: `cache`, or `past_key_values` before 5.24."""
    return "cache" if "cache" in signature(module.forward).parameters else "past_key_values"


class EmptyCache:
    """A cache without content, for networks that require one: attention reads earlier keys from the pages."""

    is_compileable = False

    def __init__(self, shapes: tuple[KVShape, ...], dtype: torch.dtype, device: torch.device) -> None:
        empty = [torch.empty((1, shape.kv_heads, 0, shape.head_dim), dtype=dtype, device=device) for shape in shapes]
        self.layers = [SimpleNamespace(keys=nothing, values=nothing) for nothing in empty]

    def update(self, keys: Tensor, values: Tensor, *_: object, **__: object) -> tuple[Tensor, Tensor]:
        """Return keys and values unchanged; layers call this to store them."""
        return keys, values


def plain_experts(module: nn.Module) -> bool:
    """Return whether experts have standard gating, gate rows first and no bias."""
    gated = getattr(type(module), "_apply_gate", None)
    return (
        all(getattr(module, name, value) is value for name, value in _PLAIN.items())
        and getattr(gated, "__module__", None) == ExpertsInterface.__module__  # not overridden
    )


def tensor_parallel_plan(network: PreTrainedModel) -> dict[str, str]:
    """Return the kind of cut for each pattern of module and parameter names; empty if there is no plan."""
    text: Any = network.config.get_text_config()
    return {**text.base_model_tp_plan, **(type(network)._tp_plan or {})} if text.base_model_tp_plan else {}

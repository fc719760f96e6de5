"""The uniform-state model: a toy DiffusionGemma, its fresh weights, its loss and its checkpoint
folder.

An encoder reads what is final, causally; a decoder sees it and a whole canvas, whose unknown tokens
are random ones. It also sees its own last answer, through self-conditioning.
"""

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    DiffusionGemmaConfig,
    DiffusionGemmaForBlockDiffusion,
    DiffusionGemmaTextConfig,
    EntropyBoundSamplerConfig,
    Gemma4VisionConfig,
    PreTrainedModel,
)
from transformers.integrations.moe import ExpertsInterface
from transformers.models.diffusion_gemma.modeling_diffusion_gemma import DiffusionGemmaRMSNorm

from dlstep.models.transformers_internals import cache_argument
from training.layout import Sample
from training.recipes import CANVAS_LENGTH, Recipe
from training.tokenizer import EMBEDDING_ROWS, EOS_ID, PAD_ID

EXPERTS = "all_experts"
BRANCH_SCALE = 1.0  # of what a fresh layer adds to the residual stream
QUERY_SCALE = 0.42  # of fresh queries and keys: attention itself does not scale by the head's size, here 32
FIRST_PASS_SHARE = 0.5  # of the batches that learn to read their own last answer
EVEN_SHARE, ALL_RANDOM_SHARE = 0.6, 0.05  # of the canvases: one level of noise each, or nothing but noise
HOTTEST, COLDEST = 0.8, 0.4  # temperatures of a decoder, whose answers it feeds back


def canvas_configuration(recipe: Recipe) -> DiffusionGemmaConfig:
    """Return a DiffusionGemma of about a million parameters with the smallest image part that its
    classes allow."""
    # The full-attention layer's shape; the class takes these names but does not declare them.
    rotary = {"rope_type": "proportional", "partial_rotary_factor": 1.0, "rope_theta": 10000.0}
    full: dict[str, Any] = {
        "global_head_dim": 32,
        "num_global_key_value_heads": 2,
        "rope_parameters": {
            "full_attention": rotary,
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        },
    }
    text = DiffusionGemmaTextConfig(
        vocab_size=EMBEDDING_ROWS,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=4,
        layer_types=["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"],
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        sliding_window=128,
        max_position_embeddings=512,
        num_experts=4,
        top_k_experts=2,
        moe_intermediate_size=64,
        pad_token_id=PAD_ID,
        eos_token_id=EOS_ID,
        bos_token_id=None,
        **full,
    )
    vision = Gemma4VisionConfig(
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=8,
        position_embedding_size=16,
    )
    rules = {
        "decoding_strategy": recipe.decoding_strategy,
        "training": recipe.training,
        "block_size": CANVAS_LENGTH,
        "buffer_size": 1,
        "head_shift": 0,
    }
    own: dict[str, Any] = {"dlstep": rules}
    # The image symbols are rows past the vocabulary.
    last = EMBEDDING_ROWS - 1
    return DiffusionGemmaConfig(
        text_config=text,
        vision_config=vision,
        canvas_length=CANVAS_LENGTH,
        image_token_id=last,
        boi_token_id=last - 1,
        eoi_token_id=last - 2,
        **own,
    )


def fresh_canvas_model(recipe: Recipe, seed: int) -> DiffusionGemmaForBlockDiffusion:
    """Return a model with new float32 weights drawn from `seed`."""
    model = DiffusionGemmaForBlockDiffusion._from_config(
        canvas_configuration(recipe), attn_implementation="sdpa", dtype=torch.float32
    )
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        if name.endswith(("q_norm.weight", "k_norm.weight")):
            nn.init.constant_(parameter, QUERY_SCALE)
        elif name.endswith(("post_attention_layernorm.weight", "post_feedforward_layernorm.weight")):
            nn.init.constant_(parameter, BRANCH_SCALE)
        elif parameter.ndim == 1:
            nn.init.ones_(parameter)
        elif "embed_tokens" in name:
            nn.init.normal_(parameter, std=0.05, generator=generator)
        else:
            nn.init.normal_(parameter, std=1 / math.sqrt(parameter.shape[-1]), generator=generator)
    return trainable(model)


def load_canvas_model(folder: Path) -> DiffusionGemmaForBlockDiffusion:
    """Load a checkpoint folder's model in float32, ready for further training."""
    model = DiffusionGemmaForBlockDiffusion.from_pretrained(folder, attn_implementation="sdpa", dtype=torch.float32)
    return trainable(model)


def trainable(model: DiffusionGemmaForBlockDiffusion) -> DiffusionGemmaForBlockDiffusion:
    """Return the model with a frozen image part and the experts in the form that trains fast at
    this size."""
    model.set_experts_implementation(EXPERTS)
    for module in model.modules():
        if isinstance(module, DiffusionGemmaRMSNorm):
            setattr(module, "forward", partial(_normed, module))  # noqa: B010
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("vision" not in name)
    return model


def canvas_loss(model: PreTrainedModel, samples: Sequence[Sample], generator: torch.Generator) -> Tensor:
    """Return the cross entropy of all canvas tokens; half of the batches see the answer to a
    noisier canvas."""
    assert isinstance(model, DiffusionGemmaForBlockDiffusion), f"a {type(model).__name__} has no canvas"
    canvases = draw_canvases(samples, generator).to(model.device)
    return nn.functional.cross_entropy(canvas_logits(model, canvases).flatten(0, 1), canvases.targets.flatten())


def canvas_logits(model: DiffusionGemmaForBlockDiffusion, canvases: "Canvases") -> Tensor:
    """Return the logits of the noisy canvases, [row, canvas, vocabulary]."""
    prompt_mask, canvas_mask = _masks(canvases.seen)
    name = cache_argument(model)
    cache = getattr(model.model.encoder(input_ids=canvases.prompts, attention_mask=prompt_mask), name)

    def logits(tokens: Tensor, last: Tensor | None) -> Tensor:
        return model(
            **{name: cache},
            decoder_input_ids=tokens,
            decoder_attention_mask=canvas_mask,
            self_conditioning_logits=last,
        ).logits

    if canvases.temperature is None:
        return logits(canvases.noisy, None)
    with torch.no_grad():
        last = logits(canvases.noisier, None) / canvases.temperature
    return logits(canvases.noisy, last)


def _masks(seen: Tensor) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the attention masks of encoder and decoder, for left-padded prompts that are shorter
    than the window.

    Padding sees itself, so that no softmax is empty.
    """
    width = seen.shape[1]
    places = torch.arange(width, device=seen.device)
    causal = (places <= places[:, None]) & seen[:, None] | (places == places[:, None])
    canvas = nn.functional.pad(seen, (0, CANVAS_LENGTH), value=True)[:, None].expand(-1, CANVAS_LENGTH, -1)
    kinds = ("sliding_attention", "full_attention")
    return dict.fromkeys(kinds, causal[:, None]), dict.fromkeys(kinds, canvas[:, None])


def _all_experts(experts: Any, hidden: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
    """Apply every expert to every token [n, channel], with weight 0 for those not `chosen` [n, k].

    Twice the arithmetic of two experts in four, but a handful of large products in place of many
    small ones.
    """
    share = hidden.new_zeros((len(hidden), experts.num_experts)).scatter(1, chosen, weights.to(hidden.dtype))
    both = nn.functional.linear(hidden, experts.gate_up_proj.flatten(0, 1))
    gate, up = both.unflatten(1, (experts.num_experts, -1)).chunk(2, dim=-1)
    inner = experts.act_fn(gate) * up * share[..., None]
    return (inner.flatten(1) @ experts.down_proj.transpose(1, 2).flatten(0, 1)).to(hidden.dtype)


def _normed(norm: DiffusionGemmaRMSNorm, hidden: Tensor) -> Tensor:
    """Compute the norm as one operation instead of eight."""
    weight = norm.weight if norm.with_scale else None
    return nn.functional.rms_norm(hidden.float(), hidden.shape[-1:], weight, norm.eps).type_as(hidden)


ExpertsInterface.register(EXPERTS, _all_experts)


@dataclass(frozen=True, slots=True)
class Canvases:
    """A batch of canvases behind left-padded prompts."""

    prompts: Tensor  # int64 [row, prompt]
    seen: Tensor  # bool [row, prompt], off for padding
    targets: Tensor  # int64 [row, canvas]
    noisy: Tensor  # int64 [row, canvas]
    noisier: Tensor  # int64 [row, canvas], random at least where `noisy` is
    temperature: Tensor | None  # float [row, 1, 1], None when nothing is fed back

    def to(self, device: torch.device) -> "Canvases":
        """Return a copy on another device."""
        return Canvases(
            self.prompts.to(device),
            self.seen.to(device),
            self.targets.to(device),
            self.noisy.to(device),
            self.noisier.to(device),
            None if self.temperature is None else self.temperature.to(device),
        )


def draw_canvases(samples: Sequence[Sample], generator: torch.Generator) -> Canvases:
    """Return canvases of the samples' answers, filled with end symbols, with tokens replaced at
    random levels."""
    rows = len(samples)
    width = max(len(sample.prompt) for sample in samples)
    prompts = torch.tensor([[PAD_ID] * (width - len(sample.prompt)) + list(sample.prompt) for sample in samples])
    targets = torch.tensor([[*sample.response, *[EOS_ID] * CANVAS_LENGTH][:CANVAS_LENGTH] for sample in samples])
    begin = width - torch.tensor([len(sample.prompt) for sample in samples])[:, None]
    level = noise_levels(rows, generator)
    noisier = level + (1 - level) * torch.rand((rows, 1), generator=generator).square()
    draw = torch.rand(targets.shape, generator=generator)

    def replaced(share: Tensor) -> Tensor:
        return torch.where(draw < share, torch.randint(0, EMBEDDING_ROWS, targets.shape, generator=generator), targets)

    feeds_back = bool(torch.rand((), generator=generator) < FIRST_PASS_SHARE)
    temperature = COLDEST + (HOTTEST - COLDEST) * torch.rand((rows, 1, 1), generator=generator)
    return Canvases(
        prompts,
        torch.arange(width) >= begin,
        targets,
        replaced(level),
        replaced(noisier),
        temperature if feeds_back else None,
    )


def noise_levels(rows: int, generator: torch.Generator) -> Tensor:
    """Return the probability that each token is replaced, float [row, canvas].

    One level for the whole canvas, or one that rises from left to right as in a canvas that is
    settled from its beginning; some canvases are all random.
    """
    # More low levels than high ones: that is where sums are worked out.
    even = torch.rand((rows, 1), generator=generator).pow(1.5).expand(rows, CANVAS_LENGTH)
    middle = -4 + (CANVAS_LENGTH + 8) * torch.rand((rows, 1), generator=generator)
    softness = 0.5 + 5 * torch.rand((rows, 1), generator=generator)
    rising = torch.sigmoid((torch.arange(CANVAS_LENGTH) - middle) / softness)
    kind = torch.rand((rows, 1), generator=generator)
    level = torch.where(kind < EVEN_SHARE, even, rising)
    return torch.where(kind > 1 - ALL_RANDOM_SHARE, 1.0, level)


def save_canvas_model(model: DiffusionGemmaForBlockDiffusion, recipe: Recipe, folder: Path) -> None:
    """Write the weights in bfloat16, the configuration and the generation settings."""
    exported = DiffusionGemmaForBlockDiffusion._from_config(canvas_configuration(recipe), dtype=torch.bfloat16)
    exported.load_state_dict({name: value.to(torch.bfloat16) for name, value in model.state_dict().items()})
    settings = copy.deepcopy(exported.generation_config)
    for name, value in {
        "max_new_tokens": 2 * CANVAS_LENGTH,
        "max_denoising_steps": 48,
        "sampler_config": EntropyBoundSamplerConfig(entropy_bound=0.1),
        "t_min": COLDEST,
        "t_max": HOTTEST,
        "stability_threshold": 1,
        "confidence_threshold": 0.005,
        "eos_token_id": EOS_ID,
        "pad_token_id": PAD_ID,
    }.items():
        setattr(settings, name, value)
    exported.generation_config = settings
    exported.save_pretrained(folder)

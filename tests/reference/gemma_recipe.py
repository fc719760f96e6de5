"""A tiny DiffusionGemma, and what transformers' own loop generates with it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from tokenizers import Tokenizer, models
from torch import nn
from transformers import (
    DiffusionGemmaConfig,
    DiffusionGemmaForBlockDiffusion,
    EntropyBoundSamplerConfig,
    PreTrainedTokenizerFast,
)

from ..helpers.tiny_configs import diffusion_gemma

Preset = Literal["converging", "chaotic"]
VOCABULARY, CANVAS, WINDOW = 64, 8, 6
SLIDING, FULL = "sliding_attention", "full_attention"


@dataclass(frozen=True)
class Settings:
    """How canvases are denoised; `eos_ids` end the answer with the canvas that holds one."""

    max_new_tokens: int = 24
    max_denoising_steps: int = 12
    entropy_bound: float = 0.5
    t_min: float = 0.4
    t_max: float = 0.8
    stability_threshold: int = 1
    confidence_threshold: float = 0.3
    eos_ids: tuple[int, ...] = ()


def make_model(preset: Preset, dtype: torch.dtype = torch.float64) -> DiffusionGemmaForBlockDiffusion:
    """A tiny network whose encoder and decoder differ in their layer scalars; the weights lie on a coarse grid."""
    facts = diffusion_gemma((4, 2), False)
    ids = {"vocab_size": VOCABULARY, "pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2}
    facts["text_config"] |= ids | {"sliding_window": WINDOW, "initializer_range": 0.35}
    facts |= {"canvas_length": CANVAS, "image_token_id": 63, "boi_token_id": 62, "eoi_token_id": 61, "initializer_range": 0.35}
    config = DiffusionGemmaConfig(**facts | {"architectures": None})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = DiffusionGemmaForBlockDiffusion._from_config(config, attn_implementation="sdpa").eval()
    shape_weights(model, preset)
    model.set_experts_implementation("eager")
    nn.Module.to(model.requires_grad_(False), dtype)
    return model


def shape_weights(model: DiffusionGemmaForBlockDiffusion, preset: Preset) -> None:
    """Make the network settle down if it is to, give every layer scalars of its own, and drop low bits of the weights."""
    decoder: Any = model.model.decoder
    encoder: Any = model.model.encoder.language_model
    with torch.no_grad():
        if preset == "converging":
            for layer in decoder.layers:
                layer.post_attention_layernorm.weight.fill_(0.3)
                layer.post_feedforward_layernorm.weight.fill_(0.3)
            decoder.self_conditioning.down_proj.weight.mul_(0.3)
        for parameter in model.parameters():
            parameter.copy_((parameter * 1024).round() / 1024)
        for number, (own, other) in enumerate(zip(decoder.layers, encoder.layers, strict=True)):
            own.layer_scalar.fill_(1.0 - 0.0625 * number)
            other.layer_scalar.fill_(0.75 + 0.125 * number)


def write_folder(model: DiffusionGemmaForBlockDiffusion, folder: Path) -> Path:
    """A checkpoint folder of `model`, with a tokenizer of as many words as it has ids."""
    model.save_pretrained(folder)
    vocabulary = {"<pad>": 0, "<eos>": 1, "<bos>": 2} | {f"w{number}": number for number in range(3, VOCABULARY)}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>", bos_token="<bos>")
    tokenizer.save_pretrained(folder)
    return folder


def write_preset(preset: Preset, folder: Path) -> Path:
    """A checkpoint folder of a preset."""
    return write_folder(make_model(preset, torch.float32), folder)


def generate(model: DiffusionGemmaForBlockDiffusion, prompt: Sequence[int], seed: int, settings: Settings) -> list[int]:
    """The tokens after `prompt` that transformers generates: whole canvases, what follows an end-of-sequence included."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        output: Any = model.generate(
            torch.LongTensor([list(prompt)]),  # pyright: ignore[reportArgumentType]
            max_new_tokens=settings.max_new_tokens,
            max_denoising_steps=settings.max_denoising_steps,
            sampler_config=EntropyBoundSamplerConfig(entropy_bound=settings.entropy_bound),
            t_min=settings.t_min,
            t_max=settings.t_max,
            stability_threshold=settings.stability_threshold,
            confidence_threshold=settings.confidence_threshold,
            eos_token_id=list(settings.eos_ids) or None,
            pad_token_id=None,
        )
    return output.sequences[0, len(prompt) :].tolist()

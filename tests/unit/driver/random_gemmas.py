"""Small DiffusionGemma folders with random weights: restless ones, and ones whose canvases settle."""

from pathlib import Path

import torch
from tokenizers import Tokenizer, models
from transformers import (
    DiffusionGemmaConfig,
    DiffusionGemmaForBlockDiffusion,
    DiffusionGemmaTextConfig,
    Gemma4VisionConfig,
    PreTrainedTokenizerFast,
)
from transformers.models.diffusion_gemma.generation_diffusion_gemma import (
    DiffusionGemmaGenerationConfig,
    EntropyBoundSamplerConfig,
)

VOCABULARY, CANVAS, WINDOW = 64, 8, 6
PAD_ID, EOS_ID = 0, 1
BOUND, STEPS, CONFIDENCE = 0.5, 12, 0.3


def configuration() -> DiffusionGemmaConfig:
    """Four layers of two kinds, which differ in the size and number of their heads."""
    text = DiffusionGemmaTextConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=4,
        layer_types=["sliding_attention", "full_attention"] * 2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        global_head_dim=16,
        num_global_key_value_heads=1,
        sliding_window=WINDOW,
        max_position_embeddings=512,
        num_experts=4,
        top_k_experts=2,
        moe_intermediate_size=16,
        initializer_range=0.35,
        pad_token_id=PAD_ID,
        eos_token_id=EOS_ID,
        bos_token_id=2,
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
    tokens = {"image_token_id": 63, "boi_token_id": 62, "eoi_token_id": 61}
    return DiffusionGemmaConfig(text_config=text, vision_config=vision, canvas_length=CANVAS, initializer_range=0.35, **tokens)


def write_gemma(folder: Path, *, settles: bool, seed: int = 0) -> Path:
    """A checkpoint folder. Weights lie on a grid, so that every machine draws the same; scales of layers differ between
    encoder and decoder.
    """
    torch.manual_seed(seed)
    network = DiffusionGemmaForBlockDiffusion._from_config(configuration(), dtype=torch.float32)
    scales = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in network.named_parameters():
            if settles and name.endswith(("post_attention_layernorm.weight", "post_feedforward_layernorm.weight")):
                weight.fill_(0.3)
            if settles and "self_conditioning.down_proj" in name:
                weight.mul_(0.3)
            weight.copy_((weight * 1024).round() / 1024)
        for name, buffer in network.named_buffers():
            if name.endswith("layer_scalar"):
                buffer.copy_((torch.rand(1, generator=scales) * 512 + 768).round() / 1024)
    network.generation_config = DiffusionGemmaGenerationConfig(
        eos_token_id=[EOS_ID],
        max_denoising_steps=STEPS,
        confidence_threshold=CONFIDENCE,
        sampler_config=EntropyBoundSamplerConfig(entropy_bound=BOUND),
    )
    network.save_pretrained(folder)
    vocabulary = {"<pad>": PAD_ID, "<eos>": EOS_ID} | {f"w{number}": number for number in range(2, VOCABULARY)}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>", eos_token="<eos>")
    tokenizer.save_pretrained(folder)
    return folder

"""Small checkpoint folders with random weights."""

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

WORDS = 40
PAD_ID, MASK_ID, EOS_ID = 0, 1, 2
ROWS = 48  # of the embedding: more than the tokenizer knows
BLOCK = 4


def tiny_config(**own: Any) -> Qwen3Config:
    """A Qwen3 of two layers."""
    return Qwen3Config(
        vocab_size=ROWS,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        intermediate_size=48,
        tie_word_embeddings=False,
        max_position_embeddings=256,
        eos_token_id=EOS_ID,
        pad_token_id=PAD_ID,
        bos_token_id=None,
        **own,
    )


def save_tokenizer(folder: Path) -> None:
    """Write the files of a tokenizer of `WORDS` words."""
    vocabulary = {"<pad>": PAD_ID, "<mask>": MASK_ID, "<eos>": EOS_ID} | {f"w{number}": number for number in range(3, WORDS)}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>", mask_token="<mask>", eos_token="<eos>")
    tokenizer.save_pretrained(folder)


def write_checkpoint(folder: Path, *, head_shift: int = 0, window: int | None = None, seed: int = 0) -> Path:
    """A tiny network with random weights; with `window`, the second layer slides."""
    config = tiny_config(
        use_sliding_window=window is not None,
        sliding_window=window,
        layer_types=["full_attention", "sliding_attention" if window else "full_attention"],
        mask_token_id=MASK_ID,
        block_size=BLOCK,
        dlstep={
            "mask_token_id": MASK_ID,
            "block_size": BLOCK,
            "decoding_strategy": "multi_bd",
            "buffer_size": 3,
            "head_shift": head_shift,
            "accept_rule": "A",
        },
    )
    network = Qwen3ForCausalLM(config)
    generator = torch.Generator().manual_seed(seed)
    for parameter in network.parameters():
        if parameter.ndim == 2:
            torch.nn.init.normal_(parameter, std=0.35, generator=generator)
    network.save_pretrained(folder)
    save_tokenizer(folder)
    return folder

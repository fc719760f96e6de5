"""The tiny models as ordinary transformers models: their configuration, fresh weights, and
checkpoint folders."""

import json
import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import GenerationConfig, Qwen3Config, Qwen3ForCausalLM

from training.masks import LONGEST_CANVAS
from training.recipes import BLOCK_SIZE, BUFFER_SIZE, Recipe
from training.tokenizer import EMBEDDING_ROWS, EOS_ID, MASK_ID, PAD_ID, build_tokenizer


def configuration(recipe: Recipe) -> Qwen3Config:
    """Return a Qwen3 of 0.8 million parameters; the extra keys configure how a decoder decodes the
    model."""
    shape = {"mask_token_id": MASK_ID, "block_size": BLOCK_SIZE}
    rules = {
        "decoding_strategy": recipe.decoding_strategy,
        "training": recipe.training,
        "buffer_size": 1 if recipe.lesson in ("joint", "masked canvas") else BUFFER_SIZE,
        "head_shift": 1 if recipe.lesson == "shifted" else 0,
        "accept_rule": "A",
    }
    # Keys that Qwen3Config does not name but keeps.
    decoding: dict[str, Any] = {**shape, "dlstep": {**shape, **rules}}
    return Qwen3Config(
        vocab_size=EMBEDDING_ROWS,
        hidden_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        intermediate_size=384,
        tie_word_embeddings=True,
        max_position_embeddings=512,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        bos_token_id=None,
        eos_token_id=EOS_ID,
        pad_token_id=PAD_ID,
        use_cache=False,
        **decoding,
    )


def fresh_model(recipe: Recipe, seed: int) -> Qwen3ForCausalLM:
    """Return a model with new float32 weights drawn from `seed`; the residual branches start at
    zero."""
    model = Qwen3ForCausalLM._from_config(configuration(recipe), attn_implementation="sdpa", dtype=torch.float32)
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1:
            nn.init.ones_(parameter)
        elif "embed_tokens" in name:
            nn.init.normal_(parameter, std=0.05, generator=generator)
        elif name.endswith(("o_proj.weight", "down_proj.weight")):
            nn.init.zeros_(parameter)
        else:
            nn.init.normal_(parameter, std=1 / math.sqrt(parameter.shape[1]), generator=generator)
    return model


def load_model(folder: Path) -> Qwen3ForCausalLM:
    """Load a checkpoint folder's model in float32, ready for further training."""
    return Qwen3ForCausalLM.from_pretrained(folder, attn_implementation="sdpa", dtype=torch.float32)


def logits_at(model: Qwen3ForCausalLM, inputs: Tensor, positions: Tensor, mask: Tensor, predicted: Tensor) -> Tensor:
    """Return the logits [n, vocabulary] of the `n` places where `predicted` [row, width] holds, row
    by row.

    `inputs` are ids [row, width] or embeddings [row, width, channel].
    """
    read = {"inputs_embeds": inputs} if inputs.is_floating_point() else {"input_ids": inputs}
    hidden = model.model(**read, position_ids=positions, attention_mask=mask, use_cache=False)
    return model.lm_head(hidden.last_hidden_state[predicted])


def soft_embeddings(model: Qwen3ForCausalLM, ids: Tensor, probability: Tensor) -> Tensor:
    """Return embeddings [row, width, channel] of tokens with a `probability` [row, width], 1 for
    certain ones.

    A blend of the token's and the mask's embedding, as long as the two are on average.
    """
    embedding = model.model.embed_tokens
    share = probability[..., None]
    token, mask = embedding(ids), embedding.weight[MASK_ID]
    blend = share * token + (1 - share) * mask
    length = share * token.norm(dim=-1, keepdim=True) + (1 - share) * mask.norm()
    # A sure token passes as it is: no rounding, and its gradient is the plain lookup's.
    return torch.where(share < 1, blend * (length / blend.norm(dim=-1, keepdim=True).clamp(min=1e-6)), token)


def save_checkpoint(model: Qwen3ForCausalLM, recipe: Recipe, folder: Path) -> None:
    """Write the folder that `AutoModelForCausalLM` and `AutoTokenizer` load: bfloat16 weights, the
    head tied."""
    exported = Qwen3ForCausalLM._from_config(configuration(recipe), dtype=torch.bfloat16)
    exported.load_state_dict({name: value.to(torch.bfloat16) for name, value in model.state_dict().items()})
    # Longer canvases than those of the training often get an empty answer.
    settings = {"max_new_tokens": LONGEST_CANVAS} if recipe.lesson == "masked canvas" else {}
    exported.generation_config = GenerationConfig(eos_token_id=EOS_ID, pad_token_id=PAD_ID, use_cache=False, **settings)
    exported.save_pretrained(folder)
    save_tokenizer(folder)


def save_tokenizer(folder: Path) -> None:
    """Write the tokenizer's files."""
    build_tokenizer().save_pretrained(folder)
    # The class's long-standing name, which older releases of transformers know as well.
    settings_path = folder / "tokenizer_config.json"
    settings = json.loads(settings_path.read_text(encoding="utf-8"))
    settings["tokenizer_class"] = "PreTrainedTokenizerFast"
    settings_path.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")

"""Tiny random networks, and what a reference loop asks of one: logits of plain transformers forwards.

Ids below `WORDS` are known to the tokenizer, the network embeds `ROWS`. A proposal is never the mask and never an id that the
tokenizer does not know.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache, PreTrainedModel, Qwen3ForCausalLM

from dlstep.models.transformers_internals import cache_argument

from ..helpers.files import edit
from ..helpers.random_checkpoints import EOS_ID as EOS, MASK_ID as MASK, ROWS, WORDS, save_tokenizer, tiny_config

NEVER = -1e4  # the bias of an id that is not proposed

# Keys and values of some positions, layer by layer: tensors of shape [1, heads, positions, head size].
Stored = list[tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Proposal:
    """A row's answer for a position: its best allowed id, and the probability of that id among the allowed ones."""

    token: int
    probability: float


def before_end(tokens: Sequence[int]) -> list[int] | None:
    """The tokens before the first end of sequence; None if there is none."""
    return list(tokens[: tokens.index(EOS)]) if EOS in tokens else None


def allowed(row: Tensor) -> Tensor:
    """A row of logits in double precision, without the ids that are never proposed."""
    logits = row[:WORDS].double().clone()
    logits[MASK] = -math.inf
    return logits


class Dense:
    """A network that computes everything anew. Row p of what it returns predicts position p.

    `smallest` is the least distance of any decision so far to the opposite one: what rounding may not reach.
    """

    def __init__(self, network: PreTrainedModel, shift: int = 0) -> None:
        self.network, self.shift = network, shift
        self.smallest = math.inf

    @property
    def embedding(self) -> Tensor:
        """The rows that ids are fed as."""
        return self.network.get_input_embeddings().weight.detach()

    def predict(self, tokens: Sequence[int], group: Callable[[int], int], inputs: Tensor | None = None) -> Tensor:
        """Logits of all positions, position i seeing j where `group(j) <= group(i)`; `inputs` replace the embeddings."""
        groups = torch.tensor([group(position) for position in range(len(tokens))])
        sees = groups[None, :] <= groups[:, None]
        with torch.inference_mode():
            what = {"input_ids": torch.tensor([list(tokens)])} if inputs is None else {"inputs_embeds": inputs[None]}
            logits = self.network(**what, attention_mask=sees[None, None], use_cache=False).logits[0]
        return logits.roll(self.shift, 0)

    def forward(self, tokens: Sequence[int], start: int, past: Stored, sees: Tensor | None = None) -> tuple[Tensor, Stored]:
        """Logits of the rows of `tokens` from position `start` on (not rolled), and their own keys and values.

        They see all of `past`, whose keys know their positions, and each other where `sees` says so.
        """
        cache = DynamicCache(config=self.network.config)
        for layer, (keys, values) in enumerate(past):
            cache.update(keys, values, layer)
        count, before = len(tokens), past[0][0].shape[2] if past else 0
        own = torch.ones(count, count, dtype=torch.bool) if sees is None else sees
        mask = torch.cat((torch.ones(count, before, dtype=torch.bool), own), 1)
        with torch.inference_mode():
            logits = self.network(
                input_ids=torch.tensor([list(tokens)]),
                position_ids=torch.arange(start, start + count)[None],
                attention_mask=mask[None, None],
                **{cache_argument(self.network): cache},
                use_cache=True,
            ).logits[0]
        layers: Any = cache.layers
        return logits, [(layer.keys[:, :, before:], layer.values[:, :, before:]) for layer in layers]

    def propose(self, row: Tensor) -> Proposal:
        """The proposal of a row of logits."""
        chances = self.chances(row)
        best, second = allowed(row).topk(2).values.tolist()
        self.note(best - second)
        token = chances.index(max(chances))
        return Proposal(token, chances[token])

    def chances(self, row: Tensor) -> list[float]:
        """The probability of each id among the allowed ones."""
        return allowed(row).softmax(0).tolist()

    def note(self, gap: float) -> None:
        """Remember how far a decision was from the opposite one."""
        self.smallest = min(self.smallest, abs(gap))

    def note_best(self, probabilities: Sequence[float]) -> None:
        """Remember how far the largest was from being another one."""
        ordered = sorted(probabilities, reverse=True)
        if len(ordered) > 1:
            self.note(ordered[0] - ordered[1])


def make_network(seed: int, settle: float = 0.0, sharp: float = 1.0) -> Qwen3ForCausalLM:
    """A random Qwen3 of two layers.

    The larger `settle`, the more a token predicts itself, so that edits die out; `sharp` scales the logits.
    """
    network = Qwen3ForCausalLM(tiny_config()).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            spread, centre = (0.35, 0.0) if parameter.ndim == 2 else (0.2, 1.0)
            spread *= 2.0 if "embed" in name or "self_attn" in name else 1.0  # what is around a token matters
            parameter.normal_(centre, spread, generator=generator)
        embedding, head = network.model.embed_tokens.weight, network.lm_head.weight
        head.copy_(sharp * (head + settle * embedding))
    return network.requires_grad_(False)


def write_folder(network: Qwen3ForCausalLM, folder: Path) -> Path:
    """A checkpoint folder of `network`."""
    network.save_pretrained(folder)
    edit(folder / "config.json", dlstep={"head_shift": 0})
    save_tokenizer(folder)
    return folder


class BiasedHead(nn.Module):
    """A head that may like the end of sequence more, or less, than its weights say."""

    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        self.weight, self.bias = head.weight, torch.zeros(ROWS)

    def forward(self, hidden: Tensor) -> Tensor:
        return nn.functional.linear(hidden, self.weight, self.bias)

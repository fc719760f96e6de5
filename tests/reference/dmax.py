"""DMax: tokens are predicted anew in every forward, and fed as blends of what they may be and of the mask."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .models import MASK, WORDS, Dense, Proposal
from .window import Block, BlockRules, open_window

CONFIDENT = 0.9


@dataclass(frozen=True, kw_only=True)
class Rules(BlockRules):
    """Hyperparameters of the blocks, the rule and the merge."""

    token_merge_mode: str = "dmax_topk"
    token_merge_top_k: int = 1
    token_merge_renormalize: bool = True
    token_merge_weight: float = 1.0


@dataclass(frozen=True)
class Soft:
    """The ids that a token may be, and their probabilities; the rest is the mask's."""

    ids: list[int]
    probabilities: list[float]


@dataclass(frozen=True)
class Verdict:
    """The block after a forward."""

    tokens: list[int]
    ready: bool
    ratio: float


def uniform(
    tokens: Sequence[int], editable: Sequence[int], proposals: Sequence[Proposal], steps: int, threshold: float
) -> Verdict:
    """A block after its forward number `steps`, counted from 1.

    Every token is replaced by its proposal; masks are filled from the left while they are confident, at least one of them.
    """
    masked = [i for i in editable if tokens[i] == MASK]
    filled = [i for i in editable if tokens[i] != MASK]
    written = list(tokens)
    for i in filled:
        written[i] = proposals[i].token
    for i in masked:
        if i != masked[0] and proposals[i].probability < threshold:
            break
        written[i] = proposals[i].token
        if proposals[i].probability < threshold:
            break
    unchanged = all(written[i] == tokens[i] for i in editable)
    confident = all(proposals[i].probability >= CONFIDENT for i in editable)
    ratio = sum(written[i] == tokens[i] for i in filled) / len(filled) if filled else 1.0
    if steps >= len(tokens):
        for i in editable:
            written[i] = proposals[i].token
        return Verdict(written, True, ratio)
    complete = all(written[i] != MASK for i in editable)
    return Verdict(written, complete and (unchanged or confident), ratio)


def merged_embedding(embedding: Tensor, soft: Soft, rules: Rules, token: int) -> Tensor:
    """The row that position with `token` is fed as, in float32, rounded once to the dtype of `embedding`."""
    wide = embedding.float()
    parts = wide[soft.ids]
    shares = torch.tensor(soft.probabilities)[:, None]
    if rules.token_merge_mode == "iter_smooth_topk":
        return (wide[token] + rules.token_merge_weight * (shares * parts).sum(0)).to(embedding.dtype)
    rest = max(0.0, 1.0 - sum(soft.probabilities))
    blend = (shares * parts).sum(0) + rest * wide[MASK]
    if rules.token_merge_renormalize:
        norm = (shares[:, 0] * parts.norm(dim=1)).sum() + rest * wide[MASK].norm()
        blend = blend * norm / blend.norm().clamp(min=1e-12)
    return blend.to(embedding.dtype)


def soft_token(network: Dense, row: Tensor, proposal: Proposal, rules: Rules) -> Soft:
    """The input of the next forward at the position that `row` predicted."""
    if rules.token_merge_mode == "dmax_topk":
        return Soft([proposal.token], [proposal.probability])
    chances = network.chances(row)
    ordered = sorted(range(WORDS), key=lambda token: (-chances[token], token))
    best, next_best = ordered[: rules.token_merge_top_k], ordered[rules.token_merge_top_k]
    network.note(chances[best[-1]] - chances[next_best])
    return Soft(best, [chances[token] for token in best])


def decode(network: Dense, prompt: Sequence[int], limit: int, rules: Rules, pins: Mapping[int, int] | None = None) -> list[int]:
    """The answer to `prompt`, whose positions end before `limit`; `pins` are the tokens of pinned positions."""
    size = rules.block_size
    window = open_window(prompt, limit, len(prompt) // size * size, rules, pins)
    soft: dict[int, Soft] = {}

    def forward() -> None:
        text, embedding = window.text, network.embedding
        inputs = embedding[torch.tensor(text)].clone()
        for position, descriptor in soft.items():
            if position >= len(window.sealed):
                inputs[position] = merged_embedding(embedding, descriptor, rules, text[position])
        logits = network.predict(text, lambda position: position // size, inputs)
        soft.clear()
        for block in window.blocks:
            if not block.editable:
                continue
            block.steps += 1
            rows = logits[block.start : block.end]
            proposals = block.proposals(network, rows)
            for offset in block.offsets:
                network.note(proposals[offset].probability - rules.accept_threshold)
                network.note(proposals[offset].probability - CONFIDENT)
            verdict = uniform(block.tokens, block.offsets, proposals, block.steps, rules.accept_threshold)
            block.tokens, block.ready, block.ratio = verdict.tokens, verdict.ready, verdict.ratio
            if rules.token_merge_weight > 0:
                soft.update(soft_block(network, block, rows, proposals, rules))

    return window.decode(forward)


def soft_block(network: Dense, block: Block, rows: Tensor, proposals: Sequence[Proposal], rules: Rules) -> dict[int, Soft]:
    """The soft tokens of a block: of every position of the answer that holds a token."""
    known = [i for i in block.offsets if block.tokens[i] != MASK]
    return {block.start + i: soft_token(network, rows[i], proposals[i], rules) for i in known}

"""DreamOn as its authors decode it: one list of ids between a prefix and a suffix, computed anew in each forward pass.

Their evaluation (eval/generator.py) unmasks one position per pass and expands before it deletes; their released loop, read in
public copies, unmasks `count` positions and deletes before it expands. Both delete with the masks that the pass was fed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from .causal import Draws
from .models import EOS, MASK, Dense, allowed


@dataclass(frozen=True)
class Rules:
    """The authors' settings; `most` is their max_gen_len, `initial` their min_gen_len, `count` their number_transfer_tokens."""

    expand: int
    initial: int
    most: int
    budget: int
    to_right: bool = True
    count: int = 1
    algorithm: Literal["entropy", "maskgit_plus", "topk_margin"] = "entropy"
    top_p: float = 1.0


def tempered(row: Tensor, temperature: float, top_p: float) -> Tensor:
    """Logits after temperature and nucleus: the first ids whose probabilities together exceed `top_p`."""
    logits = row / (temperature or 1.0)
    if top_p < 1.0:
        ordered, ids = logits.sort(descending=True, stable=True)
        before = ordered.softmax(0).cumsum(0).roll(1)
        before[0] = 0.0
        logits[ids[before > top_p]] = -torch.inf
    return logits


def confidence(logits: Tensor, token: int, algorithm: str) -> float:
    """What the authors rank positions by."""
    chances = logits.softmax(0)
    if algorithm == "entropy":
        return float(torch.special.xlogy(chances, chances).sum())
    best, second = chances.topk(2).values.tolist()
    return best - second if algorithm == "topk_margin" else float(chances[token])


def removed(x: list[int], masked: Sequence[bool], rules: Rules, start: int) -> list[int]:
    """The places of a list that hold an end of sequence and were masked when the pass was fed."""
    if rules.to_right and EOS in x[start:]:
        first = x.index(EOS, start)
        x[first:] = [EOS if was else token for token, was in zip(x[first:], masked[first:], strict=True)]
    return [place for place, (token, was) in enumerate(zip(x, masked, strict=False)) if token == EOS and was]


def decode(
    network: Dense,
    prefix: Sequence[int],
    suffix: Sequence[int],
    rules: Rules,
    draws: Draws,
    *,
    released: bool,
    start: int = 0,
) -> tuple[list[int], int] | None:
    """The text between prefix and suffix, and the number of forward passes.

    Tokens before `start` are only fed; in the authors' code, they may expand, and an end deletes all masks after it.
    None if several positions expand at once and the room or the budget does not suffice: the authors' code then cuts off the
    suffix, or goes on expanding.
    """
    length, budget, passes = min(rules.initial, rules.most), rules.budget, 0
    x = [*prefix, *[MASK] * length, *suffix]
    while MASK in x:
        masked = [token == MASK for token in x]
        places = [place for place, was in enumerate(masked) if was]
        rows = network.predict(x, lambda position: 0)
        drawn: dict[int, tuple[float, int]] = {}
        for place in places:
            row = allowed(rows[place])
            if length == rules.most or budget == 0:
                row[rules.expand] -= 1e9
            row = tempered(row, draws.temperature, rules.top_p)
            token = draws.sample(row * (draws.temperature or 1.0), place, passes)
            drawn[place] = confidence(row, token, rules.algorithm), token
        passes += 1
        ranked = sorted(places, key=lambda place: -drawn[place][0])
        if rules.count < len(ranked):
            network.note(drawn[ranked[rules.count - 1]][0] - drawn[ranked[rules.count]][0])
        for place in ranked[: rules.count]:
            x[place] = drawn[place][1]
        if not released:
            removed(x, masked, rules, start)  # only writes ends of sequence over the masks to the right
        for deleting in (True, False) if released else (False, True):
            if deleting:
                for place in reversed(removed(x, masked, rules if released else with_no_padding(rules), start)):
                    del x[place]
                    length -= 1
                continue
            growing = [place for place, token in enumerate(x) if token == rules.expand and place >= start]
            if len(growing) > min(rules.most - length, budget):
                return None
            for place in reversed(growing):
                x[place : place + 1] = [MASK, MASK]
                length, budget = length + 1, budget - 1
    return x[len(prefix) : len(prefix) + length], passes


def with_no_padding(rules: Rules) -> Rules:
    """The rules of the evaluation after its ends of sequence were written to the right."""
    return Rules(rules.expand, rules.initial, rules.most, rules.budget, to_right=False)

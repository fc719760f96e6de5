"""Decisions of the authors' released code, written anew from reading it, with lists and for one request at temperature 0.

Each function is named after the repository whose behaviour it has, at the commit that is given. Where `torch.topk` leaves the
order of equal values open, it is that of the rules: the lowest position is unmasked or kept, or the lowest is masked (ReMDM).
"""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import pairwise

from .models import MASK

Chances = list[float]  # the probability of each id
Network = Callable[[int, Sequence[int]], Chances]  # of a position and the canvas


def best_first(scores: dict[int, float], count: int) -> list[int]:
    """The `count` positions with the largest scores."""
    return sorted(scores, key=lambda position: (-scores[position], position))[:count]


def even_shares(size: int, steps: int) -> list[int]:
    """LLaDA and SDAR: `size // steps` in each forward, one more in the first `size % steps`."""
    return [size // steps + (forward < size % steps) for forward in range(steps)]


def dream_shares(size: int, steps: int) -> list[int]:
    """CoDA (SalesforceAIResearch/CoDA fa1d505) and Dream: what forwards unmask, 1 - s/t of what is left, without those of 0."""
    times = [1 + forward * (0.001 - 1) / steps for forward in range(steps)] + [0.0]
    shares: list[int] = []
    for before, after in pairwise(times):
        shares.append(math.floor((size - sum(shares)) * (1 - after / before)))
    return [share for share in shares if share]


def maskgit_shares(size: int, steps: int) -> list[int]:
    """MDPO (autonomousvision/mdpo e6ae439), mode linear: what is left masked is rounded down. Its floats are fractions here."""
    left = [math.floor(size * (1 - Fraction(forward, steps))) for forward in range(steps + 1)]
    return [before - after for before, after in pairwise(left)]


def mdpo(network: Network, prompt: list[int], length: int, size: int, steps: int) -> tuple[list[int], int]:
    """MDPO's decode with running confidences (`rcr=True`): the answer, and the forwards before a full block."""
    canvas, forwards, sure = [*prompt, *[MASK] * length], 0, {}
    for begin in range(len(prompt), len(canvas), size):
        end = min(begin + size, len(canvas))
        shares = maskgit_shares(end - begin, steps)
        for number in range(steps):
            forwards += MASK in canvas[:end]
            chances = {position: network(position, canvas) for position in range(end) if canvas[position] == MASK}
            for position, row in chances.items():
                canvas[position], sure[position] = top_id(row), max(row)
            kept = best_first(sure, len(sure) - sum(shares[number + 1 :]))
            for position in sure:
                canvas[position] = canvas[position] if position in kept else MASK
    return canvas[len(prompt) :], forwards


def p2(network: Network, prompt: list[int], length: int, steps: int) -> tuple[list[int], int]:
    """Open-dLLM (pengzhangzhi/Open-dLLM 8b38787), alg="p2": the answer and the number of forwards. Its floats are fractions."""
    canvas, forwards, answer = [*prompt, *[MASK] * length], 0, range(len(prompt), len(prompt) + length)
    for number in range(steps):
        if MASK not in canvas:
            break
        forwards += 1
        chances = {position: network(position, canvas) for position in answer}
        count = math.floor(length * (1 - Fraction(number + 1, steps)))
        kept = best_first({position: max(row) for position, row in chances.items()}, length - count)
        for position in answer:
            if position not in kept:
                canvas[position] = MASK
            elif canvas[position] == MASK:
                canvas[position] = top_id(chances[position])
    return canvas[len(prompt) :], forwards


def remdm_llada(network: Network, prompt: list[int], length: int, size: int, count: int) -> tuple[list[int], int]:
    """ReMDM for LLaDA (guanghanwang/ReMDM-LLaDA 169c9b9), one position a forward: the answer and the number of forwards."""
    canvas, forwards = [*prompt, *[MASK] * length], 0
    for begin in range(len(prompt), len(canvas), size):
        end, sure = begin + size, {}
        again = range(int(size / 8 * 7), int(size / 8 * 7) + size)
        for number in range(2 * size):
            if number in again:
                for position in best_first({position: -chance for position, chance in sure.items()}, count):
                    canvas[position] = MASK
                    del sure[position]
            chances = {position: network(position, canvas) for position in range(begin, end) if canvas[position] == MASK}
            confidence = {position: max(row) for position, row in chances.items()}
            for position in best_first(confidence, count if number in again else 1):
                canvas[position], sure[position] = top_id(chances[position]), confidence[position]
            forwards += 1
    return canvas[len(prompt) :], forwards


def top_id(chances: Chances) -> int:
    """The most probable id, of equally probable ones the highest, as the networks of these tests answer."""
    return max(range(len(chances)), key=lambda token: (chances[token], token))


def entropy_bound_spaced(entropies: dict[int, float], bound: float, gap: int) -> list[int]:
    """DUS (omerlux/DUS abd7723): the entropy bound's positions, the least uncertain first, that are `gap` apart."""
    line = best_first({position: -entropy for position, entropy in entropies.items()}, len(entropies))
    within = [number for number in range(1, len(line) + 1) if sum(entropies[p] for p in line[: number - 1]) <= bound]
    chosen: list[int] = []
    for position in line[: max(1, len(within))]:
        if gap <= 1 or all(abs(position - other) >= gap for other in chosen):
            chosen.append(position)
    return sorted(chosen)

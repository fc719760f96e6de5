"""Rules that look at more than a block against their slow forms: moving windows, early commits, blocks of chosen sizes."""

import math
from collections.abc import Callable, Sequence
from random import Random

from dlstep.core import Choice, Rule
from dlstep.rules.ada_block import AdaBlock
from dlstep.rules.early_commit import EarlyCommit
from dlstep.rules.quota import Quota
from dlstep.rules.sliding import Sliding
from dlstep.rules.threshold import Threshold

from .models import MASK, before_end
from .zoo import Memory, Network, Slow, View, ranked

Take = Callable[[View, Sequence[int], int], None]
THRESHOLDS = (0.0, 0.3, 0.5, 0.6, 0.9, 1.0)


def some_inner(random: Random) -> tuple[Choice, Take]:
    """A rule with the function that takes positions of a window, given its masked ones and how many are shared out."""
    if random.random() < 0.6:
        accept = random.choice(THRESHOLDS)

        def sure(view: View, offered: Sequence[int], size: int) -> None:
            chosen = [position for position in offered if view.confidence(position) >= accept]
            view.unmask(chosen or view.top(1, view.confidence, offered))

        return Threshold(accept, inclusive=True), sure
    steps = random.choice((None, 1, 2, 3))

    def share(view: View, offered: Sequence[int], size: int) -> None:
        due, over = divmod(size, steps or size)
        view.unmask(view.top(max(1, due + (view.number < over)), view.confidence, offered))

    return Quota(steps), share


def sliding(random: Random) -> tuple[Rule, Slow]:
    inner, unmask = some_inner(random)
    width, most = random.choice((1, 2, 3, 5, 8, 99)), random.choice((None, None, 1, 2, 4, 9))

    def slow(view: View) -> None:
        begin, stop = view.positions[0], view.positions[-1] + 1
        first, end = view.memory.get("window", (begin, begin))
        while view.tokens[first] != MASK:
            first += 1
        while sum(view.tokens[p] == MASK for p in range(first, end)) < width and end < min(stop, first + (most or stop)):
            end += 1
        view.memory["window"] = (first, end)
        offered = [position for position in view.masked if position < end]
        unmask(view, offered, len(offered))

    return Sliding(width, most, inner=inner), slow


GAPS = (None, 0.0, 0.5, math.log(0.6 / 0.4), 1.0, 1.5, math.log(9), 3.0, 9.0)


def early_commit(random: Random) -> tuple[Rule, Slow]:
    gaps = [random.choice(GAPS) for _ in range(3)]
    steps, size = random.choice((None, 1, 2, 3, 9)), random.choice((1, 2, 3, 5, 32))
    region = random.choice(((), (), (0, 3), (2, 2), (4, 50)))

    def slow(view: View) -> None:
        begin, answer = view.positions[0], len(view.positions)
        parts = [view.positions[at : at + size] for at in range(0, answer, size)]
        total = sum(min(len(part), steps or len(part)) for part in parts)
        share_done = (view.number + 1) / total
        gap = gaps[0] if share_done < 0.33 else gaps[1] if share_done < 0.67 else gaps[2]
        chosen = [p for p in view.positions if not region or region[0] <= p - begin < region[0] + region[1]]
        if gap is not None and chosen and mean_gap(view, chosen) >= gap:
            view.unmask(view.masked)
            return
        part = next(part for part in parts if any(view.tokens[p] == MASK for p in part))
        done = view.memory[part[0]] = view.memory.get(part[0], 0) + 1
        due, over = divmod(len(part), steps or len(part))
        masked = [p for p in part if view.tokens[p] == MASK]
        view.unmask(view.top(max(1, due + (done - 1 < over)), view.confidence, masked))

    return EarlyCommit(*gaps, region, size, Quota(steps)), slow


def mean_gap(view: View, positions: Sequence[int]) -> float:
    """The mean logarithm of how many times more probable the best id is than the second."""
    gaps: list[float] = []
    for position in positions:
        second, first = sorted(view.chances[position])[-2:]
        gaps.append(math.log(first / second) if second else math.inf)
    return math.fsum(gaps) / len(gaps)


def decode_adaptively(
    network: Network,
    prompt: Sequence[int],
    limit: int,
    size: int,
    rule: AdaBlock,
    unmask: Take,
) -> tuple[list[int], int]:
    """The answer and the number of forwards, where the first forward of a block says where it ends."""
    length, forwards, begin = len(prompt), 0, len(prompt)
    canvas = [*prompt, *[MASK] * (limit - length)]
    while begin < limit:
        memory, end = Memory(), 0
        while memory.number == 0 or MASK in canvas[begin:end]:
            chances = {position: network.chances(position, canvas) for position in range(begin, limit)}
            if memory.number == 0:
                end = found_end(chances, begin, limit, math.floor(rule.look_ahead * (limit - length)), size, rule)
            block = list(range(begin, end))
            view = View(canvas, block, chances, memory.number, True, 0, len(block), memory.own, memory.sure)
            unmask(view, view.masked, len(block))
            memory.number += 1
            forwards += 1
            stands = canvas.index(MASK) if MASK in canvas else limit
            if (answer := before_end(canvas[length:stands])) is not None:
                return answer, forwards
        begin = end
    return canvas[length:], forwards


def found_end(chances: dict[int, list[float]], begin: int, limit: int, searched: int, size: int, rule: AdaBlock) -> int:
    """The first position after the block."""
    likely, end = -1.0, min(begin + size, limit)
    for position in range(begin, min(begin + searched, limit)):
        if ranked(chances[position])[0] in rule.delimiters and max(chances[position]) > likely:
            likely = max(chances[position])
            if likely >= rule.delimiter_threshold:
                end = position + 1
    return end

"""Rules that remask, and the rule that remembers, against their slow loops, on grids and on canvases."""

import math
from random import Random

from dlstep.core import Rule
from dlstep.rules.credit import Credit
from dlstep.rules.remdm import ReMDM
from dlstep.rules.running_confidence import RunningConfidence
from dlstep.rules.saber import Saber

from .authors_code import even_shares, maskgit_shares
from .models import MASK
from .zoo import Make, Slow, View, ranked


def running_confidence(random: Random) -> tuple[Rule, Slow]:
    steps, current = random.choice((None, 1, 2, 3, 5, 9)), random.random() < 0.5

    def slow(view: View) -> None:
        later = sum(maskgit_shares(len(view.positions), steps or len(view.positions))[view.number + 1 :])
        view.unmask(view.masked)
        score = view.confidence if current else view.sure.__getitem__
        kept = view.top(len(view.positions) - later, score, view.positions)
        view.mask([position for position in view.positions if position not in kept])

    return RunningConfidence(steps, confidence="current" if current else "running"), slow


def saber(random: Random) -> tuple[Rule, Slow]:
    n = random.choice((1, 2, 3, 9, 20))

    def slow(view: View) -> None:
        confidences: dict[int, float] = view.memory.setdefault("confidences", {})
        before: dict[int, float] = view.memory.setdefault("before", dict.fromkeys(view.positions, 0.0))
        threshold = math.fsum(confidences.values()) / len(confidences) if confidences else 1
        chosen = [position for position in view.masked if view.confidence(position) > threshold]
        if len(chosen) < n:
            chosen = view.top(n, view.confidence)
        f = max(n, len(chosen))
        view.unmask(chosen)
        confidences.update({position: view.confidence(position) for position in chosen})
        if view.masked:
            gains = {position: view.confidence(position) - before[position] for position in view.positions}
            unmasked = [position for position in view.positions if view.tokens[position] != MASK]
            k = min(max(n // 2, math.ceil(f / 8)), f - 1)
            view.mask(sorted(unmasked, key=lambda position: (gains[position], position))[:k])
        view.memory["before"] = {position: view.confidence(position) for position in view.positions}

    return Saber(n), slow


def remdm(random: Random) -> tuple[Rule, Slow]:
    steps, loops, k = random.choice((None, 1, 2, 3, 9)), random.choice((None, 0, 1, 3)), random.choice((None, 1, 2, 9))

    def slow(view: View) -> None:
        # Forwards that would take nothing are left out.
        usual = [("usual", share) for share in even_shares(len(view.positions), steps or len(view.positions)) if share]
        early = max(1, math.floor(len(usual) * 7 / 8))
        more = len(usual) if loops is None else loops
        program = [*usual[:early], *[("again", k or 1)] * more, *usual[early:], ("end", 0)]
        kind, count = program[view.number]
        view.unmask(view.top(view.memory["masked"] if kind == "again" else count, view.confidence))
        kind, count = program[view.number + 1]
        if kind == "again":
            unmasked = [position for position in view.positions if view.tokens[position] != MASK]
            unsure = sorted(unmasked, key=lambda position: (view.sure[position], position))[:count]
            view.memory["masked"] = len(unsure)
            view.mask(unsure)

    return ReMDM(steps, remask_forwards=loops, remask_count=k), slow


def credit(random: Random) -> tuple[Rule, Slow]:
    accept, inclusive = random.choice((0.0, 0.5, 0.6, 0.9, 1.0)), random.random() < 0.5
    alpha, gamma, beta = random.choice((0.0, 0.7, 3.0)), random.choice((0.0, 0.2, 1.0)), random.choice((0.0, 0.5, 0.8, 1.0))

    def slow(view: View) -> None:
        credits: dict[int, dict[int, float]] = view.memory.setdefault("credits", {})
        found: dict[int, tuple[int, float]] = {}
        for position in view.masked:
            chances, order = view.chances[position], ranked(view.chances[position])
            mine = {token: amount * beta for token, amount in credits.get(position, {}).items()}
            mine[order[0]] = mine.get(order[0], 0.0) + chances[order[0]] ** gamma
            credits[position] = mine
            scores = [
                chance * (1 + mine.get(token, 0.0)) ** alpha if token in order[:8] else chance
                for token, chance in enumerate(chances)
            ]
            token = max(order, key=lambda token: scores[token])
            found[position] = (token, scores[token] / math.fsum(scores))
        chosen = [p for p in found if found[p][1] > accept or (inclusive and found[p][1] == accept)]
        for position in chosen or (view.top(1, lambda position: found[position][1]) if view.must else []):
            view.tokens[position], view.sure[position] = found[position]

    rule = Credit(accept, inclusive=inclusive, credit_weight=alpha, credit_power=gamma, credit_decay=beta)
    return rule, slow


MAKES: list[Make] = [running_confidence, saber, remdm, credit]

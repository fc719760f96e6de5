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

CHOOSE, REMASK = 3, 4


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


def llada(random: Random) -> tuple[Rule, Slow]:
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

    return ReMDM("llada", steps, remask_forwards=loops, remask_count=k), slow


class Walk:
    """The sampler's forms, step by step, as the paper has them."""

    def __init__(self, rule: ReMDM, t_on: float, t_off: float, alpha_on: float, eta: float) -> None:
        self.form, self.steps, self.t_on, self.t_off, self.alpha_on = rule.variant, rule.steps_per_block, t_on, t_off, alpha_on
        self.eta = eta

    def alpha(self, step: int, total: int) -> float:
        """The share of tokens at a step."""
        time = 1 - step / total
        if self.form != "loop":
            return step / total
        if time > self.t_on:
            return min(self.alpha_on, (1 - time) * self.alpha_on / (1 - self.t_on))
        return self.alpha_on if time > self.t_off else 1 - time * (1 - self.alpha_on) / self.t_off

    def chances(self, view: View, step: int) -> tuple[dict[int, float], dict[int, float]]:
        """Of each mask, the probability that it is chosen; of each token, that it becomes a mask."""
        total = self.steps or len(view.positions)
        masks = view.masked
        tokens = [position for position in view.positions if position not in masks]
        if step == total - 1:
            return dict.fromkeys(masks, 1.0), dict.fromkeys(tokens, 0.0)
        inside = self.form == "loop" and self.t_off < 1 - step / total <= self.t_on
        now, then = self.alpha(step, total), self.alpha(step + (not inside), total)
        bound = 1 if now == 0 else min(1, (1 - then) / now)
        sigma = {"cap": min(self.eta, bound), "rescale": self.eta * bound, "loop": inside * min(self.eta, bound), "conf": 0}
        own: float = sigma[self.form]
        weights = {position: math.exp(-view.sure[position]) for position in tokens}
        every = {position: bound * weights[position] / math.fsum(weights.values()) for position in tokens}
        chosen: dict[int, float] = dict.fromkeys(masks, (then - (1 - own) * now) / (1 - now))
        return chosen, every if self.form == "conf" else dict.fromkeys(tokens, own)

    def lucky(self, view: View, step: int, purpose: int) -> list[int]:
        """The positions that a step takes, or masks."""
        chances = self.chances(view, step)[purpose == REMASK]
        return [position for position, chance in chances.items() if view.uniform(position, purpose, step) < chance]

    def step(self, view: View, step: int) -> None:
        """One step: both choices look at the block as it was before it."""
        chosen, gone = self.lucky(view, step, CHOOSE), self.lucky(view, step, REMASK)
        view.unmask(chosen)
        view.mask(gone)

    def every(self, view: View) -> None:
        """A forward for every step."""
        self.step(view, view.number)
        view.memory["open"] = view.number + 1 < (self.steps or len(view.positions))

    def needed(self, view: View) -> None:
        """A forward for steps that take something, and for the first one."""
        step = view.memory.get("step", 0)
        self.step(view, step)
        step += 1
        while step < (self.steps or len(view.positions)) and not self.lucky(view, step, CHOOSE):
            self.step(view, step)
            step += 1
        view.memory["step"] = step


def walk(random: Random) -> tuple[ReMDM, Walk]:
    steps, eta = random.choice((None, 1, 2, 5, 30)), random.choice((None, 0.0, 0.2, 1.0))
    form = random.choice(("cap", "rescale", "conf", "loop"))
    if form == "conf":
        return (rule := ReMDM("conf", steps)), Walk(rule, 0, 0, 0, 0)
    strength = {"cap": 0.008, "rescale": 0.015, "loop": 0.02}[form] if eta is None else eta
    if form != "loop":
        return (rule := ReMDM(form, steps, eta=eta)), Walk(rule, 0, 0, 0, strength)
    t_on, t_off, alpha_on = random.choice(((0.55, 0.05, 0.9), (0.8, 0.3, 0.5), (0.4, 0.0, 0.2), (0.0, 0.0, 0.7)))
    if random.random() < 0.3:
        return (rule := ReMDM("loop", steps, eta=eta)), Walk(rule, 0.55, 0.05, 0.9, strength)
    rule = ReMDM("loop", steps, eta=eta, t_on=t_on, t_off=t_off, alpha_on=alpha_on)
    return rule, Walk(rule, t_on, t_off, alpha_on, strength)


def sampler(random: Random) -> tuple[Rule, Slow]:
    rule, slow = walk(random)
    return rule, slow.needed


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


MAKES: list[Make] = [running_confidence, saber, llada, sampler, credit]

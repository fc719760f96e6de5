"""Rules that choose which positions to take, against slow loops written from their papers."""

import math
from random import Random

from dlstep.core import Rule
from dlstep.rules.dilated import Dilated
from dlstep.rules.entropy_bound import EntropyBound
from dlstep.rules.factor import Factor
from dlstep.rules.hierarchy import Hierarchy
from dlstep.rules.local_leap import LocalLeap
from dlstep.rules.quota import Quota
from dlstep.rules.spaced import Spaced
from dlstep.rules.threshold import Threshold

from .models import EOS
from .zoo import Make, Slow, View

CHANCES = (0.0, 0.3, 0.4, 0.5, 0.6, 0.9, 1.0)
CHOOSE = 3  # the purpose of draws that choose positions


def even_share(view: View, forwards: int | None) -> int:
    """The part that is due of even shares."""
    forwards = forwards or len(view.positions)
    whole = len(view.positions) // forwards
    return max(1, whole + 1 if view.number < len(view.positions) % forwards else whole)


def score(view: View, order: str, position: int) -> float:
    """The larger, the earlier."""
    match order:
        case "confidence":
            return view.confidence(position)
        case "margin":
            return view.margin(position)
        case "entropy":
            return -view.entropy(position)
        case "random":
            return view.uniform(position, CHOOSE)
        case _:
            return -position


def quota(random: Random) -> tuple[Rule, Slow]:
    steps, order = random.choice((None, 1, 2, 3, 9)), random.choice(("confidence", "margin", "entropy", "random", "left"))
    heat = random.choice((None, None, 0.1, 1.0)) if order in ("confidence", "margin", "entropy") else None
    dynamic, eos_last = random.choice((None, None, 0.3, 0.5, 0.85)), random.random() < 0.4

    def rank(view: View, position: int) -> float:
        if eos_last and view.token(position) == EOS:
            return -math.inf
        own = score(view, order, position)
        return own if heat is None else own / heat - math.log(-math.log(view.uniform(position, CHOOSE)))

    def slow(view: View) -> None:
        due = even_share(view, steps)
        ordinary = [position for position in view.masked if not (eos_last and view.token(position) == EOS)]
        sure = [position for position in ordinary if dynamic is not None and view.confidence(position) > dynamic]
        view.unmask(sure if len(sure) >= due else view.top(due, lambda position: rank(view, position)))

    return Quota(steps, order=order, order_temperature=heat, dynamic_threshold=dynamic, eos_last=eos_last), slow


def dream_chance(forward: int, forwards: int) -> float:
    """The share of the masks that a forward of Dream's schedule takes."""
    left = [1 + count * (0.001 - 1) / forwards for count in range(forwards + 1)]
    return 1 - left[forward + 1] / left[forward]


def dream(random: Random) -> tuple[Rule, Slow]:
    steps = random.choice((None, 1, 2, 5, 9, 40))
    order = random.choice(("confidence", "margin", "entropy", "random", "left", "independent"))

    def independent(view: View, forwards: int) -> None:
        if view.number == forwards - 1:
            view.unmask(view.masked)
        else:
            chance = dream_chance(view.number, forwards)
            view.unmask([position for position in view.masked if view.uniform(position, CHOOSE) < chance])

    def slow(view: View) -> None:
        forwards = steps or len(view.positions)
        if order == "independent":
            return independent(view, forwards)
        forward = view.memory.get("forward", 0)
        while True:
            last = forward == forwards - 1
            due = len(view.masked) if last else math.floor(len(view.masked) * dream_chance(forward, forwards))
            forward += 1
            if due:
                break
        view.memory["forward"] = forward
        return view.unmask(view.top(due, lambda position: score(view, order, position)))

    return Quota(steps, schedule="dream", order=order), slow


def entropic_threshold(random: Random) -> tuple[Rule, Slow]:
    most, inclusive = random.choice((0.0, 0.1, 0.5, 0.7, 1.2)), random.random() < 0.5
    penalty = random.choice((0.0, 0.0, 0.1, 0.5))

    def slow(view: View) -> None:
        doubt = {position: view.entropy(position) + penalty * (position - view.masked[0]) for position in view.masked}
        chosen = [position for position in doubt if doubt[position] < most or (inclusive and doubt[position] == most)]
        view.unmask_any(chosen, lambda position: -doubt[position])

    return Threshold(inclusive=inclusive, order="entropy", entropy_threshold=most, position_penalty=penalty), slow


def threshold(random: Random) -> tuple[Rule, Slow]:
    accept, falling = random.choice(CHANCES), random.choice((0.0, 0.0, 0.0, 0.3, 0.5, 1.0))
    inclusive = random.random() < 0.5

    def slow(view: View) -> None:
        bar = accept * (1 - falling * (1 - len(view.masked) / len(view.positions)))
        sure = {position: view.confidence(position) for position in view.masked}
        view.unmask_any([position for position in sure if sure[position] > bar or (inclusive and sure[position] == bar)])

    return Threshold(accept, inclusive=inclusive, falling=falling), slow


def entropy_bound(random: Random) -> tuple[Rule, Slow]:
    gamma, order = random.choice((0.0, 0.1, 0.5, 1.0, 3.0)), random.choice(("entropy", "confidence", "margin"))

    def slow(view: View) -> None:
        line = view.top(len(view.masked), lambda position: score(view, order, position))
        count = 1
        for length in range(1, len(line) + 1):
            doubts = [view.entropy(position) for position in line[:length]]
            doubts.remove(max(doubts))
            if sum(sorted(doubts) if order == "entropy" else doubts) > gamma + (0 if order == "entropy" else 1e-12):
                break
            count = length
        view.unmask(line[:count])

    return EntropyBound(gamma, order=order), slow


def factor(random: Random) -> tuple[Rule, Slow]:
    most = random.choice((0.0, 0.2, 0.3, 0.55, 1.0, 1.7, 100.0))

    def slow(view: View) -> None:
        line = view.top(len(view.masked), view.confidence)
        good = [view.confidence(position) >= 1 - most / (k + 1) for k, position in enumerate(line, 1)]
        if view.must:
            good[0] = True
        view.unmask([position for k, position in enumerate(line) if all(good[: k + 1])])

    return Factor(most), slow


def local_leap(random: Random) -> tuple[Rule, Slow]:
    accept, relaxed, radius = random.choice(CHANCES), random.choice(CHANCES), random.choice((0, 1, 2, 4, 100))

    def slow(view: View) -> None:
        anchors = [position for position in view.masked if view.confidence(position) >= accept]
        chosen = [
            position
            for position in view.masked
            if position in anchors
            or (view.confidence(position) >= relaxed and any(abs(position - anchor) <= radius for anchor in anchors))
        ]
        view.unmask_any(chosen)

    return LocalLeap(accept, relaxed, radius), slow


def runs(positions: list[int]) -> list[list[int]]:
    """Maximal stretches of consecutive positions."""
    found: list[list[int]] = []
    for position in positions:
        if found and found[-1][-1] == position - 1:
            found[-1].append(position)
        else:
            found.append([position])
    return found


def hierarchical(view: View, offered: list[int], low: float, accept: float) -> list[int]:
    """The best of each stretch, and what is certain."""
    bests = [view.top(1, view.confidence, run)[0] for run in runs(offered)]
    return [
        position
        for position in offered
        if view.confidence(position) > accept or (position in bests and view.confidence(position) > low)
    ]


def hierarchy(random: Random) -> tuple[Rule, Slow]:
    low, accept = random.choice(CHANCES), random.choice((0.6, 0.9, 1.0))
    doubt = random.choice((0.0, 0.0, 0.4, 0.6, 0.95, 1.0))

    def slow(view: View) -> None:
        known = [position for position in view.positions if position not in view.masked]
        revived = [position for position in known if view.confidence(position) < doubt]
        view.mask(revived)
        chosen = hierarchical(view, view.masked, low, accept)
        others = [position for position in view.masked if position not in chosen]
        least = len(revived) + (1 if view.must else 0)
        view.unmask(chosen + view.top(max(0, least - len(chosen)), view.confidence, others))

    return Hierarchy(low, accept, doubt), slow


def dilated(random: Random) -> tuple[Rule, Slow]:
    base, skip, keep = random.choice((2, 2, 3, 8)), random.choice((0, 1, 1, 2)), random.choice((0.0, 0.3, 0.5, 0.9))

    def plan(size: int) -> list[list[int]]:
        plan, stride = [], size // base**skip
        while stride > 0:
            plan.append([i for i in range(size) if i % stride == 0 and not any(i in level for level in plan)])
            stride //= base
        rest = [i for i in range(size) if not any(i in level for level in plan)]
        plan += [rest] if rest else []
        if len(plan) >= 2 and len(plan[-1]) < len(plan[-2]):
            plan = [*plan[:-2], plan[-2] + plan[-1]]
        return plan

    def slow(view: View) -> None:
        levels = plan(len(view.positions))
        if view.number == len(levels) - 1:
            view.unmask(view.masked)
        else:
            level = [view.positions[offset] for offset in levels[view.number]]
            view.unmask([position for position in level if view.confidence(position) >= keep])

    return Dilated(base, skip, keep), slow


def spaced(random: Random) -> tuple[Rule, Slow]:
    accept, stride = random.choice(CHANCES[:-1]), random.choice((None, 1, 2, 3, 8))
    by_entropy = random.random() < 0.5

    def rank(view: View, position: int) -> float:
        return -view.entropy(position) if by_entropy else view.confidence(position)

    def slow(view: View) -> None:
        sure = [p for p in view.masked if (view.entropy(p) < accept if by_entropy else view.confidence(p) > accept)]
        chosen = sure or (view.top(1, lambda position: rank(view, position)) if view.must else [])
        size = len(view.positions)
        gap = max(2, len(view.masked) * (stride or max(size // 2, 1)) // size)
        kept: list[int] = []
        for position in view.top(len(chosen), lambda position: rank(view, position), chosen):
            if not any(abs(position - other) < gap for other in kept):
                kept.append(position)
        view.unmask(kept)

    inner = Threshold(order="entropy", entropy_threshold=accept) if by_entropy else Threshold(accept)
    return Spaced(inner, stride), slow


BOTH: list[Make] = [
    quota,
    threshold,
    entropic_threshold,
    entropy_bound,
    factor,
    local_leap,
    hierarchy,
    dilated,
    spaced,
]

"""Slow loops around decoding rules: one for a grid of blocks, one for a canvas, and the comparison with the engine.

A slow rule is a function of a `View`: it takes and masks positions of one block after a forward. It is written from the
paper's description, with lists and without anything of the engine. The network is a function without weights, whose
probabilities are tenths, so that ties and exact thresholds are common.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from random import Random
from typing import Any

from dlstep import Plan, SamplingParams, SpanSamples, Spec, State, Strategy
from dlstep.core import CanvasRule, Rule, SampleSpec, Span, Statistic
from dlstep.strategies.d2f import D2F
from dlstep.strategies.dual_cache import DualCache
from dlstep.strategies.multi_bd import MultiBD

from ..helpers.decoding import by_spans, decoded_alone, room_for_one
from .blockwise import Rules
from .counted_draws import number as drawn
from .models import EOS, MASK, WORDS, before_end
from .window import Block, open_window

ALL: frozenset[Statistic] = frozenset({"entropy", "margin"})


class Network:
    """The answer for a position is a function of all tokens it sees; in a share `calm` of all positions, of itself alone."""

    def __init__(self, seed: int, calm: float) -> None:
        self.seed, self.calm = seed, calm

    def chances(self, position: int, seen: Sequence[int]) -> list[float]:
        """The probability of each id; the mask's is 0."""
        own = Random(self.seed * 1009 + position)
        return _chances(self.seed, position, None if own.random() < self.calm else tuple(seen))


@cache
def _chances(seed: int, position: int, seen: tuple[int, ...] | None) -> list[float]:
    random = Random(hash((seed, position, (-1,) if seen is None else seen)))  # None hashes differently in every process
    ids = [token for token in range(WORDS) if token not in (MASK, EOS)]
    random.shuffle(ids)
    if random.random() < 0.1:
        ids.insert(0, EOS)
    parts = random.choice(((10,), (9, 1), (9, 1), (8, 1, 1), (6, 4), (5, 5), (4, 3, 3), (3, 3, 2, 2), (2,) * 5, (1,) * 10))
    chances = [0.0] * WORDS
    for token, tenths in zip(ids, parts, strict=False):
        chances[token] = tenths / 10
    return chances


def entropy(chances: Sequence[float]) -> float:
    """In nats."""
    return -math.fsum(chance * math.log(chance) for chance in chances if chance)


def ranked(chances: Sequence[float]) -> list[int]:
    """All ids, the most probable first; of equally probable ones the highest first."""
    return sorted(range(len(chances)), key=lambda token: (-chances[token], -token))


@dataclass
class View:
    """One unfinished block after a forward, as a slow rule sees and changes it.

    `positions` are those of the answer, `tokens` those of the whole request, `chances` what the network says of each position.
    `number` counts the forwards that sampled the block before this one. `must` says that the block has to get further.
    `memory` is the rule's own; `sure` holds the probability that each token had when it was unmasked. A rule that keeps a full
    block going sets `memory["open"]`.
    """

    tokens: list[int]
    positions: list[int]
    chances: dict[int, list[float]]
    number: int
    must: bool
    seed: int
    size: int
    memory: dict[str, Any]
    sure: dict[int, float]

    @property
    def masked(self) -> list[int]:
        """Positions without a token."""
        return [position for position in self.positions if self.tokens[position] == MASK]

    @property
    def begin(self) -> int:
        """Where the block begins, whatever of it was given."""
        return self.memory["begin"]

    def token(self, position: int) -> int:
        """The most probable id."""
        return ranked(self.chances[position])[0]

    def confidence(self, position: int) -> float:
        """The probability of the most probable id."""
        return max(self.chances[position])

    def margin(self, position: int) -> float:
        """Best minus second-best probability."""
        first, second = sorted(self.chances[position])[-2:][::-1]
        return first - second

    def entropy(self, position: int) -> float:
        """In nats."""
        return entropy(self.chances[position])

    def top(self, count: int, score: Callable[[int], float], among: Sequence[int] | None = None) -> list[int]:
        """The `count` masked positions with the largest scores; of equal ones the lowest first."""
        pool = self.masked if among is None else among
        return sorted(pool, key=lambda position: (-score(position), position))[:count]

    def unmask(self, positions: Sequence[int]) -> None:
        """Give positions their most probable ids."""
        for position in positions:
            self.tokens[position], self.sure[position] = self.token(position), self.confidence(position)

    def unmask_any(self, chosen: Sequence[int], score: Callable[[int], float] | None = None) -> None:
        """Unmask these; if there are none and the block has to get further, the best one."""
        self.unmask(chosen or (self.top(1, score or self.confidence) if self.must else []))

    def mask(self, positions: Sequence[int]) -> None:
        """Make positions masks again."""
        for position in positions:
            self.tokens[position] = MASK

    def uniform(self, position: int, purpose: int, number: int | None = None) -> float:
        """The uniform number in (0, 1) of a position in this forward, or in another one."""
        number = self.number if number is None else number
        return ((drawn(self.seed, position, number, purpose) >> 41) + 0.5) / (1 << 23)


Slow = Callable[[View], None]


@dataclass
class Memory:
    """Everything that outlives a forward of one block."""

    number: int = 0
    own: dict[str, Any] = field(default_factory=dict)
    sure: dict[int, float] = field(default_factory=dict)


def decode_grid(
    network: Network,
    prompt: Sequence[int],
    limit: int,
    rule: Slow,
    grid: Rules,
    *,
    remasks: bool = False,
    seed: int = 0,
    pins: Mapping[int, int] | None = None,
) -> tuple[list[int], int]:
    """The answer and the number of forwards, on a grid of blocks that see all blocks before them.

    `pins` are the tokens of pinned positions.
    """
    first = len(prompt) if grid.from_prompt else len(prompt) // grid.block_size * grid.block_size
    window = open_window(prompt, limit, first, grid, pins)
    memories: dict[int, Memory] = {}
    forwards = 0

    def forward() -> None:
        nonlocal forwards
        forwards += 1
        text, before_is_far = window.text, True
        for block in window.blocks:
            memory = memories.setdefault(block.start, Memory(own={"begin": block.start}))
            if block.ready:
                before_is_far = True
                continue
            must, before_is_far = before_is_far, block.progress >= grid.semi_complete_threshold
            _decide_block(network, text, block, memory, must, seed, rule)

    return window.decode(forward, keeps=not remasks), forwards


def _decide_block(network: Network, text: list[int], block: Block, memory: Memory, must: bool, seed: int, rule: Slow) -> None:
    """One forward of one block of a grid."""
    positions = list(block.editable)
    chances = {position: network.chances(position, text[: block.end]) for position in positions}
    tokens = list(text)
    rule(View(tokens, positions, chances, memory.number, must, seed, len(block.tokens), memory.own, memory.sure))
    memory.number += 1
    block.tokens = tokens[block.start : block.end]
    block.ready = not block.masked and not memory.own.get("open")
    block.ratio = float(block.ready)


def decode_canvas(
    network: Network,
    prompt: Sequence[int],
    limit: int,
    rule: Slow,
    size: int | None,
    *,
    remasks: bool = False,
    seed: int = 0,
    pins: Mapping[int, int] | None = None,
) -> tuple[list[int], int]:
    """The answer and the number of forwards, on a canvas; with size None it is one block.

    `pins` are the tokens of pinned positions, which all forwards see.
    """
    pins = pins or {}
    length = len(prompt)
    size = limit - length if size is None else size
    canvas = [*prompt, *[pins.get(position, MASK) for position in range(length, limit)]]
    forwards = 0
    for begin in range(length, limit, size):
        memory = Memory(own={"begin": begin})
        end = min(begin + size, limit)
        positions = [position for position in range(begin, end) if position not in pins]
        settled = positions[0] if positions else end
        if (answer := before_end(canvas[length:settled])) is not None:
            return answer, forwards
        done = not positions
        while not done:
            chances = {position: network.chances(position, canvas) for position in positions}
            view = View(canvas, positions, chances, memory.number, True, seed, end - begin, memory.own, memory.sure)
            rule(view)
            memory.number += 1
            forwards += 1
            done = not view.masked and not memory.own.get("open")
            settled = end if done else positions[0] if remasks else ([*view.masked, limit])[0]
            if (answer := before_end(canvas[length:settled])) is not None:
                return answer, forwards
    return canvas[length:], forwards


def samples_of(network: Network, state: State, plan: Plan, span: Span) -> SpanSamples:
    """The answer of the network to a span of the engine."""
    sequence, best = state.find(span.who.id), plan.sample_spec.best
    assert sequence
    assert span.rows.start == 0 or span.rows.start <= sequence.storage.stored or span.rows.final_rows
    text = sequence.tokens(0, span.rows.start) + span.rows.tokens
    chances = [network.chances(position, text[: span.rows.grid.cover(position + 1)]) for position in span.wanted.sampled]
    orders = [ranked(row) for row in chances]
    firsts = [(row[order[0]], row[order[1]]) for row, order in zip(chances, orders, strict=True)]
    samples = SpanSamples(
        tuple(order[0] for order in orders),
        tuple(first for first, _ in firsts),
        tuple(entropy(row) for row in chances),
        tuple(first - second for first, second in firsts),
        tuple(token for order in orders for token in order[:best]),
        tuple(row[token] for row, order in zip(chances, orders, strict=True) for token in order[:best]),
    )
    return samples.trimmed(SampleSpec(ALL, best=best), plan.sample_spec)


def engine_answer(
    network: Network,
    prompt: Sequence[int],
    limit: int,
    strategy: Strategy,
    seed: int = 0,
    pins: Mapping[int, int] | None = None,
    *,
    ignore_eos: bool = False,
) -> tuple[list[int], int]:
    """The engine's answer, and in how many forwards that sampled it came."""
    offsets: Any = {position - len(prompt): token for position, token in (pins or {}).items()}
    params = SamplingParams(max_tokens=limit - len(prompt), seed=seed, pinned=offsets, ignore_eos=ignore_eos)
    config = room_for_one(Spec(MASK, (EOS,), WORDS))
    sequence = decoded_alone(config, strategy, prompt, params, by_spans(partial(samples_of, network)))
    return list(sequence.answer), sequence.steps


Make = Callable[[Random], tuple[Rule, Slow]]


def random_pins(random: Random, first: int, limit: int) -> dict[int, int]:
    """Tokens for some positions of an answer: single ones, a stretch, or all of it; at times the end is among them."""
    room = range(first, limit)
    kind = random.choice(("few", "few", "stretch", "both", "all"))
    chosen: set[int] = set()
    if kind in ("few", "both"):
        chosen |= set(random.sample(room, random.randrange(0, min(4, len(room)) + 1)))
    if kind in ("stretch", "both"):
        begin = random.choice(room)
        chosen |= set(range(begin, min(limit, begin + random.randrange(1, 10))))
    if kind == "all":
        chosen = set(room) - set(random.sample(room, random.choice((0, 0, 1))))
    ends = random.random() < 0.4
    return {place: EOS if ends and random.random() < 0.2 else random.randrange(EOS + 1, WORDS) for place in sorted(chosen)}


Carry = Callable[[Random, Rule], tuple[Any, Callable[..., tuple[list[int], int]]]]


def check(make: Make, carry: Carry, count: int = 140, *, pinned: bool = False) -> None:
    """Compare engine and loop on random cases: `make` draws a rule with its slow form, `carry` a strategy with its loop."""
    random, stopped = Random(1), 0
    for number in range(count):
        rule, slow = make(random)
        strategy, decode = carry(random, rule)
        prompt, limit, network = problem(number, random, strategy.block_size)
        pins = random_pins(random, len(prompt), limit) if pinned else {}
        expected = decode(network, prompt, limit, slow, remasks=rule.remasks, seed=number, pins=pins)
        assert engine_answer(network, prompt, limit, strategy, number, pins) == expected, (number, strategy, pins)
        stopped += len(expected[0]) < limit - len(prompt)
    assert 0 < stopped < count


def grids(random: Random, rule: Rule) -> tuple[Strategy, Callable[..., tuple[list[int], int]]]:
    """A strategy with blocks on a random grid."""
    fields: dict[str, Any] = {
        "block_size": random.choice((1, 2, 3, 4, 8)),
        "buffer_size": random.choice((1, 1, 2, 4)),
        "add_block_threshold": random.choice((0.1, 0.5)),
        "semi_complete_threshold": random.choice((0.1, 0.5, 0.9)),
    }
    from_prompt = random.random() < 0.5
    grid = Rules(**fields, from_prompt=from_prompt)
    return (D2F if from_prompt else MultiBD)(**fields, rule=rule), partial(decode_grid, grid=grid)


def canvases(random: Random, rule: Rule) -> tuple[Strategy, Callable[..., tuple[list[int], int]]]:
    """A strategy with blocks of a random size on a canvas."""
    size = random.choice((1, 2, 3, 4, 8))
    whole = isinstance(rule, CanvasRule) and rule.whole
    return DualCache(block_size=size, cache="none", rule=rule), partial(decode_canvas, size=None if whole else size)


def problem(number: int, random: Random, size: int) -> tuple[list[int], int, Network]:
    """A prompt, the end of its answer, and a network."""
    prompt = [random.randrange(EOS + 1, WORDS) for _ in range(random.randrange(1, 2 * size + 2))]
    return prompt, len(prompt) + random.randrange(1, 3 * size + 3), Network(number, random.choice((0.0, 0.5, 0.9)))

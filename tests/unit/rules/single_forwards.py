"""One forward of one block, with random rows: what a rule takes of it."""

from dataclasses import dataclass, replace
from functools import lru_cache

from hypothesis import strategies as st

from dlstep.core import Block, Choice, Config, Request, SamplingParams, SequenceState, SpanSamples, Spec, add, init, open_block
from dlstep.strategies.dual_cache import DualCache

PROMPT, MASK, EOS = 3, 99, 98
ORDERS = ("confidence", "margin", "entropy", "random", "left")
TENTHS = st.integers(0, 10).map(lambda tenths: tenths / 10)


@lru_cache(maxsize=64)
def sequence_of(size: int) -> SequenceState:
    """A request for an answer of `size`."""
    state = init(Config(Spec(MASK, (EOS,), 100)), DualCache(block_size=size, cache="none"))
    state = add(state, Request(0, (0,) * PROMPT, SamplingParams(max_tokens=size, seed=7)))
    sequence = state.find(0)
    assert sequence is not None
    return sequence


@dataclass(frozen=True)
class Forward:
    """A block of which the offsets `left` are masked, and the rows of a forward; two rows in front are another block's."""

    size: int
    left: tuple[int, ...]
    probabilities: tuple[float, ...]
    entropies: tuple[float, ...]
    margins: tuple[float, ...]
    tokens: tuple[int, ...]
    number: int = 0

    def chosen(self, rule: Choice, *, must: bool = True) -> list[int]:
        """Offsets that the rule takes."""
        sequence = sequence_of(self.size)
        sequence = replace(sequence, steps=self.number + 1)
        block: Block = open_block(PROMPT, self.size, PROMPT + self.size, (), MASK)
        gone = [offset for offset in range(self.size) if offset not in self.left]
        block = block.unmask_rows(gone, 0, (1,) * self.size, (1.0,) * self.size)
        other = (0.97, 0.03)
        rows = SpanSamples((5, 6, *self.tokens), other + self.probabilities, other + self.entropies, other + self.margins)
        chosen = rule.chosen(sequence, block, rows, 2, must)
        assert chosen == sorted(set(chosen)), "rows come once, ascending"
        return [self.left[row - 2] for row in chosen]

    def permuted(self, order: list[int]) -> "Forward":
        """The same rows at other positions: entry i goes to the place that entry `order[i]` had."""
        parts = (self.probabilities, self.entropies, self.margins, self.tokens)
        moved = [tuple(part[index] for index in order) for part in parts]
        return Forward(self.size, self.left, *moved, number=self.number)  # type: ignore[arg-type]


@st.composite
def forwards(draw: st.DrawFn, *, distinct: bool = False, least: int = 1) -> Forward:
    """Blocks that are partly unmasked; with `distinct`, no two rows have a number in common."""
    size = draw(st.integers(least, 10))
    left = tuple(sorted(draw(st.sets(st.integers(0, size - 1), min_size=least))))
    count = len(left)

    def numbers(own: st.SearchStrategy[float]) -> tuple[float, ...]:
        return tuple(draw(st.lists(own, min_size=count, max_size=count, unique=distinct)))

    fine = st.integers(0, 1000).map(lambda number: number / 1000) if distinct else TENTHS
    tokens = tuple(draw(st.lists(st.sampled_from([1, 2, EOS]), min_size=count, max_size=count)))
    return Forward(size, left, numbers(fine), numbers(fine), numbers(fine), tokens, draw(st.integers(0, 3)))

"""A canvas under full attention: the prompt and the whole answer, which a rule decides block by block from left to right."""

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Gt

from ..core import (
    Block,
    Grid,
    Request,
    Rows,
    Rule,
    Sequence,
    Span,
    Spec,
    Strategy,
    Wants,
    check_ranges,
    open_block,
    span_of,
)  # fmt: skip
from ..rules.threshold import Threshold
from ._blocks import mask_of, masked_only
from ._warm import cooled, warmed

Cached = Literal["none", "prefix", "dual"]


@dataclass(frozen=True, slots=True)
class Canvas(Strategy):
    """Blocks of `block_size`, counted from the prompt's end, one at a time; `cache` says what their forwards read from stores.

    A rule that looks at the whole answer gets it as a single block, and reads nothing from stores.
    """

    block_size: Annotated[int, Gt(0)] = 32
    """Positions of a block."""
    cache: Cached = "dual"
    """What is kept while a block is decoded: nothing, what is before it, or what is on both sides."""
    rule: Rule = Threshold(inclusive=True)
    """Which positions a block takes after a forward."""

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.rule.whole and self.cache != "none":
            raise ValueError(
                f"{type(self).__name__}.cache={self.cache!r} does not go with {type(self.rule).__name__}, which looks at the "
                "whole answer: give cache='none'"
            )

    @property
    def exact(self) -> bool:
        """Only without a cache: what is read from stores was computed for an older canvas."""
        return self.cache == "none"

    @property
    def wants(self) -> Wants:
        """What the rule reads."""
        return self.rule.wants

    def unfit(self, spec: Spec) -> str:
        """A model without masks, or one that the rule cannot decode."""
        return masked_only(spec) or self.rule.unfit(spec)

    def grid(self, request: Request) -> Grid:
        """The canvas is one group; no part of it is final before the end."""
        return Grid(self.reach(request), 1)

    def atom(self, request: Request) -> int:
        """The canvas."""
        return self.reach(request)

    def reach(self, request: Request) -> int:
        """The canvas' end."""
        return len(request.prompt) + request.params.max_tokens

    def init(self, sequence: Sequence, spec: Spec) -> Sequence:
        """The first block behind the prompt, and the rest of the canvas."""
        length = len(sequence.goal.request.prompt)
        return sequence.moved(sequence.past, self._opened(sequence, length, spec), 0, length)

    def schedule(self, sequence: Sequence, spec: Spec) -> Span:
        """The canvas, the block, or the block and what follows, wanting what the rule looks at in the block."""
        goal, (block, *rest) = sequence.goal, sequence.window
        start, request = block.start, goal.request
        number = sequence.ledger.steps - block.opened
        wanted = self.rule.wanted(block, goal.limit, number)
        if sequence.extra is None or (spec.head_shift and wanted[0] == start):
            # With a shifted head, the row in front of the block is computed by refreshes only.
            start, tokens = 0, sequence.tokens(0, goal.limit)
        elif self.cache == "prefix" and rest:
            tokens = block.tokens + rest[0].tokens
        else:
            tokens = block.tokens
        named = self.rule.named(block, goal.limit, number) if self.rule.wants.named else ()
        return span_of(request, start, tokens, goal.grid, wanted, (number,) * len(wanted), end=goal.limit, named=named)

    def commit(self, sequence: Sequence, span: Span, rows: Rows, spec: Spec) -> Sequence:
        """Decide positions of the block; behind a full one the next opens, which begins with a refresh."""
        del span
        block, *rest = sequence.window
        block = self.rule.decided(sequence, block, rows, 0, True, spec)
        if self._open(block):
            settled = block.first if self.rule.revokes else block.undecided[0]
            sequence = sequence if self.cache == "none" else warmed(sequence)
            return sequence.moved(sequence.past, (block, *rest), 0, settled)
        if not rest:
            return sequence.moved(sequence.past, (block,), 0, block.end)
        past, window = sequence.past.push_front(block.sealed()), self._opened(sequence, block.end, spec)
        return cooled(sequence).moved(past, window, 0, block.end)

    def measure(self, sequence: Sequence) -> int:
        """What the rule says of the block, and of those to come."""
        block, *rest = sequence.window
        full, left = divmod(len(rest[0].tokens) if rest else 0, self.block_size)
        to_come = full * self.rule.bound(self.block_size) + (self.rule.bound(left) if left else 0)
        return (self.rule.measure(sequence, block) if self._open(block) else 0) + to_come

    def forget(self, sequence: Sequence, spec: Spec) -> Sequence:
        """Nothing of the canvas is stored any more."""
        del spec
        return cooled(sequence)

    def _open(self, block: Block) -> bool:
        return bool(block.undecided) or (self.rule.revokes and not self.rule.finished(block))

    def _opened(self, sequence: Sequence, start: int, spec: Spec) -> tuple[Block, ...]:
        """The block at `start` and, as another one, what is left of the canvas behind it."""
        limit, prompt, steps, mask = sequence.goal.limit, sequence.goal.request.prompt, sequence.ledger.steps, mask_of(spec)
        end = limit if self.rule.whole else min(start + self.block_size, limit)
        block = open_block(start, end - start, limit, prompt, mask, steps)
        return (block, open_block(end, limit - end, limit, prompt, mask)) if end < limit else (block,)

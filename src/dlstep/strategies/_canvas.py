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
    check_block,
    check_ranges,
    check_wanted,
    open_block,
    span_of,
)  # fmt: skip
from ..rules.threshold import Threshold
from ._blocks import mask_of, masked_only, still_open
from ._warm import Warm, cooled, refreshed, warmed

Cached = Literal["none", "prefix", "dual"]


@dataclass(frozen=True, slots=True)
class Canvas(Strategy):
    """Blocks of `block_size`, counted from the prompt's end, one at a time; `cache` says what their forwards read from stores.

    A rule that looks at the whole answer gets it as a single block, whatever `block_size` is. It reads from stores only if it
    says which part of the canvas is fed beside them, and when everything is stored anew.
    """

    block_size: Annotated[int, Gt(0)] = 32
    """Positions of a block."""
    cache: Cached = "dual"
    """Keys and values kept while a block is decoded: none, those before it, or those on both sides."""
    rule: Rule = Threshold(inclusive=True)
    """Which positions a block takes after a forward."""

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.cache != "none" and self.rule.whole and not self.rule.windowed:
            raise ValueError(
                f"{type(self).__name__}.cache={self.cache!r} does not go with {type(self.rule).__name__}, which looks at the "
                "whole answer: give cache='none'"
            )

    @property
    def shipped(self) -> bool:
        """Whether the strategy and its rule are."""
        return self.SHIPPED and self.rule.shipped

    @property
    def exact(self) -> bool:
        """Only without a cache: what is read from stores was computed for an older canvas."""
        return self.cache == "none"

    @property
    def wants(self) -> Wants:
        """The statistics that the rule reads."""
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
        return self._advanced(sequence, self._opened(sequence, length, spec), spec)

    def schedule(self, sequence: Sequence, spec: Spec) -> Span:
        """The canvas, the block, or the block and what follows, wanting what the rule looks at in the block."""
        goal, (block, *rest) = sequence.goal, sequence.window
        start, request = block.start, goal.request
        number = sequence.ledger.steps - block.opened
        wanted = self.rule.wanted(block, goal.limit, number)
        if not self.rule.shipped:
            check_wanted(self.rule, wanted, block, goal.limit)
        if self.rule.windowed:
            start, tokens = self._window(sequence, block, wanted[0] - spec.head_shift)
        elif sequence.extra is None or (spec.head_shift and wanted[0] == start):
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
        block, *rest = sequence.window
        if sequence.ledger.steps - block.opened == 1:  # its first forward
            # Pinned tokens alone are no block that a forward could decide.
            end = max(self.rule.ends(sequence, block, rows, self.block_size), block.undecided[0] + 1)
            if end < block.end:
                block, rest = block.part(block.start, end, block.opened), list(self._rest(sequence, end, spec))
        undecided = len(block.undecided)
        after = self.rule.decided(sequence, block, rows, 0, True, spec)
        if not self.rule.shipped:
            check_block(self.rule, sequence, block, after, rows, True, spec)
        block = after
        if self._open(block, sequence.goal.limit):
            if self.rule.windowed and self.cache != "none" and len(span.tokens) == sequence.goal.limit:
                sequence = refreshed(sequence, undecided)
            elif self.cache != "none":
                sequence = warmed(sequence)
        elif rest:
            sequence = cooled(sequence)
        return self._advanced(sequence, (block, *rest), spec)

    def _advanced(self, sequence: Sequence, window: tuple[Block, ...], spec: Spec) -> Sequence:
        """The sequence at its first block that is not finished, or at the last one; blocks that are pinned are passed by."""
        past, limit = sequence.past, sequence.goal.limit
        while not self._open(window[0], limit):
            block, *rest = window
            if not rest:
                return sequence.moved(past, window, 0, block.end)
            past, window = past.push_front(block.sealed()), self._opened(sequence, block.end, spec)
        block = window[0]
        return sequence.moved(past, window, 0, block.first if self.rule.revokes else block.undecided[0])

    def measure(self, sequence: Sequence) -> int:
        """The forwards that the rule may still take for the block, and for those to come."""
        block, *rest = sequence.window
        full, left = divmod(len(rest[0].tokens) if rest else 0, self.block_size)
        to_come = full * self.rule.bound(self.block_size) + (self.rule.bound(left) if left else 0)
        return (self.rule.measure(sequence, block) if self._open(block, sequence.goal.limit) else 0) + to_come

    def forget(self, sequence: Sequence, spec: Spec) -> Sequence:
        """Nothing of the canvas is stored any more."""
        del spec
        return cooled(sequence)

    @property
    def holds_pins(self) -> bool:
        """All forwards see them."""
        return True

    def _open(self, block: Block, limit: int) -> bool:
        return bool(block.undecided) or still_open(self.rule, block, limit)

    def _opened(self, sequence: Sequence, start: int, spec: Spec) -> tuple[Block, ...]:
        """The block at `start` and, as another one, what is left of the canvas behind it."""
        limit, request = sequence.goal.limit, sequence.goal.request
        prompt, pinned = request.prompt, request.params.pinned
        end = limit if self.rule.whole else min(start + self.rule.opens(self.block_size, limit - len(prompt)), limit)
        block = open_block(start, end - start, limit, prompt, mask_of(spec), sequence.ledger.steps, pinned)
        return (block, *self._rest(sequence, end, spec))

    def _rest(self, sequence: Sequence, end: int, spec: Spec) -> tuple[Block, ...]:
        """The rest of the canvas from `end` on, as a block that is not opened; nothing if nothing is left."""
        limit, request = sequence.goal.limit, sequence.goal.request
        if end >= limit:
            return ()
        return (open_block(end, limit - end, limit, request.prompt, mask_of(spec), pinned=request.params.pinned),)

    def _window(self, sequence: Sequence, block: Block, first: int) -> tuple[int, tuple[int, ...]]:
        """The part of the canvas that the rule wants to be fed, from its first position on; `first` is a row that it needs."""
        limit, part = sequence.goal.limit, None
        if isinstance(sequence.extra, Warm):
            part = self.rule.fed(block, sequence.extra.undecided - len(block.undecided))
        if part is None:
            return 0, sequence.tokens(0, limit)
        start = min(part[0], first)
        return start, sequence.tokens(start, limit if self.cache == "prefix" else part[1])

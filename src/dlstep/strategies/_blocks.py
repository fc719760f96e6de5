"""Moves that blockwise strategies share: open a block, feed the window, decide, seal and retire.

A block is open while the network decides its tokens, and sealed once it and all before it stand: a block that is written
once does so when it is decided. Sealed blocks are final: the core stores their keys and values with the next forward. With
`fold_commits` a sealed block leaves the window at once, so that the next block can open in its place; without it, the block
keeps its place for one more sampling forward.
"""

from abc import abstractmethod
from bisect import bisect_left
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Gt, Interval

from ..core import (
    Block,
    Probability,
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
    maker,
    open_block,
)  # fmt: skip
from ..rules.threshold import Threshold

_span = maker(Span)


def mask_of(spec: Spec) -> int:
    """The mask id of a model that has one, which `masked_only` made sure of."""
    assert spec.mask_id is not None
    return spec.mask_id


def masked_only(spec: Spec) -> str:
    """Why a strategy that feeds masks cannot decode the model; empty if it can."""
    return "" if spec.mask_id is not None else "it has no mask id, which undecided positions are fed as"


def still_open(rule: Rule, block: Block, limit: int) -> bool:
    """Whether the rule goes on with a full block; one that was given as a whole is over before it begins."""
    return rule.revokes and bool(block.sampled(limit)) and not rule.finished(block)


@dataclass(frozen=True, slots=True)
class Blocks(Strategy):
    """A window of blocks, decided from left to right; what is fed, and what a forward changes, is left to subclasses.

    `block_size` positions make a block, `buffer_size` blocks may be unfinished at a time. The next block opens, one a
    forward, once the last one is decided to at least `add_block_threshold`, or entirely if `token_stability_threshold` is
    above 0. An end-of-sequence token in the window opens no more blocks.
    """

    block_size: Annotated[int, Gt(0)] = 32
    """Positions of a block."""
    buffer_size: Annotated[int, Gt(0)] = 4
    """Blocks that may be unfinished at a time; 1 is single-block diffusion."""
    add_block_threshold: Probability = 0.1
    """The next block opens when this share of the last one is decided."""
    token_stability_threshold: Probability = 0.0
    """Above 0: the next block opens only when the last one is decided entirely."""
    fold_commits: bool = True
    """Store a finished block during the next block's forward, not in one of its own."""

    @abstractmethod
    def decided(self, sequence: Sequence, rows: Rows, spec: Spec) -> tuple[Block, ...]:
        """The blocks of `sequence.window` after a forward."""

    @abstractmethod
    def stands_to(self, block: Block, limit: int) -> int:
        """First position of a block of the window whose token may change as long as what is before it stands; else its end."""

    @abstractmethod
    def stable_share(self, block: Block, limit: int) -> float:
        """The share of the block that `token_stability_threshold` looks at."""

    def __post_init__(self) -> None:
        check_ranges(self)

    def unfit(self, spec: Spec) -> str:
        """A model without masks."""
        return masked_only(spec)

    def init(self, sequence: Sequence, spec: Spec) -> Sequence:
        """The window opens at the last group boundary of the prompt; what lies before it is final."""
        request = sequence.goal.request
        length = len(request.prompt)
        first = sequence.goal.grid.start(length)
        block = open_block(
            first, self.block_size, sequence.limit, request.prompt, mask_of(spec), pinned=request.params.pinned
        )  # fmt: skip
        return self._advanced(sequence.moved(sequence.past, (), first, length), (block,), spec)

    def commit(self, sequence: Sequence, span: Span, rows: Rows, spec: Spec) -> Sequence:
        """Decide, seal what is complete, open the next block."""
        del span
        window = self.decided(sequence, rows, spec)
        return self._advanced(sequence, window, spec) if self.fold_commits else self._retired(sequence, window, spec)

    def atom(self, request: Request) -> int:
        """The window of blocks, or the prompt if that is one group."""
        return max(self.grid(request).origin, self.block_size * self.buffer_size)

    def _unsealed(self, sequence: Sequence) -> tuple[tuple[Block, ...], bool]:
        """The open blocks without those held, which are the core's to feed, and whether their span joins final rows."""
        blocks = tuple(block for block in sequence.window if block.start >= sequence.final)
        # A block that was opened while nothing else was open waits for what is before it to be stored.
        steps, length = sequence.ledger.steps, len(sequence.goal.request.prompt)
        return blocks, len(blocks) < len(sequence.window) or any(b.opened < steps or b.start < length for b in blocks)

    def _retired(self, sequence: Sequence, window: tuple[Block, ...], spec: Spec) -> Sequence:
        """The sequence without fold_commits after its window changed: sealed blocks are held, and the next block may open."""
        past, final = sequence.past, sequence.final
        while window and window[0].end <= final:  # held, and stored by the forward that just ran
            past, window = past.push_front(window[0].sealed()), window[1:]
        return self._advanced(sequence.moved(past, sequence.window, final, sequence.settled), window, spec)

    def _advanced(self, sequence: Sequence, window: tuple[Block, ...], spec: Spec) -> Sequence:
        """The sequence with what stands in `window` sealed, and the next block open; several where all of one is pinned."""
        past, final, limit = sequence.past, sequence.final, sequence.goal.limit
        if len(window) >= self.buffer_size and window[0].undecided:  # most forwards: no block to seal, no room for another
            stands = self.stands_to(window[0], limit)
            return sequence.moved(past, window, final, stands if stands < limit else limit)
        while True:
            settled = final
            for block in window:
                stands = self.stands_to(block, limit)
                settled = min(stands, limit)
                if stands < block.end:
                    break
                if block.end <= limit:
                    final = block.end
            if self.fold_commits:
                while window and window[0].start < final:
                    past, window = past.push_front(window[0].sealed()), window[1:]
            if settled >= limit:
                break
            before, window = window, self._opened(sequence, window, final, spec)
            if window and window[-1].start < final:  # all places are held: nothing is open, so none is held any longer
                for block in window:
                    past = past.push_front(block.sealed())
                window = self._opened(sequence, (), final, spec)
            if window is before or settled < window[-1].start:
                break
            if window[-1].undecided:
                settled = self.stands_to(window[-1], limit)  # pinned tokens that it begins with
                break
        return sequence.moved(past, window, final, settled)

    def _opened(self, sequence: Sequence, window: tuple[Block, ...], final: int, spec: Spec) -> tuple[Block, ...]:
        """`window` with one more block behind it, if there is a place, the last block allows it and the answer goes on."""
        if len(window) >= self.buffer_size:
            return window
        goal = sequence.goal
        start = window[-1].end if window else final
        if start >= goal.limit:
            return window
        if window and not self._wants_successor(window[-1], goal.limit):
            return window
        prompt, pinned, steps = goal.request.prompt, goal.request.params.pinned, sequence.ledger.steps
        length = len(prompt)
        if any(stop_id in block.tokens[max(length - block.start, 0) :] for block in window for stop_id in goal.stop_ids):
            return window
        return (*window, open_block(start, self.block_size, goal.limit, prompt, mask_of(spec), steps, pinned))

    def _wants_successor(self, block: Block, limit: int) -> bool:
        stability = self.token_stability_threshold
        return block.progress >= self.add_block_threshold and self.stable_share(block, limit) >= stability


@dataclass(frozen=True, slots=True)
class Blockwise(Blocks):
    """A grid of blocks that a rule decides.

    The first unfinished block must get further in each forward; a later one must if the block before it is decided to at
    least `semi_complete_threshold` (accept rule "A") or in any case (rule "B").
    """

    rule: Rule = Threshold()
    """Which positions a block takes after a forward."""
    semi_complete_threshold: Annotated[float, Interval(gt=0.0, le=1.0)] = 0.9
    """A block must get further in each forward once this share of the block before it is decided."""

    def unfit(self, spec: Spec) -> str:
        """A model without masks, and a rule that needs a canvas."""
        if not self.rule.grids:
            return f"{type(self.rule).__name__} looks at more than a block, which a grid does not offer: it needs a canvas"
        return masked_only(spec) or self.rule.unfit(spec)

    @property
    def wants(self) -> Wants:
        """The statistics that the rule reads."""
        return self.rule.wants

    @property
    def shipped(self) -> bool:
        """Whether the strategy and its rule are."""
        return self.SHIPPED and self.rule.shipped

    @property
    def holds_pins(self) -> bool:
        """Rules sample gaps only."""
        return True

    def schedule(self, sequence: Sequence, spec: Spec) -> Span:
        """All open blocks, wanting what the rule looks at in those that it has not finished."""
        del spec
        final, steps, rule, limit = sequence.final, sequence.ledger.steps, self.rule, sequence.goal.limit
        blocks, joins = (sequence.window, True) if self.fold_commits else self._unsealed(sequence)
        tokens: tuple[int, ...] = ()
        wanted: tuple[int, ...] = ()
        draws: tuple[int, ...] = ()
        named: tuple[int, ...] = ()
        simple = rule.SAMPLES_MASKED
        for block in blocks:
            tokens += block.tokens
            asked, number = block.undecided, steps - block.opened
            if not simple and (asked or still_open(rule, block, limit)):
                asked = rule.wanted(block, limit, number)
                if asked is not block.undecided and not rule.shipped:
                    check_wanted(rule, asked, block, limit)
                if rule.wants.named:
                    named += rule.named(block, limit, number)
            wanted += asked
            draws += (number,) * len(asked)
        grid, request = sequence.goal.grid, sequence.goal.request
        end = final + len(tokens)
        return _span(
            request.id, request.arrival, final, tokens, end, grid, wanted, draws, request.params, request.seed, 0, 0, joins,
            named=named,
        )  # fmt: skip

    def stands_to(self, block: Block, limit: int) -> int:
        """The end of what was decided for good: with a rule that takes back, nothing of a block that is not finished."""
        undecided = block.undecided
        if not undecided and not still_open(self.rule, block, limit):
            return block.end
        return block.first if self.rule.revokes else undecided[0]

    def _open(self, block: Block, limit: int) -> bool:
        return bool(block.undecided) or still_open(self.rule, block, limit)

    def stable_share(self, block: Block, limit: int) -> float:
        """All or nothing: whether the block is finished."""
        return 0.0 if self._open(block, limit) else 1.0

    def decided(self, sequence: Sequence, rows: Rows, spec: Spec) -> tuple[Block, ...]:
        """The blocks as the rule leaves them; whether one must get further follows from the blocks as the forward ran."""
        rule, forced, steps, limit = self.rule, spec.accept_rule == "B", sequence.ledger.steps, sequence.goal.limit
        must, shipped, simple = True, rule.shipped, rule.SAMPLES_MASKED
        accepted = rule.accepted(rows) if shipped else None
        if accepted is not None:
            return self._with_accepted(sequence, rows, accepted, spec)
        blocks: list[Block] = []
        begin = 0
        for block in sequence.window:
            if not block.undecided and not still_open(rule, block, limit):
                blocks.append(block)
                must = True
                continue
            after = rule.decided(sequence, block, rows, begin, must or forced, spec)
            if not shipped:
                check_block(rule, sequence, block, after, rows, must or forced, spec)
            blocks.append(after)
            begin += len(block.undecided if simple else rule.wanted(block, limit, steps - block.opened - 1))
            must = block.progress >= self.semi_complete_threshold
        return tuple(blocks)

    def _with_accepted(self, sequence: Sequence, rows: Rows, accepted: list[int], spec: Spec) -> tuple[Block, ...]:
        """Return the blocks with the rows `accepted` unmasked; the rule decides only blocks without one that must advance."""
        blocks: list[Block] = []
        begin = first = 0
        before: Block | None = None
        for block in sequence.window:
            end = begin + len(block.undecided)
            stop = bisect_left(accepted, end, first)
            after = block
            if stop > first:
                after = block.decide(accepted[first:stop], begin, rows.tokens, rows.probabilities)
            elif end > begin and (before is None or before.progress >= self.semi_complete_threshold or spec.accept_rule == "B"):
                after = self.rule.decided(sequence, block, rows, begin, True, spec)
            blocks.append(after)
            begin, first, before = end, stop, block
        return tuple(blocks)

    def measure(self, sequence: Sequence) -> int:
        """The forwards that the rule may still take for the open blocks, and for those to come."""
        rule, size, limit = self.rule, self.block_size, sequence.goal.limit
        opened = sequence.window[-1].end if sequence.window else sequence.final
        full, rest = divmod(max(0, limit - opened), size)
        to_come = full * rule.bound(size) + (rule.bound(rest) if rest else 0)
        return sum(rule.measure(sequence, block) for block in sequence.window if self._open(block, limit)) + to_come

"""Operations that blockwise strategies share: open a block, feed the window, decide, seal and retire.

A block is *open* while its tokens may change, and *sealed* once neither it nor any block before it can change. If
decided positions never become masks again, a block can no longer change once all its positions are decided. Sealed
blocks are
final: the core stores their keys and values with the next forward pass. With `fold_commits`, a sealed block leaves the
window immediately, so that the next block can open in its place; without it, the block is *held*: it keeps its place
for one more sampling forward pass.
"""

from abc import abstractmethod
from bisect import bisect_left
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Gt, Interval
from rpds import List

from ..core import (
    Block,
    Probability,
    Request,
    Rows,
    Rule,
    Sealed,
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
    """Return the mask id of a model that has one, as `masked_only` has checked."""
    assert spec.mask_id is not None
    return spec.mask_id


def masked_only(spec: Spec) -> str:
    """Return why a strategy that feeds masks cannot decode the model; empty if it can."""
    return "" if spec.mask_id is not None else "it has no mask id, which undecided positions are fed as"


def still_open(rule: Rule, block: Block, limit: int) -> bool:
    """Return whether the rule may still change a full block; never if all tokens of the block were given."""
    return rule.revokes and bool(block.sampled(limit)) and not rule.finished(block)


def _retire(past: "List[Sealed]", window: tuple[Block, ...], final: int) -> tuple["List[Sealed]", tuple[Block, ...]]:
    """Return past and window with the blocks before `final` moved from the window to the past."""
    while window and window[0].end <= final:
        past, window = past.push_front(window[0].sealed()), window[1:]
    return past, window


@dataclass(frozen=True, slots=True)
class Blocks(Strategy):
    """A window of blocks, decided from left to right. Subclasses define what is fed, and what a forward pass changes.

    A block has `block_size` positions, and at most `buffer_size` blocks are unfinished at a time. A forward pass opens
    at most one block, if the last one is decided to at least `add_block_threshold`, or entirely if
    `token_stability_threshold` is above 0. No block opens while the window holds a token that ends the answer.
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
        """Return the first position of a block that may change while nothing before the block does; else its end."""

    @abstractmethod
    def stable_share(self, block: Block, limit: int) -> float:
        """Return the share of the block that is compared with `token_stability_threshold`."""

    def __post_init__(self) -> None:
        check_ranges(self)

    def unfit(self, spec: Spec) -> str:
        """Return why a model without masks cannot be decoded; empty for other models."""
        return masked_only(spec)

    def init(self, sequence: Sequence, spec: Spec) -> Sequence:
        """Open the window at the last group boundary of the prompt; all positions before it are final."""
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
        """Return the size of a full window of blocks, or of the prompt's group if that is larger."""
        return max(self.grid(request).origin, self.block_size * self.buffer_size)

    def _unsealed(self, sequence: Sequence) -> tuple[tuple[Block, ...], bool]:
        """Return the blocks that are not held, and whether their span joins final rows. The core feeds held blocks."""
        blocks = tuple(block for block in sequence.window if block.start >= sequence.final)
        # A block that was opened while no other was open waits until the positions before it are stored.
        steps, length = sequence.ledger.steps, len(sequence.goal.request.prompt)
        return blocks, len(blocks) < len(sequence.window) or any(b.opened < steps or b.start < length for b in blocks)

    def _retired(self, sequence: Sequence, window: tuple[Block, ...], spec: Spec) -> Sequence:
        """Retire blocks that are stored, then advance the sequence; for strategies without `fold_commits`."""
        past, window = _retire(sequence.past, window, sequence.final)  # held, and stored by the forward that just ran
        return self._advanced(sequence.moved(past, sequence.window, sequence.final, sequence.settled), window, spec)

    def _advanced(self, sequence: Sequence, window: tuple[Block, ...], spec: Spec) -> Sequence:
        """Return the sequence with finished blocks sealed and one more open, or several if pinned tokens fill one."""
        past, final, limit = sequence.past, sequence.final, sequence.goal.limit
        if len(window) >= self.buffer_size and window[0].undecided:  # most forwards: no block to seal, no room for another
            stands = self.stands_to(window[0], limit)
            return sequence.moved(past, window, final, stands if stands < limit else limit)
        while True:  # each turn seals what is complete, and opens one block
            final, settled = self._settled(window, final, limit)
            if self.fold_commits:
                past, window = _retire(past, window, final)
            if settled >= limit:  # the answer is complete
                break
            before, window = window, self._opened(sequence, window, final, spec)
            if window and window[-1].start < final:  # all blocks are held and none is open, so hold none any longer
                past, window = _retire(past, window, final)
                window = self._opened(sequence, window, final, spec)
            if window is before or settled < window[-1].start:  # no block opened, or an earlier one is not complete
                break
            if window[-1].undecided:
                settled = self.stands_to(window[-1], limit)  # the block may begin with pinned tokens
                break
            # Pinned tokens fill the new block: seal it, and open the one after it.
        return sequence.moved(past, window, final, settled)

    def _settled(self, window: tuple[Block, ...], final: int, limit: int) -> tuple[int, int]:
        """Return the ends of the final and of the settled positions, where those before `final` are final already."""
        settled = final
        for block in window:
            stands = self.stands_to(block, limit)
            settled = min(stands, limit)
            if stands < block.end:  # not it, nor any block after it
                break
            if block.end <= limit:  # void positions never become final
                final = block.end
        return final, settled

    def _opened(self, sequence: Sequence, window: tuple[Block, ...], final: int, spec: Spec) -> tuple[Block, ...]:
        """Return `window` with a new block at its end, if there is room and the last block and the answer allow it."""
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
        """Return why the rule or the model does not fit: it needs a canvas, has no masks, or the rule says why."""
        if not self.rule.grids:
            return f"{type(self.rule).__name__} looks at more than a block, which a grid does not offer: it needs a canvas"
        return masked_only(spec) or self.rule.unfit(spec)

    @property
    def wants(self) -> Wants:
        """The statistics that the rule reads."""
        return self.rule.wants

    @property
    def shipped(self) -> bool:
        """Whether the strategy and its rule are part of this package."""
        return self.SHIPPED and self.rule.shipped

    @property
    def holds_pins(self) -> bool:
        """Whether requests may pin tokens: they may, because rules sample only positions that are not pinned."""
        return True

    def schedule(self, sequence: Sequence, spec: Spec) -> Span:
        """Return a span of all open blocks that samples what the rule reads in unfinished ones."""
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
        """Return the end of the tokens that cannot change; with a rule that remasks, an unfinished block has none."""
        undecided = block.undecided
        if not undecided and not still_open(self.rule, block, limit):
            return block.end
        return block.first if self.rule.revokes else undecided[0]

    def _open(self, block: Block, limit: int) -> bool:
        return bool(block.undecided) or still_open(self.rule, block, limit)

    def stable_share(self, block: Block, limit: int) -> float:
        """Return 1.0 for a finished block, else 0.0."""
        return 0.0 if self._open(block, limit) else 1.0

    def decided(self, sequence: Sequence, rows: Rows, spec: Spec) -> tuple[Block, ...]:
        """Return the blocks as the rule leaves them. Whether one must advance depends on the one before it, as fed."""
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
        count = len(accepted)
        before: Block | None = None
        for block in sequence.window:
            end = begin + len(block.undecided)
            stop = bisect_left(accepted, end, first) if first < count else first
            after = block
            if stop > first:
                after = block.decide(accepted[first:stop], begin, rows.tokens, rows.probabilities)
            elif end > begin and (before is None or before.progress >= self.semi_complete_threshold or spec.accept_rule == "B"):
                after = self.rule.decided(sequence, block, rows, begin, True, spec)
            blocks.append(after)
            begin, first, before = end, stop, block
        return tuple(blocks)

    def measure(self, sequence: Sequence) -> int:
        """Return the most forward passes that the rule may still take for the open blocks and those to come."""
        rule, size, limit = self.rule, self.block_size, sequence.goal.limit
        opened = sequence.window[-1].end if sequence.window else sequence.final
        full, rest = divmod(max(0, limit - opened), size)
        to_come = full * rule.bound(size) + (rule.bound(rest) if rest else 0)
        return sum(rule.measure(sequence, block) for block in sequence.window if self._open(block, limit)) + to_come

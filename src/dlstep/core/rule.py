"""A decoding rule: which positions to unmask after each forward pass, and which to remask."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from .block import Block
from .checks import short, values_of
from .contract import ascending, before_forward, falls, is_block, whole
from .errors import WrongAnswer
from .filtering import passes_left
from .options import Options
from .plan import PLAIN, SampleSpec, SpanSamples
from .sequence import SequenceState
from .spec import Spec


@dataclass(frozen=True, slots=True)
class Rule(Options, ABC):
    """A pure function from a block and its rows to the next block. Subclass as a frozen dataclass.

    A strategy may call a rule for several blocks of one forward pass. A rule may keep state in
    `block.extra`, as an `Extra` that does not depend on device contents.
    """

    @abstractmethod
    def commit(self, sequence: SequenceState, block: Block, rows: SpanSamples, begin: int, must: bool, spec: Spec) -> Block:
        """Return the block after a forward pass.

        Args:
            sequence: The sequence, which already counts the pass; the number of the pass is
                `draw(sequence, block)`.
            block: The block as it was fed.
            rows: Samples of the span. Row `begin + i` belongs to entry i of what `sampled` returned.
            begin: First row of the block.
            must: Whether the `measure` of the block has to decrease.
            spec: Facts of the model.
        """

    def sampled(self, block: Block, limit: int, number: int) -> tuple[int, ...]:
        """Return the positions that a forward pass samples: ascending, at least one.

        Args:
            block: The block to feed.
            limit: First position past the answer; from there on, positions are void.
            number: Number of the pass among those that sample the block, from 0.
        """
        return block.masked

    @property
    def remasks(self) -> bool:
        """Whether unmasked positions may be remasked; then only blocks without masks are settled."""
        return False

    @property
    def sample_spec(self) -> SampleSpec:
        """Statistics that the rule needs besides token and probability, and its tie-breaking."""
        return PLAIN

    def measure(self, sequence: SequenceState, block: Block) -> int:
        """Return an upper bound on the passes that the block still needs; every pass with `must` lowers it.

        Args:
            sequence: The sequence of the block.
            block: A block with masked positions.
        """
        return len(block.masked)

    def bound(self, size: int) -> int:
        """Return an upper bound on the forward passes of a fresh block.

        Args:
            size: Number of masked positions of the block.
        """
        return size

    def incompatibility(self, spec: Spec) -> str | None:
        """Return why the rule, or a rule inside it, cannot decode such a model; None if it can.

        Args:
            spec: Facts of the model.
        """
        inner = [part for part in values_of(self).values() if isinstance(part, Rule)]
        return next(filter(None, [rule.incompatibility(spec) for rule in inner]), None)


@dataclass(frozen=True, slots=True)
class CanvasRule(Rule):
    """A rule that also chooses which part of a canvas is a block or is fed.

    Derive a `Choice` that does so from both classes.
    """

    @property
    def whole(self) -> bool:
        """Whether the whole answer must be one block."""
        return False

    @property
    def grids(self) -> bool:
        """Whether strategies without a canvas, whose blocks form a grid, can use the rule as well."""
        return not self.whole

    @property
    def windowed(self) -> bool:
        """Whether a rule on the whole answer may feed just the part of the canvas from `fed`."""
        return False

    def opens(self, size: int, answer: int) -> int:
        """Return the maximum number of positions to open as a block.

        Args:
            size: Block size of the canvas.
            answer: Number of positions of the whole answer.
        """
        return answer if self.whole else size

    def ends(self, sequence: SequenceState, block: Block, rows: SpanSamples, size: int) -> int:
        """Return where a canvas block ends, after its first pass; later positions are dropped.

        Args:
            sequence: The sequence, which already counts the pass.
            block: The block as it was fed.
            rows: Samples of the span. Row i is entry i of the block's sampled positions.
            size: Block size of the canvas.
        """
        return block.end

    def fed(self, block: Block, since: int) -> tuple[int, int] | None:
        """Return start and end of the positions that a pass between two canvas refreshes feeds.

        None requests a refresh.

        Args:
            block: The block to feed.
            since: Number of positions that the last refresh and the passes after it unmasked.
        """
        return block.start, block.end


def needs_canvas(rule: Rule) -> bool:
    """Return whether only strategies that decode a canvas can use a rule.

    Args:
        rule: The rule.
    """
    return isinstance(rule, CanvasRule) and not rule.grids


@dataclass(frozen=True, slots=True)
class Choice(Rule):
    """A rule that never remasks, and unmasks each position with the token sampled there."""

    @abstractmethod
    def chosen(self, sequence: SequenceState, block: Block, rows: SpanSamples, begin: int, must: bool) -> list[int]:
        """Return the rows to unmask, ascending, at least one if `must`.

        Args:
            sequence: The sequence, which already counts the pass.
            block: The block as it was fed.
            rows: Samples of the span. Row `begin + i` belongs to `block.masked[i]`.
            begin: First row of the block.
            must: Whether the rule has to unmask at least one position. False only in a block after the first
                open one, if the share of unmasked positions in the block before it is below
                `semi_complete_threshold` and `spec.accept_rule` is A.
        """

    def commit(self, sequence: SequenceState, block: Block, rows: SpanSamples, begin: int, must: bool, spec: Spec) -> Block:
        """Return the block with the chosen rows unmasked."""
        chosen = chosen_by(self, sequence, block, rows, begin, must)
        return block.unmask_rows(chosen, begin, rows.tokens, rows.probabilities) if chosen else block

    def scores(self, sequence: SequenceState, block: Block, rows: SpanSamples, begin: int) -> Sequence[float]:
        """Return the score of each masked position, in order; the rule prefers high scores.

        The default score is the token's probability. Rules that wrap this rule read the scores.

        Args:
            sequence: The sequence, which already counts the pass.
            block: The block as it was fed.
            rows: Samples of the span. Row `begin + i` belongs to `block.masked[i]`.
            begin: First row of the block.
        """
        return rows.probabilities[begin : begin + len(block.masked)]


def draw(sequence: SequenceState, block: Block) -> int:
    """Return the number (from 0) of the pass just counted among those that sampled the block.

    Args:
        sequence: The sequence, which already counts the pass.
        block: A block of its window.
    """
    return sequence.steps - block.opened - 1


def best(rows: SpanSamples, begin: int, end: int) -> int:
    """Return the row with the most probable token; the first of equal ones.

    Args:
        rows: Samples of a span.
        begin: First row to consider.
        end: First row after those to consider.
    """
    of_block = rows.probabilities[begin:end]
    return begin + of_block.index(max(of_block))


def sampled_by(rule: Rule, block: Block, limit: int, number: int) -> tuple[int, ...]:
    """Return `rule.sampled(block, limit, number)`, checked: ascending positions that were not given, at least one.

    Args:
        rule: The rule.
        block: The block to feed.
        limit: First position past the answer.
        number: Number of the pass among those that sample the block, from 0.

    Raises:
        WrongAnswer: For other positions.
    """
    sampled = rule.sampled(block, limit, number)
    if sampled is block.masked:
        return block.masked
    if type(sampled) is not tuple or not ascending(sampled) or not sampled or not {*block.sampled(limit)}.issuperset(sampled):
        what = f"{short(sampled)}: it must be a tuple of ascending positions that the block samples, at least one"
        raise WrongAnswer(rule, "sampled", what)
    return sampled


def chosen_by(rule: Choice, sequence: SequenceState, block: Block, rows: SpanSamples, begin: int, must: bool) -> list[int]:
    """Return `rule.chosen(sequence, block, rows, begin, must)`, checked: ascending rows of masked positions.

    If `must`, a rule without a `measure` of its own has to choose at least one row.

    Args:
        rule: The rule.
        sequence: The sequence, which already counts the pass.
        block: The block as it was fed.
        rows: Samples of the span. Row `begin + i` belongs to `block.masked[i]`.
        begin: First row of the block.
        must: Whether the `measure` of the block has to decrease.

    Raises:
        WrongAnswer: For other rows.
    """
    chosen = rule.chosen(sequence, block, rows, begin, must)
    last = begin + len(block.masked) - 1
    if not ascending(chosen, begin) or (chosen and chosen[-1] > last):
        what = f"{short(chosen)}: it must be a list of ascending rows from {begin} to {last}"
        raise WrongAnswer(rule, "chosen", f"{what}{_wrong_with(chosen, block, begin)}")
    if must and not chosen and type(rule).measure is Rule.measure:
        raise WrongAnswer(rule, "chosen", "no row although must is true: it must unmask at least one, or decoding never ends")
    return chosen


def _wrong_with(chosen: Any, block: Block, begin: int) -> str:
    """Return a hint at what is wrong with the rows from `chosen`; empty if nothing is known."""
    if type(chosen) not in (tuple, list):
        return f", and this is a {type(chosen).__name__}"
    if (other := next((row for row in chosen if type(row) is not int), None)) is not None:
        return f", and {short(other)} is a {type(other).__name__}: convert each row by int()"
    if set(chosen) <= set(block.masked):
        return f", and these are positions: the row of block.masked[i] is begin + i, begin is {begin}"
    return "" if ascending(chosen) else ", and these do not ascend: return sorted(set(rows))"


def committed_by(
    rule: Rule, sequence: SequenceState, block: Block, rows: SpanSamples, begin: int, must: bool, spec: Spec
) -> Block:
    """Return `rule.commit(sequence, block, rows, begin, must, spec)`, checked: the same positions, sampled or given tokens.

    Only a rule with a `commit` of its own is checked: `Choice.commit` unmasks rows that were checked.

    Args:
        rule: The rule.
        sequence: The sequence, which already counts the pass.
        block: The block as it was fed.
        rows: Samples of the span.
        begin: First row of the block.
        must: Whether the `measure` of the block has to decrease; `check_falls` checks that it does.
        spec: Facts of the model.

    Raises:
        WrongAnswer: For another block.
    """
    after: Any = rule.commit(sequence, block, rows, begin, must, spec)
    if type(rule).commit is Choice.commit:
        return after
    wrong = partial(WrongAnswer, rule, "commit")
    if not is_block(after, type(block)):
        raise wrong(
            f"{short(after)}: it must be a Block (not a subclass) whose fields are whole numbers, tuples of them, and "
            "probabilities from 0 to 1"
        )
    if after is block:
        return after
    size, start = len(block.tokens), block.start
    layout = (after.start, len(after.tokens), len(after.probabilities), after.given, after.opened)
    if layout != (start, size, size, block.given, block.opened):
        raise wrong("a block of other positions or with other given tokens")
    free = set(block.sampled(sequence.request.limit))
    if not ascending(after.masked) or not free.issuperset(after.masked):
        raise wrong(f"masked={short(after.masked)}: masked positions must ascend, and none may be a given one")
    if not rule.remasks and not set(block.masked).issuperset(after.masked):
        raise wrong("a block with new masks, but `remasks` of the rule is False")
    masked, sampled = set(after.masked), {*rows.tokens, *rows.best_ids, *block.tokens} - {spec.mask_id}
    for position, old, new in zip(range(start, after.end), block.tokens, after.tokens, strict=True):
        right = new == old if position not in free else new == spec.mask_id if position in masked else new in sampled
        if not right:
            allowed = "a given position keeps its token, a masked one holds the mask id, any other holds a sampled token"
            raise wrong(f"token {short(new)} at position {position}: {allowed}")
    return after


def check_falls(rule: Rule, sequence: SequenceState, before: Block, after: Block) -> None:
    """Check that a pass that had to advance lowered the `measure` of a block, or unmasked all of it.

    Args:
        rule: The rule of the block.
        sequence: The sequence, which already counts the pass.
        before: The block as it was fed.
        after: The block after the pass.

    Raises:
        WrongAnswer: If the measure did not fall.
    """
    # A rule that remasks can unmask positions in every forward pass and still cycle forever.
    if type(rule).measure is Rule.measure and type(rule).commit is Choice.commit:
        return  # it unmasked a position: `chosen_by` has checked that
    if not after.masked:
        return
    was, now = rule.measure(before_forward(sequence), before), rule.measure(sequence, after)
    if sequence.request.constraint is not None and whole((was, now)):
        was = passes_left(sequence, before, was, remasks=rule.remasks)
        now = passes_left(sequence, after, now, remasks=rule.remasks)
    if not falls(was, now):
        raise WrongAnswer(rule, "commit", f"a block of measure {short(now)} after {short(was)}: it must fall when must is true")

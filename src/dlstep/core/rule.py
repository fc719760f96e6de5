"""A decoding rule: which positions to unmask after each forward pass, and which to remask."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from .block import Block
from .block_pass import BlockPass, PlannedPass, planned_pass
from .checks import short, values_of
from .contract import ascending, falls, is_block, whole
from .errors import Refusal, WrongAnswer
from .filtering import passes_left
from .options import Options
from .plan import PLAIN, SampleSpec
from .spec import Positions, Spec


@dataclass(frozen=True, slots=True)
class Rule(Options, ABC):
    """A pure function from a block and its samples to the next block. Subclass as a frozen dataclass.

    A forward pass may feed several blocks of a request; a rule always sees one of them, as a
    `BlockPass`. A rule may keep state in `block.extra`, as an `Extra` that does not depend on device
    contents.
    """

    remasks: ClassVar[bool] = False
    """Whether unmasked positions may be remasked; then only blocks without masks are settled."""

    @abstractmethod
    def commit(self, block_pass: BlockPass) -> Block:
        """Return the block after a forward pass.

        Args:
            block_pass: The pass with its samples.
        """

    def sampled(self, planned: PlannedPass) -> Positions:
        """Return the positions that a forward pass samples: ascending, at least one.

        Args:
            planned: The pass before it runs.
        """
        return planned.block.masked

    @property
    def sample_spec(self) -> SampleSpec:
        """Statistics that the rule needs besides token and probability, and its tie-breaking."""
        return PLAIN

    def measure(self, planned: PlannedPass) -> int:
        """Return an upper bound on the passes that the block still needs; every pass with `must` lowers it.

        Args:
            planned: The next pass of a block with masked positions.
        """
        return len(planned.block.masked)

    def bound(self, size: int) -> int:
        """Return an upper bound on the forward passes of a fresh block.

        Args:
            size: Number of masked positions of the block.
        """
        return size

    def refusal(self, spec: Spec) -> Refusal | None:
        """Return why the rule, or a rule inside it, cannot decode a model; None if it can.

        Args:
            spec: Facts of the model.
        """
        inner = [part for part in values_of(self).values() if isinstance(part, Rule)]
        return next(filter(None, [rule.refusal(spec) for rule in inner]), None)


@dataclass(frozen=True, slots=True)
class CanvasRule(Rule):
    """A rule that also chooses which part of a canvas is a block or is fed.

    Derive a `Choice` that does so from both classes.
    """

    whole: ClassVar[bool] = False
    """Whether the whole answer must be one block."""
    windowed: ClassVar[bool] = False
    """Whether a rule on the whole answer may feed just the part of the canvas from `fed`."""

    @property
    def grids(self) -> bool:
        """Whether strategies without a canvas, whose blocks form a grid, can use the rule as well."""
        return not self.whole

    def opens(self, size: int, answer: int) -> int:
        """Return the maximum number of positions to open as a block.

        Args:
            size: Block size of the canvas.
            answer: Number of positions of the whole answer.
        """
        return answer if self.whole else size

    def ends(self, block_pass: BlockPass, size: int) -> int:
        """Return where a canvas block ends, after its first pass. Later positions become part of later blocks.

        Args:
            block_pass: The first pass of the block.
            size: Block size of the canvas.
        """
        return block_pass.block.end

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
    """A rule that samples all masked positions, never remasks, and unmasks each position with the token sampled there."""

    @abstractmethod
    def chosen(self, block_pass: BlockPass) -> list[int]:
        """Return the indices of the masked positions to unmask: ascending, at least one if `block_pass.must`.

        Index i stands for position `block.masked[i]`, whose samples are entry i of `block_pass.samples`.

        Args:
            block_pass: The pass with its samples.
        """

    def commit(self, block_pass: BlockPass) -> Block:
        """Return the block with the chosen positions unmasked."""
        chosen = self.chosen(block_pass)
        check_chosen(self, block_pass, chosen)
        block, samples = block_pass.block, block_pass.samples
        return block.unmask_rows(chosen, samples.tokens, samples.probabilities) if chosen else block

    def scores(self, block_pass: BlockPass) -> Sequence[float]:
        """Return the score of each masked position, in order; the rule prefers high scores.

        The default score is the token's probability. Rules that wrap this rule read the scores.

        Args:
            block_pass: The pass with its samples.
        """
        return block_pass.samples.probabilities


def sampled_by(rule: Rule, planned: PlannedPass) -> Positions:
    """Return `rule.sampled(planned)`, checked: ascending positions that were not given, at least one.

    Args:
        rule: The rule.
        planned: The pass before it runs.

    Raises:
        WrongAnswer: For other positions.
    """
    block, sampled = planned.block, rule.sampled(planned)
    if sampled is block.masked:
        return sampled
    free = {*planned.free}
    if type(sampled) is not tuple or not ascending(sampled) or not sampled or not free.issuperset(sampled):
        what = f"{short(sampled)}: it must be a tuple of ascending positions that the block samples, at least one"
        raise WrongAnswer(rule, "sampled", what)
    return sampled


def check_chosen(rule: Choice, block_pass: BlockPass, chosen: Any) -> None:
    """Check the result of `rule.chosen(block_pass)`: ascending indices of masked positions, which the pass sampled.

    If `must`, a rule that does not override `measure` has to choose at least one index.

    Args:
        rule: The rule.
        block_pass: The pass with its samples.
        chosen: The result.

    Raises:
        WrongAnswer: For another result.
    """
    count = len(block_pass.block.masked)
    if type(rule).sampled is not Rule.sampled and block_pass.sampled != block_pass.block.masked:
        what = f"{short(block_pass.sampled)}: a Choice must sample block.masked, because `chosen` returns indices into it"
        raise WrongAnswer(rule, "sampled", f"{what}: derive from Rule to sample other positions")
    if not ascending(chosen) or (chosen and chosen[-1] >= count):
        what = f"{short(chosen)}: it must be a list of ascending indices into block.masked, from 0 to {count - 1}"
        raise WrongAnswer(rule, "chosen", f"{what}{_wrong_with(chosen, block_pass.block)}")
    if block_pass.must and not chosen and type(rule).measure is Rule.measure:
        raise WrongAnswer(rule, "chosen", "no index although must is true: it must unmask at least one, or decoding never ends")


def _wrong_with(chosen: Any, block: Block) -> str:
    """Return a hint at what is wrong with the indices from `chosen`; empty if nothing is known."""
    if type(chosen) not in (tuple, list):
        return f", and this is a {type(chosen).__name__}"
    if (other := next((index for index in chosen if type(index) is not int), None)) is not None:
        return f", and {short(other)} is a {type(other).__name__}: convert each index by int()"
    if set(chosen) <= set(block.masked):
        return ", and these are positions: the index of position block.masked[i] is i"
    return "" if ascending(chosen) else ", and these do not ascend: return sorted(set(indices))"


def check_committed(rule: Rule, block_pass: BlockPass, after: Any) -> None:
    """Check the result of `rule.commit(block_pass)`: a block of the same positions, with sampled or given tokens.

    Args:
        rule: The rule.
        block_pass: The pass with its samples.
        after: The result.

    Raises:
        WrongAnswer: For another result.
    """
    # `Choice.commit` unmasks indices that were checked.
    if type(rule).commit is not Choice.commit and (flaw := _flaw_of(rule, block_pass, after)):
        raise WrongAnswer(rule, "commit", flaw)


def _flaw_of(rule: Rule, block_pass: BlockPass, after: Any) -> str | None:
    """Return what is wrong with a block from `commit`; None if nothing is."""
    block, samples, mask_id = block_pass.block, block_pass.samples, block_pass.spec.mask_id
    if not is_block(after, type(block)):
        return (
            f"{short(after)}: it must be a Block (not a subclass) whose fields are whole numbers, tuples of them, and "
            "probabilities from 0 to 1"
        )
    if after is block:
        return None
    size, start = len(block.tokens), block.start
    layout = (after.start, len(after.tokens), len(after.probabilities), after.given, after.opened)
    if layout != (start, size, size, block.given, block.opened):
        return "a block of other positions or with other given tokens"
    free = set(block_pass.free)
    if not ascending(after.masked) or not free.issuperset(after.masked):
        return f"masked={short(after.masked)}: masked positions must ascend, and none may be a given one"
    if not rule.remasks and not set(block.masked).issuperset(after.masked):
        return "a block with new masks, but `remasks` of the rule is False"
    masked, sampled = set(after.masked), {*samples.tokens, *samples.best_ids, *block.tokens} - {mask_id}
    for position, old, new in zip(range(start, after.end), block.tokens, after.tokens, strict=True):
        right = new == old if position not in free else new == mask_id if position in masked else new in sampled
        if not right:
            allowed = "a given position keeps its token, a masked one holds the mask id, any other holds a sampled token"
            return f"token {short(new)} at position {position}: {allowed}"
    return None


def check_falls(rule: Rule, block_pass: BlockPass, after: Block) -> None:
    """Check that a pass that had to advance lowered the `measure` of a block, or unmasked all of it.

    Args:
        rule: The rule of the block.
        block_pass: The pass with its samples.
        after: The block after the pass.

    Raises:
        WrongAnswer: If the measure did not fall.
    """
    # A rule that remasks can unmask positions in every forward pass and still cycle forever.
    if not after.masked:
        return
    sequence = block_pass.sequence
    was, now = rule.measure(block_pass.planned), rule.measure(planned_pass(sequence, after))
    if sequence.request.constraint is not None and whole((was, now)):
        was = passes_left(sequence, block_pass.block, was, remasks=rule.remasks)
        now = passes_left(sequence, after, now, remasks=rule.remasks)
    if not falls(was, now):
        raise WrongAnswer(rule, "commit", f"a block of measure {short(now)} after {short(was)}: it must fall when must is true")

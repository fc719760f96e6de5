"""Operations that blockwise strategies share: open, feed, unmask, seal and retire blocks.

A block is *open* while its tokens may change, and *sealed* once neither it nor any earlier block
can change. Without remasking, a block can no longer change once all its positions are unmasked. A sealed
block is final and leaves the window, so that the next block can open: the core stores its keys and
values with the next forward pass.
"""

from abc import abstractmethod
from dataclasses import dataclass, replace
from math import inf, nextafter

from ..core import (
    Block,
    BlockPass,
    Choice,
    Extra,
    Grid,
    Ids,
    Positions,
    PositiveInt,
    Probability,
    Progress,
    Refusal,
    Request,
    Rows,
    Rule,
    SampleSpec,
    SequenceState,
    Share,
    SoftTokens,
    Span,
    SpanSamples,
    Spec,
    Strategy,
    Wanted,
    check_committed,
    needs_canvas,
    open_block,
    planned_pass,
    sampled_by,
    samples_of,
)
from ..core.filtering import WindowFilter, passes_left, passes_to_come, window_filter_of
from ..core.rule import check_falls
from ..rules._shares import in_parts
from ..rules.threshold import Threshold


def required_mask(spec: Spec) -> int:
    """Return the mask id of a model that has one, as `refusal_without_mask` has checked."""
    assert spec.mask_id is not None
    return spec.mask_id


def refusal_without_mask(spec: Spec) -> Refusal | None:
    """Return why a strategy that feeds masks cannot decode the model; None if it can."""
    message = "the model has no mask id, with which masked positions are fed"
    return None if spec.mask_id is not None else Refusal("decoding_strategy", "unsupported", message)


def refusal_of_head(spec: Spec, head_shift: int) -> Refusal | None:
    """Return why a strategy for models with a mask id and this `head_shift` cannot decode the model; None if it can."""
    if spec.head_shift == head_shift:
        return refusal_without_mask(spec)
    rows = "the row before a block must predict its first token" if head_shift else "rows must predict their own positions"
    return Refusal("decoding_strategy", "unsupported", f"its head_shift is {spec.head_shift}; {rows}")


@dataclass(frozen=True, slots=True)
class Refreshed(Extra):
    """State of a sequence after a refresh: the device stores keys and values of all positions that its passes see.

    `num_masked` is the number of masked positions at the last refresh, for rules that need it.
    """

    num_masked: int = 0


def opened(sequence: SequenceState, start: int, size: int, spec: Spec) -> Block:
    """Return a fresh block of the sequence at `start`, which the next pass may sample."""
    request = sequence.request
    return open_block(start, size, request.limit, request.prompt, required_mask(spec), sequence.steps, request.params.pinned)


def refusal_of_rule(rule: Rule, spec: Spec) -> Refusal | None:
    """Return why a strategy cannot decode the model in a grid of blocks by the rule; None if it can."""
    if needs_canvas(rule):
        return Refusal(
            "rule",
            "unsupported",
            f"{type(rule).__name__} reads more than one block, which needs a canvas: give decoding_strategy='dual_cache', or "
            "another rule",
        )
    return refusal_without_mask(spec) or rule.refusal(spec)


def untempered(rule: Rule) -> SampleSpec:
    """Return the statistics that a rule needs, with untempered probabilities; ties go to the lowest id.

    Rules that draw from the most probable ids compute from the margin which of these ids the filters keep.
    """
    spec = rule.sample_spec
    statistics = spec.statistics | {"margin"} if spec.best else spec.statistics
    return replace(spec, statistics=statistics, ties="lowest", tempered=False)


def sampled_for(rule: Rule, sequence: SequenceState, block: Block) -> Positions:
    """Return the positions of a block with masks that its rule samples in the next pass."""
    if type(rule).sampled is Rule.sampled:  # the default, without a call: saves 1 us
        return block.masked
    return sampled_by(rule, planned_pass(sequence, block))


def decided(rule: Rule, block_pass: BlockPass, window_filter: WindowFilter | None) -> Block:
    """Return the block after the rule's `commit`, checked, and within the constraint of the request.

    With a filter, the block of `block_pass` is the one that its `enter` returned last.
    """
    block, must = block_pass.block, block_pass.must
    after = rule.commit(block_pass)
    of_choice = type(rule).commit is Choice.commit  # then `check_chosen` has checked the indices
    if not of_choice:
        check_committed(rule, block_pass, after)
    if window_filter is not None:
        after = window_filter.leave(after, block)
        # Under a constraint, only the first block must advance: earlier blocks may rule out every token of a later one.
        must = must and block.start == block_pass.sequence.progress.window[0].start
    if must and not (of_choice and type(rule).measure is Rule.measure):
        check_falls(rule, block_pass, after)
    return after


def decided_alone(rule: Rule, sequence: SequenceState, block: Block, span: Span, samples: SpanSamples, spec: Spec) -> Block:
    """Return the only block that a pass sampled after the rule's `commit`; it must advance.

    Later blocks of the window hold only masks and pinned tokens, which the constraint already includes.
    """
    window_filter = window_filter_of(sequence, (block,))
    fed = block if window_filter is None else window_filter.enter(block)
    return decided(rule, BlockPass(fed, sequence, samples_of(fed, span, samples), spec), window_filter)


def block_passes(rule: Rule, sequence: SequenceState, block: Block) -> int:
    """Return an upper bound on the passes that a block still needs by the rule, within the constraint of the request."""
    return (
        passes_left(sequence, block, rule.measure(planned_pass(sequence, block)), remasks=rule.remasks) if block.masked else 0
    )


# How a window advances.
#
# After each pass, `Blocks._progress` moves three ends to the right, and never back: `final`, up to which the core may store
# keys and values; `settled`, up to which tokens are emitted; and the end of the window, where the next block opens.
# A block is sealed only once all blocks before it are: it may have no masks left, but its keys and values still depend on
# the earlier blocks, and so may its tokens if the rule remasks. The tokens of the last block settle, but if the block has
# void positions, it never becomes final.
# Sealed blocks leave the window at once, and the core feeds them together with the next window.
# A pass opens at most one block that has masks. A block that is full of pinned tokens needs no pass and is sealed as it
# opens, which is why `_progress` loops.
@dataclass(frozen=True, slots=True)
class Blocks(Strategy):
    """A window of blocks, decoded from left to right; subclasses define feeding and changes.

    The window has at most `buffer_size` blocks. A pass opens a block with masks if there is room for one,
    the share of unmasked positions in the last block is at least `add_block_threshold`, its
    `stable_share` is at least `token_stability_threshold`, and no block of the window has a token
    that ends the answer.
    """

    block_size: PositiveInt = 32
    """Positions of a block."""
    buffer_size: PositiveInt = 4
    """Maximum number of unfinished blocks; 1 is single-block diffusion."""
    add_block_threshold: Probability = 0.1
    """Open the next block when this fraction of the last one is unmasked."""
    token_stability_threshold: Probability = 0.0
    """Above 0: open the next block only when the last one has no masks; with strategies that change tokens, when its last pass
    kept this share of its tokens."""

    @abstractmethod
    def sampled(self, sequence: SequenceState, block: Block) -> Positions:
        """Return the positions of an open block that the next pass samples, ascending.

        Args:
            sequence: The sequence before the pass.
            block: A block of its window.
        """

    @abstractmethod
    def next_blocks(self, sequence: SequenceState, span: Span, samples: SpanSamples, spec: Spec) -> tuple[Block, ...]:
        """Return the blocks of `sequence.progress.window` after a forward pass.

        Args:
            sequence: The sequence, which already counts the pass.
            span: The span that ran.
            samples: Samples of the span.
            spec: Facts of the model.
        """

    @abstractmethod
    def settled_end(self, block: Block) -> int:
        """Return the end of the block's tokens that cannot change if nothing before them does.

        Args:
            block: A block of the window.
        """

    @abstractmethod
    def stable_share(self, block: Block) -> float:
        """Return the share of the block that is compared with `token_stability_threshold`.

        Args:
            block: The last block of the window.
        """

    def soft(self, blocks: tuple[Block, ...], limit: int) -> SoftTokens | None:
        """Return the soft inputs of the open blocks; None if there are none.

        Args:
            blocks: The open blocks.
            limit: First position past the answer.
        """
        return None

    def penalty(self) -> float:
        """Return what is subtracted at each position from the logit of the token before it."""
        return 0.0

    def refusal(self, spec: Spec, request: Request) -> Refusal | None:
        """Return why a model without masks cannot be decoded; None for other models."""
        return refusal_without_mask(spec)

    def init(self, sequence: SequenceState, spec: Spec) -> Progress:
        """Open the window at the prompt's last group boundary; all earlier positions are final."""
        first = sequence.request.grid.start(len(sequence.request.prompt))
        return self._progress(sequence, (opened(sequence, first, self.block_size, spec),), first, spec)

    def schedule(self, sequence: SequenceState, spec: Spec) -> Span:
        """Return a span of all open blocks that samples what each of them needs."""
        request, blocks, steps = sequence.request, sequence.progress.window, sequence.steps
        tokens: Ids = ()
        sampled: Positions = ()
        draws: tuple[int, ...] = ()
        for block in blocks:
            of_block = self.sampled(sequence, block)
            tokens += block.tokens
            sampled += of_block
            draws += (steps - block.opened,) * len(of_block)
        final, soft = sequence.progress.final, self.soft(blocks, request.limit)
        rows = Rows(final, tokens, final + len(tokens), request.grid, soft=soft)
        return Span(request.who, rows, Wanted(sampled, draws, penalty=self.penalty()))

    def commit(self, sequence: SequenceState, span: Span, samples: SpanSamples, spec: Spec) -> Progress:
        """Apply the results, seal complete blocks and open the next block."""
        window = self.next_blocks(sequence, span, samples, spec)
        return self._progress(sequence, window, sequence.progress.final, spec)

    def grid(self, request: Request) -> Grid:
        """Return groups of `block_size` from position 0 on."""
        return Grid(0, self.block_size)

    def rows_at_once(self, request: Request) -> int:
        """Return the size of a full window, or of the prompt's group if that is larger."""
        return max(self.grid(request).origin, self.block_size * self.buffer_size)

    def _progress(self, sequence: SequenceState, window: tuple[Block, ...], final: int, spec: Spec) -> Progress:
        """Return the progress with finished blocks sealed and, if one may open, the next block."""
        limit, past = sequence.request.limit, sequence.progress.past
        if len(window) >= self.buffer_size and window[0].masked:  # no block to seal, no room for another: saves 1 us
            end = self.settled_end(window[0])
            return Progress(window, final, end if end < limit else limit, past)
        while True:  # each iteration seals complete blocks and opens at most one
            final, settled = self._settled(window, final, limit)
            while window and window[0].end <= final:
                past, window = past.push_front(window[0].sealed()), window[1:]
            if settled >= limit:  # the answer is complete
                break
            before, window = window, self._opened(sequence, window, final, spec)
            if window is before or settled < window[-1].start:  # no block opened, or an earlier block is incomplete
                break
            if window[-1].masked:
                settled = self.settled_end(window[-1])  # the block may begin with pinned tokens
                break
            # Pinned tokens fill the new block: seal it, and open the one after it.
        return Progress(window, final, settled, past)

    def _settled(self, window: tuple[Block, ...], final: int, limit: int) -> tuple[int, int]:
        """Return the ends of final and of settled positions; those before `final` are final."""
        settled = final
        for block in window:
            end = self.settled_end(block)
            settled = min(end, limit)
            if end < block.end:  # this block may change, and so all later ones
                break
            if block.end <= limit:  # void positions never become final
                final = block.end
        return final, settled

    def _opened(self, sequence: SequenceState, window: tuple[Block, ...], final: int, spec: Spec) -> tuple[Block, ...]:
        """Return `window`, with a new block if there is room for one and no condition of the class forbids it."""
        if len(window) >= self.buffer_size:
            return window
        request, length = sequence.request, len(sequence.request.prompt)
        start = window[-1].end if window else final
        if start >= request.limit:
            return window
        if window and window[-1].unmasked_share < self.add_block_threshold:
            return window
        if window and self.stable_share(window[-1]) < self.token_stability_threshold:
            return window
        if any(stop_id in block.tokens[max(length - block.start, 0) :] for block in window for stop_id in request.stop_ids):
            return window
        return (*window, opened(sequence, start, self.block_size, spec))


@dataclass(frozen=True, slots=True)
class Blockwise(Blocks):
    """A grid of blocks that a rule decodes.

    The first unfinished block must advance in each pass; a later one only if the previous block is
    unmasked to at least `semi_complete_threshold` (accept rule "A"), or always (rule "B").
    """

    holds_pins = True
    takes_constraints = True  # blocks drop tokens that contradict the constraint
    rule: Rule = Threshold()
    """The rule that selects positions to unmask after a forward pass."""
    semi_complete_threshold: Share = 0.9
    """A block must advance in each pass once this fraction of the previous block is unmasked."""

    def refusal(self, spec: Spec, request: Request) -> Refusal | None:
        """Return why the rule or the model does not fit; None if both do."""
        return refusal_of_rule(self.rule, spec)

    @property
    def sample_spec(self) -> SampleSpec:
        """The statistics that the rule needs."""
        return self.rule.sample_spec

    @property
    def certain_from(self) -> float | None:
        """The lowest probability at which the rule unmasks a token; None if anything else decides."""
        rule = self.rule
        if not isinstance(rule, Threshold) or rule.order != "confidence" or rule.falling or self.buffer_size > 1:
            return None
        return rule.accept_threshold if rule.inclusive else nextafter(rule.accept_threshold, inf)

    def sampled(self, sequence: SequenceState, block: Block) -> Positions:
        """Return the positions that the rule samples in a block with masks; none for other blocks."""
        return sampled_for(self.rule, sequence, block) if block.masked else ()

    def settled_end(self, block: Block) -> int:
        """Return the end of the tokens that cannot change. In a block with masks, a rule that remasks may change any token."""
        if not block.masked:
            return block.end
        return block.first if self.rule.remasks else block.masked[0]

    def stable_share(self, block: Block) -> float:
        """Return 0.0 for a block with masks, else 1.0."""
        return 0.0 if block.masked else 1.0

    def next_blocks(self, sequence: SequenceState, span: Span, samples: SpanSamples, spec: Spec) -> tuple[Block, ...]:
        """Return the blocks after the rule's commits.

        Whether a block must advance depends on the previous block as it was fed.
        """
        forced, window_filter = spec.accept_rule == "B", window_filter_of(sequence, sequence.progress.window)
        blocks: list[Block] = []
        must = True
        for block in sequence.progress.window:
            fed = block if window_filter is None else window_filter.enter(block)
            if block.masked:
                block_pass = BlockPass(fed, sequence, samples_of(fed, span, samples), spec, must or forced)
                blocks.append(decided(self.rule, block_pass, window_filter))
            else:
                blocks.append(block if window_filter is None else window_filter.leave(block, fed))
            must = block.unmasked_share >= self.semi_complete_threshold
        return tuple(blocks)

    def measure(self, sequence: SequenceState) -> int:
        """Return a bound on the passes for the open blocks and for those to come."""
        rule, limit = self.rule, sequence.request.limit
        window = sequence.progress.window
        opened = window[-1].end if window else sequence.progress.final
        unopened = max(0, limit - opened)
        of_window = sum(block_passes(rule, sequence, block) for block in window)
        return of_window + passes_to_come(sequence, in_parts(unopened, self.block_size, rule.bound), unopened)

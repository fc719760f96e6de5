"""Multi-block diffusion with edit sampling: fill masks and edit tokens until a block is stable.

Every pass fills at least one mask, and replaces tokens that it predicts differently. A block is
ready when a pass changes nothing in it, or after enough passes. Source: Bie et al., "LLaDA2.1:
Speeding Up Text Diffusion via Token Editing", 2026, arXiv 2602.08676; SGLang's `joint_threshold`.
"""

from dataclasses import dataclass, replace
from itertools import compress
from operator import ne
from typing import final

from ..core import (
    Block,
    NonNegativeFloat,
    NonNegativeInt,
    Positions,
    Probability,
    Refused,
    SampleSpec,
    SequenceState,
    Span,
    SpanSamples,
    Spec,
    positions,
)
from ..core.filtering import FilteredBlock, window_filter_of
from ._blocks import required_mask
from ._edit import Revising, Revision, without_gaps

SAMPLE_SPEC = SampleSpec(ties="lowest", tempered=False)
REMASK_THRESHOLD = 0.4


@dataclass(frozen=True, slots=True)
class Edited(Revision):
    """State of an edited block.

    `post` counts passes without a mask in it; `remasked` is a bitmap of its remasked offsets.
    """

    post: int = 0
    remasked: int = 0


NEW = Edited()
STEADY = Edited(stable=1.0)


@final
@dataclass(frozen=True, slots=True)
class MultiBDEdit(Revising):
    """Blocks on the model's grid, filled and edited; see `Blocks` for the other fields.

    A mask is filled if its token's probability is above `accept_threshold`, and a block's most
    certain one always. A token is replaced if another one is best with a probability above
    `edit_threshold`. A block is ready when neither happens, when more than `max_post_edit_steps`
    passes found no mask in it (the last edits are dropped), or after `block_size` +
    `max_post_edit_steps` passes and one more, which fills all masks. `penalty_lambda` is subtracted
    from the logit of the preceding token in the block, against repetition.

    With `remasking`, a position is remasked, once, if the best token there (even the same one) has
    a probability below `remask_threshold` (0.4 if None).
    """

    takes_constraints = True
    accept_threshold: Probability = 0.9
    """Fill a mask when the probability of its token is above this."""
    edit_threshold: Probability = 0.0
    """Replace an unmasked token when another one is best with a probability above this."""
    max_post_edit_steps: NonNegativeInt = 16
    """Passes that may still change a block once it has no mask."""
    penalty_lambda: NonNegativeFloat = 0.0
    """Subtracted from the logit of the token before a position, against repetition."""
    remasking: bool = False
    """Remask a position, at most once, when its probability falls below `remask_threshold`."""
    remask_threshold: Probability | None = None
    """With `remasking`: remask below this probability; None: 0.4."""

    def __post_init__(self) -> None:
        Revising.__post_init__(self)
        if self.remask_threshold is not None and not self.remasking:
            raise Refused("remask_threshold", "conflict", f"{self.remask_threshold} has no effect without remasking=True")

    @property
    def sample_spec(self) -> SampleSpec:
        """Lowest id in ties, untempered probabilities."""
        return SAMPLE_SPEC

    @property
    def most_forwards(self) -> int:
        """One pass per position, the later edits, and one that fills all masks."""
        return self.block_size + self.max_post_edit_steps + 1

    def penalty(self) -> float:
        """Return `penalty_lambda`."""
        return self.penalty_lambda

    def next_blocks(self, sequence: SequenceState, span: Span, samples: SpanSamples, spec: Spec) -> tuple[Block, ...]:
        """Return the open blocks with their masks filled and their tokens edited."""
        blocks, late = sequence.progress.window, sequence.steps - self.most_forwards
        first = blocks[0].first
        if sequence.request.params.pinned:
            samples = without_gaps(samples, span, blocks, sequence.request.limit)
        chosen, changes = _compared(blocks, first, samples, self.accept_threshold, required_mask(spec))
        calm = not (changes or self.remasking)
        window_filter = window_filter_of(sequence, blocks)
        revised: list[Block] = []
        for fed, fills in zip(blocks, chosen, strict=True):
            block = fed if window_filter is None else window_filter.enter(fed)
            if calm and fills:  # without remasking, such a block was never full, so its passes need not be checked
                after = _rewritten(block, first, fills, [], samples, STEADY)
            else:
                mine = [position for position in changes if block.start <= position < block.end]
                if block.opened <= late:
                    after = self._timed_out(block, first, mine, samples)
                else:
                    end = min(block.end, sequence.request.limit)
                    after = self._edited(block, first, fills, mine, end, samples, spec)
            revised.append(after if window_filter is None else window_filter.leave(after, block))
        return tuple(revised)

    def _edited(
        self, block: Block, first: int, fills: list[int], changes: list[int], end: int, samples: SpanSamples, spec: Spec
    ) -> Block:
        """Return the block after a pass; row `i` belongs to position `first + i`.

        `fills` are the masks to fill, `changes` its tokens that differ now. `end` is the end of its
        sampled positions.
        """
        before = block.extra if isinstance(block.extra, Edited) else NEW
        masked, stable = block.masked, 1.0
        if changes:
            stable -= len(changes) / (end - block.start - block.given.bit_count() - len(masked))
            changes = self._edits(changes, first, samples)
        post = before.post if masked else before.post + 1
        unsure = self._unsure(block, first, end, samples) if self.remasking else ()
        if not masked and (post > self.max_post_edit_steps or not (changes or unsure)):
            return block.with_extra(Edited(True, stable, post, before.remasked))
        after = _rewritten(block, first, fills, changes, samples, Edited(False, stable, post, before.remasked))
        return _remasked(after, unsure, required_mask(spec)) if unsure else after

    def _timed_out(self, block: Block, first: int, changes: list[int], samples: SpanSamples) -> Block:
        """Return the block with every mask filled and the last edits."""
        before = block.extra if isinstance(block.extra, Edited) else NEW
        after = Edited(True, 1.0, before.post + (not block.masked), before.remasked)
        full = _rewritten(block, first, list(block.masked), self._edits(changes, first, samples), samples, after)
        return full.with_extra(replace(after, ready=False)) if full.masked else full  # a constraint dropped tokens

    def _edits(self, changes: list[int], first: int, samples: SpanSamples) -> list[int]:
        """Return those of the positions `changes` whose new token is probable enough."""
        return [position for position in changes if samples.probabilities[position - first] > self.edit_threshold]

    def _unsure(self, block: Block, first: int, end: int, samples: SpanSamples) -> Positions:
        """Return the positions to remask: unmasked, now unsure, and never remasked before."""
        least = REMASK_THRESHOLD if self.remask_threshold is None else self.remask_threshold
        start = block.first
        probabilities = samples.probabilities[start - first : end - first]
        done = block.extra.remasked if isinstance(block.extra, Edited) else 0
        low = [position for position, probability in enumerate(probabilities, start) if probability < least]
        return tuple([p for p in low if p not in block.masked and not done >> (p - block.start) & 1])


def _compared(
    blocks: tuple[Block, ...], first: int, samples: SpanSamples, accept: float, mask: int
) -> tuple[list[list[int]], list[int]]:
    """Return the masks to fill, block by block, and all positions whose token differs now.

    A block fills the masks above `accept`, otherwise the first most certain one. Row `i` is
    position `first + i`.
    """
    probabilities, now = samples.probabilities, list(samples.tokens)
    chosen: list[list[int]] = []
    held: list[int] = []
    for block in blocks:
        held += block.tokens
        masked = block.masked
        most, surest = -1.0, 0
        for position in masked:
            row = position - first
            now[row] = mask  # a mask is no change
            probability = probabilities[row]
            if probability > most:
                most, surest = probability, position
        if most > accept:
            chosen.append([position for position in masked if probabilities[position - first] > accept])
        else:
            chosen.append([surest] if masked else [])
    del held[: first - blocks[0].start], held[len(now) :]  # given and void positions
    if held == now:
        return chosen, []
    return chosen, list(compress(positions(first, first + len(now)), map(ne, held, now)))


def _remasked(block: Block, unsure: Positions, mask: int) -> Block:
    """Return the block with the positions `unsure` remasked."""
    extra = block.extra
    assert isinstance(extra, Edited)
    done = sum(1 << (position - block.start) for position in unsure)
    return block.remask(unsure, mask).with_extra(replace(extra, remasked=extra.remasked | done))


def _rewritten(block: Block, first: int, fills: list[int], edits: list[int], samples: SpanSamples, extra: Edited) -> Block:
    """Return the block with `fills` and `edits` written; row `i` is position `first + i`."""
    start, tokens, probabilities = block.start, samples.tokens, samples.probabilities
    if isinstance(block, FilteredBlock):
        # Fill masks before editing tokens, so that each pass fills at least one mask of the first block.
        for write, places in ((FilteredBlock.unmask, fills), (FilteredBlock.edit, edits)):
            at = [position - first for position in places]
            block = write(block, places, [tokens[row] for row in at], [probabilities[row] for row in at])
        return block.with_extra(extra)
    masked = list(block.masked)
    new_tokens, new_probabilities = list(block.tokens), list(block.probabilities)
    for position in fills:
        masked.remove(position)
        new_tokens[position - start] = tokens[position - first]
        new_probabilities[position - start] = probabilities[position - first]
    for position in edits:
        new_tokens[position - start] = tokens[position - first]
        new_probabilities[position - start] = probabilities[position - first]
    return Block(start, tuple(new_tokens), tuple(masked), tuple(new_probabilities), block.given, block.opened, extra)


STRATEGY = MultiBDEdit

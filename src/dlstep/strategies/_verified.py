"""Verification of proposed tokens with causal attention, shared by several strategies.

A verifying pass feeds proposed tokens, and each row predicts the token of the next position. Up to
the first wrong proposal, every row attends to the same tokens as in autoregressive decoding, so it
gives the same sample. The samples of later rows are dropped.
"""

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

from rpds import List

from ..core import (
    ALONE,
    Block,
    Grid,
    Ids,
    PositiveInt,
    Probabilities,
    Progress,
    Refusal,
    Request,
    Rows,
    Rule,
    SampleSpec,
    SequenceState,
    Span,
    SpanSamples,
    Spec,
    Storing,
    Strategy,
    Wanted,
    positions,
)
from ._blocks import refusal_of_head, refusal_of_rule, required_mask, untempered

SAMPLE_SPEC = SampleSpec(ties="lowest")
KEPT = Storing(keeps_window=True)


def accepted(block: Block, samples: SpanSamples) -> tuple[int, Block]:
    """Return the number of right proposals, and a sealed block of these and the token sampled after them.

    Args:
        block: Proposals, followed by masks.
        samples: Samples of all positions of the block.
    """
    proposed = block.tokens[: len(block.tokens) - len(block.masked)]
    right = next((i for i, token in enumerate(proposed) if samples.tokens[i] != token), len(proposed))
    end = right + 1
    return right, replace(block, tokens=samples.tokens[:end], probabilities=samples.probabilities[:end]).sealed()


@dataclass(frozen=True, slots=True)
class Causal(Strategy):
    """Decoding of networks that store final positions with causal attention."""

    takes_constraints = True
    head_shift: ClassVar[int | None] = None
    """Shift of the head of networks that the strategy decodes; None: any."""

    @property
    def sample_spec(self) -> SampleSpec:
        """No statistics; ties go to the lowest id."""
        return SAMPLE_SPEC

    def refusal(self, spec: Spec, request: Request) -> Refusal | None:
        """Return why a model without a mask token or with another `head_shift` does not fit; None for other models."""
        return refusal_of_head(spec, spec.head_shift if self.head_shift is None else self.head_shift)

    def grid(self, request: Request) -> Grid:
        """Return groups of one position, because final positions attend causally."""
        return Grid(0, 1)

    def measure(self, sequence: SequenceState) -> int:
        """Return the number of positions that are not settled yet; each pass settles at least one."""
        return sequence.request.limit - sequence.progress.settled

    @staticmethod
    def _proposed(
        sequence: SequenceState,
        past: "List[Block]",
        start: int,
        tokens: Ids,
        probabilities: Probabilities,
        masks: int,
        spec: Spec,
        unstored: int = 0,
    ) -> Progress:
        """Return the progress with a window of proposed tokens and a number of `masks`, empty if the answer ends at `start`.

        All tokens before the window are final, except the last `unstored` ones.
        """
        if start == sequence.request.limit:
            return Progress((), start, start, past)
        first = start + len(tokens)
        masked = positions(first, first + masks)
        tokens, probabilities = tokens + (required_mask(spec),) * masks, probabilities + (0.0,) * masks
        block = Block(start, tokens, masked, probabilities, opened=sequence.steps)
        return Progress((block,), start - unstored, start, past)


@dataclass(frozen=True, slots=True)
class CausalByRule(Causal):
    """Causal decoding of `block_size` positions at a time, which a rule unmasks."""

    holds_pins = True
    head_shift = 0
    block_size: PositiveInt
    rule: Rule

    @property
    def sample_spec(self) -> SampleSpec:
        """The statistics that the rule needs, with untempered probabilities; ties go to the lowest id."""
        return untempered(self.rule)

    def refusal(self, spec: Spec, request: Request) -> Refusal | None:
        """Return why the rule or the model does not fit; None if both do."""
        return Causal.refusal(self, spec, request) or refusal_of_rule(self.rule, spec)

    def rows_at_once(self, request: Request) -> int:
        """Return the number of positions that are decoded at a time."""
        return self.block_size


# Why drafts change no answer.
#
# Autoregressive decoding draws the token of position p from the distribution that the tokens before p define, with random
# numbers that depend on the seed and on p only. The token is therefore a function of the tokens before it.
# A verifying pass computes this function for all drafted positions at once: the row that predicts p attends to the drafted
# tokens before p, and draws with the same random numbers. If all these drafts are right, the result is the autoregressive
# token, whether or not it equals the draft at p. So a pass settles the leading drafts that equal their samples, and the sample
# at the position after these, whose row saw right tokens only. All later rows saw a wrong token; their samples are dropped.
# Speculative sampling by rejection compares probabilities, which preserves only the distribution of answers. This compares
# tokens: the answer itself is equal, however the drafts were made. Constraints can be used, because the mask of a position
# depends only on the tokens before it (`causal_masks_of`).
# A verifying pass also stores keys and values. Those of the rows that were fed right drafts are valid and are kept
# (`keeps_window`). Every pass feeds all positions from `final` to its `end`, and thus overwrites the entries of wrong drafts
# and of drafting passes before any row attends to them.
@dataclass(frozen=True, slots=True)
class Verified(Causal):
    """Decoding in which passes that draft tokens alternate with passes that verify them.

    A verifying pass settles the right drafted tokens and the token sampled after them. The window is
    one block. Before a draft, it holds masks, and the last settled token is not final, because the
    draft feeds it together with the masks. Before a verifying pass, the window holds the drafted
    tokens and one mask, which is sampled but not fed, and all tokens before the window are final.
    Every sample has draw number 0, as in autoregressive decoding, where each position is sampled once.
    """

    @property
    @abstractmethod
    def draft_rows(self) -> int:
        """Number of rows in a draft: the last settled token and masks. With 1, there are no drafts."""

    def rows_at_once(self, request: Request) -> int:
        """Return the number of rows of a draft."""
        return self.draft_rows

    def init(self, sequence: SequenceState, spec: Spec) -> Progress:
        """Open the first position of the answer; the prompt is final."""
        return self._proposed(sequence, sequence.progress.past, sequence.request.start, (), (), 1, spec)

    def schedule(self, sequence: SequenceState, spec: Spec) -> Span:
        """Return a span that drafts, or one that verifies, in which each row predicts the next position."""
        (block,), final = sequence.progress.window, sequence.progress.final
        request, sampled = sequence.request, positions(block.start, block.end)
        draws = (0,) * len(sampled)
        if final == block.start:
            # The core also feeds the token before the block, because row `start - 1` predicts position `start`.
            rows = Rows(final, block.tokens[:-1], block.end - 1, request.grid)
            return Span(request.who, rows, Wanted(sampled, draws, shift=1), KEPT)
        tokens = sequence.tokens(final, block.end)
        # The rows of a draft are one group, so they attend to one another. Final rows must attend causally, so they are
        # not fed with this span.
        rows = Rows(final, tokens, block.end, Grid(final, len(tokens)), draft=True)
        return Span(request.who, rows, Wanted(sampled, draws, shift=0), ALONE)

    def commit(self, sequence: SequenceState, span: Span, samples: SpanSamples, spec: Spec) -> Progress:
        """Store the drafted tokens, or settle the right ones and the token sampled after them."""
        (block,), past, limit = sequence.progress.window, sequence.progress.past, sequence.request.limit
        if sequence.progress.final != block.start:
            return self._proposed(sequence, past, block.start, samples.tokens, samples.probabilities, 1, spec)
        _, settled = accepted(block, samples)
        # Do not draft the last position of the answer: the pass that verifies the positions before it samples it anyway.
        end = settled.end
        masks = max(0, min(self.draft_rows - 1, limit - 1 - end))
        return self._proposed(sequence, past.push_front(settled), end, (), (), masks or 1, spec, unstored=int(masks > 0))

    def measure(self, sequence: SequenceState) -> int:
        """Return an upper bound on the passes: each verifying pass settles a token, and at most one draft precedes it."""
        left = sequence.request.limit - sequence.progress.settled
        if self.draft_rows == 1 or left < 2:
            return left
        # The last verifying pass needs no draft. If a verifying pass is next, its draft is done as well.
        return 2 * left - (2 if sequence.progress.final == sequence.progress.settled else 1)

"""Strided decoding: each forward pass verifies the tokens that the previous one proposed, and proposes more.

For networks in which masks attend causally and row p-1 predicts position p. A proposal is kept if
the network, given the tokens before it, samples the same token with the random numbers of
autoregressive decoding. Answers therefore equal those of autoregressive decoding, token for token,
whatever the proposals are. Source: "Introspective Diffusion Language Models", 2026, arXiv 2604.11035.
"""

from dataclasses import dataclass, replace
from typing import final

from ..core import NonNegativeInt, Progress, Request, Rows, SequenceState, Span, SpanSamples, Spec, Wanted, positions
from ._verified import KEPT, Causal, accepted


@final
@dataclass(frozen=True, slots=True)
class Strided(Causal):
    """A window of proposed tokens and `block_size` masks, whose rows propose the next tokens.

    A forward pass settles the proposals before the first wrong one, and the token that the network
    samples after them. Its new proposals are used only if all old ones were right. Every sample has
    draw number 0, as in autoregressive decoding, where each position is sampled once.
    """

    head_shift = 1
    SWEEP = ("block_size", (0, 1, 2, 3, 4, 7))

    block_size: NonNegativeInt = 3
    """Number of masks in a forward pass, each of which proposes a token; with 0, decoding is autoregressive."""

    @property
    def autoregressive(self) -> "Strided":
        """The same strategy without masks: one token per pass."""
        return replace(self, block_size=0)

    def rows_at_once(self, request: Request) -> int:
        """Return the largest number of proposals and masks in a pass, at least 1."""
        return max(1, 2 * self.block_size)

    def init(self, sequence: SequenceState, spec: Spec) -> Progress:
        """Open the window after the prompt; the prompt is final."""
        start, limit = sequence.request.start, sequence.request.limit
        return self._proposed(sequence, sequence.progress.past, start, (), (), min(self.block_size + 1, limit - start), spec)

    def schedule(self, sequence: SequenceState, spec: Spec) -> Span:
        """Return a span that feeds the window except its last position; each row predicts the next position."""
        (block,), request = sequence.progress.window, sequence.request
        sampled = positions(block.start, block.end)
        rows = Rows(block.start, block.tokens[:-1], block.end - 1, request.grid)
        return Span(request.who, rows, Wanted(sampled, (0,) * len(sampled)), KEPT)

    def commit(self, sequence: SequenceState, span: Span, samples: SpanSamples, spec: Spec) -> Progress:
        """Settle the right proposals and the token after them; use the new proposals only if all old ones were right."""
        (block,) = sequence.progress.window
        right, settled = accepted(block, samples)
        start, first, end = settled.end, right + 1, len(block.tokens)
        left = sequence.request.limit - start
        # Rows after a wrong proposal attended to it, so their proposals are dropped. The last position of the answer is
        # sampled but never fed, so a proposal for it would be useless.
        count = min(end - first, max(0, left - 1)) if right == end - len(block.masked) else 0
        tokens, probabilities = samples.tokens[first : first + count], samples.probabilities[first : first + count]
        masks = min(self.block_size + 1, left - count)
        return self._proposed(sequence, sequence.progress.past.push_front(settled), start, tokens, probabilities, masks, spec)


STRATEGY = Strided

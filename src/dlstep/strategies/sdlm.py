"""Sequential diffusion: of each window, the tokens before the first uncertain one are kept (causal, shifted head).

A window begins with the last token of the answer, which is fed again, followed by masks. Its rows
attend to one another and to the text before that token; row p-1 predicts position p. The tokens up
to the first uncertain one are kept and then stored with causal attention. Source: Liu et al.,
"Sequential Diffusion Language Models", 2025, arXiv 2509.24007.
"""

from dataclasses import dataclass
from typing import final

from ..core import (
    ALONE,
    Block,
    BlockPass,
    Grid,
    PositiveInt,
    Probability,
    Progress,
    Request,
    Rows,
    Rule,
    SequenceState,
    Span,
    SpanSamples,
    Spec,
    Wanted,
)
from ._blocks import decided_alone, opened
from ._verified import Causal


@final
@dataclass(frozen=True, slots=True)
class _Beginning(Rule):
    """Unmask at least one position: those before the first one whose probability is not above the threshold."""

    accept_threshold: float

    def commit(self, block_pass: BlockPass) -> Block:
        """Return the block with these positions unmasked, up to the first whose token the constraint forbids."""
        block, samples = block_pass.block, block_pass.samples
        for position, token, probability in zip(block_pass.sampled, samples.tokens, samples.probabilities, strict=True):
            if position > block_pass.sampled[0] and probability <= self.accept_threshold:
                break
            # One by one: of several tokens, a constraint would keep the most probable one, which may be the last.
            block = block.unmask((position,), (token,), (probability,))
            if probability <= self.accept_threshold or position in block.masked:
                break
        return block


@final
@dataclass(frozen=True, slots=True)
class SDLM(Causal):
    """A window of the last token and masks, which predicts the next `block_size` tokens.

    The last token of the answer is not final, because the window feeds it again.
    """

    head_shift = 1
    block_size: PositiveInt = 4
    """Rows of the window, and the most tokens of a pass; 1 is autoregressive decoding."""
    accept_threshold: Probability = 0.9
    """Keep the tokens before the first one whose probability is not above this."""

    def rows_at_once(self, request: Request) -> int:
        """Return the number of rows of the window."""
        return self.block_size

    def fed_end(self, request: Request) -> int:
        """Return the end of the masks of the last window; some lie past the answer."""
        return request.start + request.params.max_tokens + self.block_size

    def init(self, sequence: SequenceState, spec: Spec) -> Progress:
        """Open the window at the last token of the prompt."""
        last = sequence.request.start - 1
        window = opened(sequence, last, self.block_size + 1, spec)
        return Progress((window,), last, last + 1, sequence.progress.past)

    def schedule(self, sequence: SequenceState, spec: Spec) -> Span:
        """Return a span of the window except its last position; each row predicts the next position."""
        (block,), request = sequence.progress.window, sequence.request
        size = min(self.block_size, len(block.tokens) - 1)  # a fork may lower the size below that of the open window
        sampled = block.masked[:size]
        # Rows of one group attend to one another, but final rows must attend causally, so they are not fed with this span.
        rows = Rows(block.start, block.tokens[:size], block.start + size, Grid(block.start, size))
        return Span(request.who, rows, Wanted(sampled, (0,) * len(sampled)), ALONE)

    def commit(self, sequence: SequenceState, span: Span, samples: SpanSamples, spec: Spec) -> Progress:
        """Keep the certain tokens, and open the window at the last of them."""
        (block,), past, limit = sequence.progress.window, sequence.progress.past, sequence.request.limit
        rule = _Beginning(self.accept_threshold)
        after = decided_alone(rule, sequence, block, span, samples, spec)
        end = after.masked[0] if after.masked else min(after.end, limit)
        if end == limit:
            return Progress((), limit, limit, past.push_front(after.part(after.start, end, after.opened).sealed()))
        last = end - 1
        past = past.push_front(after.part(after.start, last, after.opened).sealed())
        token, probability = after.tokens[last - after.start], after.probabilities[last - after.start]
        window = opened(sequence, last, self.block_size + 1, spec).unmask((last,), (token,), (probability,)).with_given(end)
        return Progress((window,), last, end, past)


STRATEGY = SDLM

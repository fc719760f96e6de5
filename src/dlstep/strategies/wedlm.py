"""WeDLM: a window of masks that slides along the answer, for networks with causal attention only.

A forward pass feeds the known tokens of the window first and its masks last, each at its own
position. Every mask therefore sees every known token, although attention is causal. The tokens
before the window's first mask leave the window after each pass. They are then final, and the core
stores them with the next window. Source: Liu et al., "WeDLM: Reconciling Diffusion Language Models with Standard Causal
Attention for Fast Inference", 2025, arXiv 2512.22737.
"""

from dataclasses import dataclass
from typing import final

from ..core import (
    Block,
    PositiveInt,
    Progress,
    Refusal,
    Request,
    Rows,
    Rule,
    SequenceState,
    Span,
    SpanSamples,
    Spec,
    Wanted,
    positions,
)
from ..core.filtering import passes_to_come
from ..rules.threshold import Threshold
from ._blocks import block_passes, decided_alone, opened, sampled_for
from ._verified import CausalByRule


@final
@dataclass(frozen=True, slots=True)
class WeDLM(CausalByRule):
    """A window of `block_size` positions that begins at the first masked position of the answer."""

    block_size: PositiveInt = 16
    """Positions of the window; 1 is autoregressive decoding."""
    rule: Rule = Threshold(order="entropy", entropy_threshold=0.4, position_penalty=0.02)
    """The rule that selects positions to unmask after a forward pass."""

    def refusal(self, spec: Spec, request: Request) -> Refusal | None:
        """Return why the rule or the model does not fit; None if both do."""
        if self.rule.remasks or type(self.rule).measure is not Rule.measure:
            message = f"{type(self.rule).__name__} plans the passes of a whole block, but a window slides: give 'threshold'"
            return Refusal("rule", "unsupported", message)
        return CausalByRule.refusal(self, spec, request)

    def init(self, sequence: SequenceState, spec: Spec) -> Progress:
        """Open the window after the prompt; the prompt is final."""
        start = sequence.request.start
        return self._progress(sequence, opened(sequence, start, 1, spec), spec)

    def schedule(self, sequence: SequenceState, spec: Spec) -> Span:
        """Return a span of the window, in which known tokens come before masks."""
        (block,), request = sequence.progress.window, sequence.request
        order, masked = (), {*block.masked}
        if len(masked) < len(block.tokens):
            order = tuple([position for position in positions(block.start, block.end) if position not in masked]) + block.masked
        tokens = tuple([block.tokens[position - block.start] for position in order]) or block.tokens
        sampled = sampled_for(self.rule, sequence, block)
        rows = Rows(block.start, tokens, block.end, request.grid, positions=order)
        return Span(request.who, rows, Wanted(sampled, (sequence.steps - block.opened,) * len(sampled)))

    def commit(self, sequence: SequenceState, span: Span, samples: SpanSamples, spec: Spec) -> Progress:
        """Apply the rule. The tokens before the first mask become final and leave the window."""
        (block,) = sequence.progress.window
        return self._progress(sequence, decided_alone(self.rule, sequence, block, span, samples, spec), spec)

    def measure(self, sequence: SequenceState) -> int:
        """Return the number of masked positions, each of which needs at most one pass."""
        if not sequence.progress.window:
            return 0
        (block,), limit = sequence.progress.window, sequence.request.limit
        unopened = limit - block.end
        return block_passes(self.rule, sequence, block) + passes_to_come(sequence, unopened, unopened)

    def _progress(self, sequence: SequenceState, block: Block, spec: Spec) -> Progress:
        """Return the progress whose window begins at the first masked position from `block` on."""
        past, limit = sequence.progress.past, sequence.request.limit
        while True:  # pinned tokens may fill a new window
            start = block.masked[0] if block.masked else block.end
            if start > block.start:
                past = past.push_front(block.part(block.start, start, block.opened).sealed())
            if start == limit:
                return Progress((), start, start, past)
            end = max(block.end, min(start + self.block_size, limit))
            if (start, end) == (block.start, block.end):
                return Progress((block,), start, start, past)
            window = opened(sequence, start, end - start, spec)
            known = [position for position in window.masked if position < block.end and position not in {*block.masked}]
            cells = [(block.tokens[position - block.start], block.probabilities[position - block.start]) for position in known]
            block = window.unmask(known, *zip(*cells, strict=True)) if known else window


STRATEGY = WeDLM

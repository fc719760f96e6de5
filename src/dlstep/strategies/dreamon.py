"""DreamOn: infilling with a window whose length the network changes (full attention, no cache).

A window of masks lies between the prompt and a suffix. Each pass feeds all three and unmasks the most
certain positions. A sampled expansion token becomes two masks, and a sampled end-of-sequence token
removes its position, so the window grows and shrinks, and the suffix moves. Source: Wu et al.,
"DreamOn: Diffusion Language Models For Code Infilling Beyond Fixed-size Canvas", 2026, arXiv
2602.01326.
"""

from dataclasses import dataclass
from typing import Literal, final

from ..core import (
    Block,
    Extra,
    Grid,
    NonNegativeInt,
    PositiveInt,
    Progress,
    Refusal,
    Replacement,
    Request,
    Rows,
    SampleSpec,
    SequenceState,
    Span,
    SpanSamples,
    Spec,
    Strategy,
    Wanted,
)
from ..core.constraint import all_but
from ..processors.min_tokens import MinTokens
from ..rules._shares import SAMPLE_SPECS, highest, scores_by
from ._blocks import opened, refusal_without_mask, required_mask


@final
@dataclass(frozen=True, slots=True)
class Expanded(Extra):
    """State of a sequence: how many expansions it has had."""

    count: int


@final
@dataclass(frozen=True, slots=True)
class DreamOn(Strategy):
    """A window of at most `max_tokens` positions between prompt and suffix.

    The answer is complete when no mask is left, whatever the length of the window.
    """

    takes_suffix = True
    expand_token_id: NonNegativeInt | None = None
    """Id that becomes two masks when it is sampled, fixed by the model; None: the window never grows."""
    initial_masks: PositiveInt = 4
    """Masks of the first pass, at most `max_tokens`."""
    expand_budget: NonNegativeInt | None = None
    """Maximum number of expansions of an answer; None: `max_tokens`."""
    delete_right: bool = True
    """An end-of-sequence token also removes all masks to its right."""
    tokens_per_pass: PositiveInt = 1
    """Positions that a pass unmasks."""
    order: Literal["entropy", "confidence", "margin"] = "entropy"
    """Which positions come first: small entropies, probable tokens, or large margins."""

    @property
    def full_passes(self) -> bool:
        """True: each pass feeds prompt, window and suffix."""
        return True

    @property
    def sample_spec(self) -> SampleSpec:
        """The statistic that defines the order."""
        return SAMPLE_SPECS[self.order]

    def refusal(self, spec: Spec, request: Request) -> Refusal | None:
        """Return why the model cannot be decoded: it has no mask token, or no id `expand_token_id`; None if it can."""
        if self.expand_token_id is not None and self.expand_token_id >= spec.vocab_size:
            message = f"{self.expand_token_id} must be below {spec.vocab_size}: give the id of the expansion token"
            return Refusal("expand_token_id", "unknown_token_id", message)
        return refusal_without_mask(spec)

    def grid(self, request: Request) -> Grid:
        """Return one group for prompt, longest window and suffix, no part of which is final before the end."""
        return Grid(request.start + request.params.max_tokens + len(request.params.suffix), 1)

    def rows_at_once(self, request: Request) -> int:
        """Return the number of rows of a pass with the longest window."""
        return self.fed_end(request)

    def init(self, sequence: SequenceState, spec: Spec) -> Progress:
        """Open the window after the prompt, at least as long as `min_tokens`, which keeps these positions from removal."""
        request, start = sequence.request, sequence.request.start
        least = [processor.count for processor in request.params.processors if isinstance(processor, MinTokens)]
        size = min(max([self.initial_masks, *least]), request.limit - start)
        return Progress((opened(sequence, start, size, spec),), 0, start, sequence.progress.past, Expanded(0))

    def schedule(self, sequence: SequenceState, spec: Spec) -> Span:
        """Return a span of prompt, window and suffix that samples all masks."""
        (block,), request = sequence.progress.window, sequence.request
        tokens = request.prompt + block.tokens + request.params.suffix
        masks = ()
        if self.expand_token_id is not None and not self._room(sequence, block):
            masks = (all_but(self.expand_token_id, spec.vocab_size),) * len(block.masked)
        rows = Rows(0, tokens, len(tokens), request.grid)
        return Span(request.who, rows, Wanted(block.masked, (sequence.steps,) * len(block.masked), masks=masks))

    def commit(self, sequence: SequenceState, span: Span, samples: SpanSamples, spec: Spec) -> Progress:
        """Unmask the positions that come first, remove or expand some of them, and end the answer if no mask is left."""
        (block,), past = sequence.progress.window, sequence.progress.past
        chosen = highest(scores_by(self.order, samples), self.tokens_per_pass)
        after = block.unmask_rows(chosen, samples.tokens, samples.probabilities)
        found = [(block.masked[index], samples.tokens[index]) for index in chosen]
        removed = [position for position, token in found if token in spec.eos_ids and token in sequence.request.stop_ids]
        if removed and self.delete_right:
            removed = [position for position in block.masked if position >= removed[0]]
        counts = dict.fromkeys(removed, 0)
        room = self._room(sequence, block, len(removed))
        for position, token in found:
            if token == self.expand_token_id and position not in counts:
                counts[position] = 2 if room else 1
                room -= room > 0
        replaced = tuple([Replacement(position, counts[position], dict(found).get(position)) for position in sorted(counts)])
        extra = Expanded(_expanded(sequence) + sum([each.count == 2 for each in replaced]))
        after = after.resized(replaced, required_mask(spec)) if replaced else after
        if after.masked:
            return Progress((after,), 0, after.masked[0], past, extra, replaced)
        return Progress((), 0, after.end, past.push_front(after.sealed()) if after.tokens else past, extra, replaced)

    def measure(self, sequence: SequenceState) -> int:
        """Return the number of masks plus two for each expansion left: a pass that expands, and one for the added mask."""
        if not sequence.progress.window:
            return 0
        return len(sequence.progress.window[0].masked) + 2 * self._left(sequence)

    def _left(self, sequence: SequenceState) -> int:
        """Return how many expansions the budget leaves."""
        request = sequence.request
        budget = request.limit - request.start if self.expand_budget is None else self.expand_budget
        return 0 if self.expand_token_id is None else max(0, budget - _expanded(sequence))

    def _room(self, sequence: SequenceState, block: Block, removed: int = 0) -> int:
        """Return how many positions of the window may expand now, after `removed` others were removed."""
        return min(self._left(sequence), sequence.request.limit - block.end + removed)


def _expanded(sequence: SequenceState) -> int:
    """Return how many expansions the sequence has had."""
    return sequence.progress.extra.count if isinstance(sequence.progress.extra, Expanded) else 0


STRATEGY = DreamOn

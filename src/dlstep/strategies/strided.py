"""Strided decoding: each forward pass verifies the tokens that the last one proposed, and proposes more.

For networks whose masks attend causally and whose row p-1 predicts position p. A proposal is kept
if it is the token that the network then samples there, with the same random numbers. So answers are
those of autoregressive decoding, token for token, whatever was proposed. Source: "Introspective
Diffusion Language Models", 2026, arXiv 2604.11035.
"""

from dataclasses import dataclass, replace
from typing import Annotated, final

from annotated_types import Ge

from ..core import Block, Grid, Request, SampleSpec, SequenceState, Span, SpanSamples, Spec, Strategy, positions, span_of
from ._blocks import mask_of, masked_only

SAMPLE_SPEC = SampleSpec(ties="lowest")


@final
@dataclass(frozen=True, slots=True)
class Strided(Strategy):
    """Proposals, then `block_size` masks, whose rows make the next proposals.

    A forward pass settles the proposals up to the first wrong one, and one more token. It proposes
    anew only if all were right. Every row has draw number 0: a position is settled once.
    """

    SWEEP = ("block_size", (0, 1, 2, 3, 4, 7))

    block_size: Annotated[int, Ge(0)] = 3
    """Masks of a forward pass, each of which proposes a token; 0 is autoregressive decoding."""

    def incompatibility(self, spec: Spec) -> str | None:
        """Return why a model without masks or with an unshifted head does not fit; else None."""
        if spec.head_shift != 1:
            return f"its head_shift is {spec.head_shift}; the first token of an answer is predicted by the row before it"
        return masked_only(spec)

    @property
    def sample_spec(self) -> SampleSpec:
        """Lowest id in ties."""
        return SAMPLE_SPEC

    @property
    def autoregressive(self) -> "Strided":
        """The strategy without masks."""
        return replace(self, block_size=0)

    def grid(self, request: Request) -> Grid:
        """Return groups of one position: attention is causal."""
        del request
        return Grid(0, 1)

    def atom(self, request: Request) -> int:
        """Return the number of proposals and masks, but at least 1."""
        del request
        return max(1, 2 * self.block_size)

    def init(self, sequence: SequenceState, spec: Spec) -> SequenceState:
        """Open the window after the prompt, which is final."""
        return self._opened(sequence, len(sequence.request_spec.request.prompt), (), (), spec)

    def schedule(self, sequence: SequenceState, spec: Spec) -> Span:
        """Return a span of the window but its last position, each row of which predicts the next position."""
        del spec
        (block,), request_spec = sequence.window, sequence.request_spec
        sampled = positions(block.start, block.end)
        return span_of(request_spec.request, block.start, block.tokens[:-1], request_spec.grid, sampled, (0,) * len(sampled))

    def commit(self, sequence: SequenceState, span: Span, rows: SpanSamples, spec: Spec) -> SequenceState:
        """Settle the right proposals and the token after them; propose only after right ones."""
        (block,) = sequence.window
        proposed = block.tokens[: len(block.tokens) - len(block.masked)]
        count = len(proposed)
        right = next((i for i in range(count) if rows.tokens[i] != proposed[i]), count)
        end = right + 1
        settled = replace(block, tokens=rows.tokens[:end], probabilities=rows.probabilities[:end])
        sequence = replace(sequence, past=sequence.past.push_front(settled.sealed()))
        following = slice(end, None if right == count else end)
        return self._opened(sequence, block.start + end, rows.tokens[following], rows.probabilities[following], spec)

    def measure(self, sequence: SequenceState) -> int:
        """Return the number of positions without a settled token: each pass settles at least one."""
        return sequence.request_spec.limit - sequence.settled

    def _opened(
        self, sequence: SequenceState, start: int, tokens: tuple[int, ...], probabilities: tuple[float, ...], spec: Spec
    ) -> SequenceState:
        """Return the sequence whose window has these proposals from `start` on, then masks.

        Its last position is sampled, but not fed. All positions before `start` are final.
        """
        limit = sequence.request_spec.limit
        if start == limit:
            return sequence.with_window(sequence.past, (), start, start)
        tokens, probabilities = tokens[: limit - 1 - start], probabilities[: limit - 1 - start]
        first = start + len(tokens)
        stop = min(first + self.block_size + 1, limit)
        masks = stop - first
        block = Block(
            start,
            tokens + (mask_of(spec),) * masks,
            positions(first, stop),
            probabilities + (0.0,) * masks,
            opened=sequence.accounting.steps,
        )
        return sequence.with_window(sequence.past, (block,), start, start)


STRATEGY = Strided

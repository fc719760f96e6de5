"""Reads: the probabilities of given labels at the slots of a template, in one forward pass.

A read is a request whose answer is the template: its fixed tokens are pinned, and its slots are
masked. The strategy `Reading` samples the slots once, with the groups of the engine's strategy, and
requests the probabilities of the labels. Divided by their sum, they are the softmax of the slot's
logits over the labels. Reads of equal prompts share pages with one another, but not with other
requests.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, final

from ..core import (
    Event,
    Grid,
    Ids,
    Probabilities,
    Progress,
    Refusal,
    Refused,
    Request,
    Rows,
    Samples,
    SampleSpec,
    SamplingParams,
    SequenceState,
    Span,
    SpanSamples,
    Spec,
    Strategy,
    Wanted,
    init,
)  # fmt: skip
from ..strategies._blocks import opened, refusal_without_mask
from ..text.read_templates import MOST_LABELS, ReadTemplate
from .decode import Decode
from .loader import LoadedEngine


@final
@dataclass(frozen=True, slots=True)
class Reading(Strategy):
    """A strategy that decodes nothing: one forward pass over prompt and template returns the probabilities of labels."""

    holds_pins = True
    base: Strategy
    """The strategy of the engine, which defines the groups of positions."""
    labels: Ids = ()
    """Label ids, slot after slot; each slot has the same number of entries, padded with -1."""
    feeds_labels: bool = False
    """Feed the labels, one per position, instead of masks: for causal networks, whose rows score the token after them."""

    @property
    def sample_spec(self) -> SampleSpec:
        """The probabilities of the labels under the plain softmax of all ids."""
        return SampleSpec(ties=self.base.sample_spec.ties, tempered=False, scored=MOST_LABELS, all_ids=True)

    def refusal(self, spec: Spec, request: Request) -> Refusal | None:
        """Return why slots cannot be fed; None if they can."""
        return refusal_without_mask(spec)

    def grid(self, request: Request) -> Grid:
        """Return the groups of the engine's strategy."""
        return self.base.grid(request)

    def fed_end(self, request: Request) -> int:
        """Return the end of the positions that the engine's strategy feeds."""
        return self.base.fed_end(request)

    def rows_at_once(self, request: Request) -> int:
        """Return the number of positions from the start of the group at the prompt's end."""
        grid = self.grid(request)
        return max(grid.origin, self.fed_end(request) - grid.start(request.start))

    def init(self, sequence: SequenceState, spec: Spec) -> Progress:
        """Open the template as one block; all earlier groups are final."""
        request = sequence.request
        first = request.grid.start(request.start)
        block = opened(sequence, first, self.fed_end(request) - first, spec)
        return Progress((block,), first, block.masked[0], sequence.progress.past)

    def schedule(self, sequence: SequenceState, spec: Spec) -> Span:
        """Return a span of the block that samples its slots."""
        (block,), request = sequence.progress.window, sequence.request
        draws = (0,) * len(block.masked)
        tokens, shift = (self.labels[:-1], 1) if self.feeds_labels else (block.tokens, None)
        rows = Rows(block.start, tokens, block.start + len(tokens), request.grid)
        return Span(request.who, rows, Wanted(block.masked, draws, self.labels, shift=shift))

    def commit(self, sequence: SequenceState, span: Span, samples: SpanSamples, spec: Spec) -> Progress:
        """Fill the slots, which ends the request."""
        progress, (block,) = sequence.progress, sequence.progress.window
        after = block.unmask_rows(range(len(block.masked)), samples.tokens, samples.probabilities)
        return Progress((after,), progress.final, sequence.request.limit, progress.past)

    def measure(self, sequence: SequenceState) -> int:
        """Return the number of passes left."""
        return int(bool(sequence.progress.window[0].masked))


class ReadResult(NamedTuple):
    """The distribution of each slot of a read, or its error. `cached` is the number of prompt tokens that were not fed."""

    slots: tuple[Probabilities, ...]
    error: str = ""
    cached: int = 0
    aborted: bool = False


def read_request(request_id: int, prompt: Ids, template: ReadTemplate, max_model_len: int) -> Request:
    """Return the request of a read. Raises Refused if prompt and template do not fit `max_model_len`."""
    if len(prompt) + len(template.tokens) > max_model_len:
        raise Refused(
            "prompt",
            "context_length_exceeded",
            f"it has {len(prompt)} tokens and the template {len(template.tokens)}, together more than "
            f"max_model_len={max_model_len}: shorten them",
        )
    options = (("labels", template.padded_ids),)
    params = SamplingParams(max_tokens=len(template.tokens), ignore_eos=True, pinned=template.pinned, strategy_options=options)
    return Request(request_id, prompt, params)


class Reads:
    """Reads on an engine: `add` requests of `read_request`, then `step` until none is live.

    Not thread-safe. Raises ValueError if the model has no mask id.
    """

    def __init__(self, engine: LoadedEngine) -> None:
        strategy = Reading(engine.first.strategy)
        self.first = init(replace(engine.first.config, num_pages=engine.pages_of_session(), processors=()), strategy)
        self._samples: dict[int, tuple[Span, SpanSamples]] = {}
        self._cached: dict[int, int] = {}
        self._turn, self._decode = engine.turn, Decode(self.first, engine.driver, record=self._record)

    @property
    def live(self) -> bool:
        """Whether a read is waiting, running, or not yet returned by `step`."""
        return not self._decode.state.done or bool(self._decode.state.ended)

    def add(self, request: Request) -> None:
        """Queue a read."""
        self._decode.add(request)

    def abort(self, request_id: int, reason: str = "the read was aborted") -> None:
        """End a read. Do nothing if it has ended."""
        self._decode.abort(request_id, reason)

    def fail(self, error: str) -> None:
        """End all reads with an error."""
        for request_id in [*self._decode.state.live]:
            self._decode.fail(request_id, error)

    def close(self) -> None:
        """Release the pages of reads."""
        self._decode.close()

    def step(self) -> dict[int, ReadResult]:
        """Run one forward pass. Return the reads that have ended, by id."""
        results: dict[int, ReadResult] = {}
        for update in self._turn.run(self._decode.step):
            if update.finish_info is None:
                continue
            cached, found = self._cached.pop(update.id, 0), self._samples.pop(update.id, None)
            reason, error = update.finish_info.reason, update.finish_info.error
            if reason != "length" or found is None:
                results[update.id] = ReadResult((), error, cached, reason == "abort")
                continue
            results[update.id] = _result(*found, cached)
        return results

    def _record(self, event: Event) -> None:
        if not isinstance(event, Samples):
            return
        shared = {admission.seq_id: len(admission.shared) for admission in event.plan.admissions}
        for span, rows in zip(event.plan.spans, event.spans, strict=True):
            self._cached.setdefault(span.who.id, shared.get(span.who.seq_id, 0) * self.first.config.page_size)
            if span.wanted.sampled:
                self._samples[span.who.id] = span, rows


def _result(span: Span, rows: SpanSamples, cached: int) -> ReadResult:
    """Return the distributions from the probabilities that the driver returned."""
    slots = list[Probabilities]()
    width = span.wanted.scored_width
    for begin in range(0, len(span.wanted.scored_ids), width):
        ids, found = span.wanted.scored_ids[begin : begin + width], rows.scored_probabilities[begin : begin + width]
        own = [probability for token, probability in zip(ids, found, strict=True) if token >= 0]
        if not (total := sum(own)):
            offset = span.wanted.sampled[begin // width]
            return ReadResult((), f"every label at position {offset} has probability 0.0: give other labels", cached)
        slots.append(tuple([probability / total for probability in own]))
    return ReadResult(tuple(slots), "", cached)


def read_all(reads: Reads, requests: Sequence[Request]) -> list[ReadResult]:
    """Run reads together, and return their results in order."""
    results: dict[int, ReadResult] = {}
    for request in requests:
        reads.add(request)
    while reads.live:
        results |= reads.step()
    return [results[request.id] for request in requests]

"""Recorded trajectories under the current weights: the passes that step maps recorded, run again with the recorded tokens."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import fsum
from typing import final

from ..core import (
    DlstepError,
    Event,
    Grid,
    Progress,
    Request,
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
)
from ..core.sequence import PassRecord
from ..text.output import LogLikelihood, log_of
from .decode import Decode
from .loader import LoadedEngine

KEPT = ("max_tokens", "pinned", "suffix", "canvas")  # the parameters that decide which positions a request has
Key = tuple[int, int, int]  # trajectory, pass, position


@final
@dataclass(frozen=True, slots=True)
class Replayed(Strategy):
    """A strategy that feeds what recorded passes fed, in their order, and asks for the probabilities of the tokens they set.

    The strategy of each recorded sequence plans its passes from the recorded progress, so also passes that blend tokens,
    carry state or read outdated keys and values are repeated as they were.
    """

    holds_pins = takes_canvas = takes_suffix = True
    recorded: tuple[SequenceState, ...]
    """The recorded sequences, by the id of the request that repeats them."""
    passes: tuple[tuple[PassRecord, ...], ...]
    """Their passes, oldest first."""

    @property
    def carries(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether one of the strategies carries state."""
        return any(sequence.request.strategy.carries for sequence in self.recorded)

    @property
    def sample_spec(self) -> SampleSpec:
        """The probabilities of the tokens under the plain softmax of all ids."""
        return SampleSpec(tempered=False, scored=1, all_ids=True)

    def _inner(self, request: Request) -> Strategy:
        return self.recorded[request.id].request.strategy

    def grid(self, request: Request) -> Grid:
        """Return the groups of the recorded strategy."""
        return self._inner(request).grid(request)

    def rows_at_once(self, request: Request) -> int:
        """Return that of the recorded strategy."""
        return self._inner(request).rows_at_once(request)

    def fed_end(self, request: Request) -> int:
        """Return that of the recorded strategy."""
        return self._inner(request).fed_end(request)

    def init(self, sequence: SequenceState, spec: Spec) -> Progress:
        """Return the progress before the first recorded pass."""
        return self._before(sequence)

    def schedule(self, sequence: SequenceState, spec: Spec) -> Span:
        """Return the span of the recorded pass, which scores the tokens that the pass set."""
        span, origin = self._inner(sequence.request).schedule(sequence, spec), len(sequence.request.prompt)
        changes = self.passes[sequence.request.id][sequence.steps].changes
        tokens = {origin + change.offset: change.token_id for change in changes if change.plain_log_probability is not None}
        scored = tuple([-1 if (token := tokens.get(at)) is None else token for at in span.wanted.sampled])
        wanted = Wanted(span.wanted.sampled, span.wanted.draws, scored, shift=span.wanted.shift)
        return replace(span, wanted=wanted)

    def commit(self, sequence: SequenceState, span: Span, samples: SpanSamples, spec: Spec) -> Progress:
        """Return the progress that was recorded after the pass."""
        return self._before(sequence)

    def forget(self, sequence: SequenceState, spec: Spec) -> Progress:
        """Return the progress from which the recorded strategy continues without a cache."""
        return self._inner(sequence.request).forget(sequence, spec)

    def lost_passes(self, sequence: SequenceState) -> int:
        """Return the passes that the recorded strategy has to repeat."""
        return self._inner(sequence.request).lost_passes(sequence)

    def measure(self, sequence: SequenceState) -> int:
        """Return the number of passes left."""
        return len(self.passes[sequence.request.id]) - sequence.steps

    def _before(self, sequence: SequenceState) -> Progress:
        """Return the progress before the next pass; at the end, the last one."""
        number, passes = sequence.request.id, self.passes[sequence.request.id]
        return passes[sequence.steps].progress if sequence.steps < len(passes) else self.recorded[number].progress


def trajectory_likelihoods(engine: LoadedEngine, recorded: Sequence[SequenceState]) -> list[LogLikelihood]:
    """Return the log-likelihood of each trajectory, from as many forward passes as the longest one has.

    Passes of other threads wait meanwhile. Raises DlstepError for a trajectory that the engine cannot repeat.
    """
    passes = tuple([tuple(reversed([*sequence.passes])) for sequence in recorded])
    found = engine.turn.run(lambda: _scored(engine, Replayed(tuple(recorded), passes))) if any(passes) else {}
    likelihoods: list[LogLikelihood] = []
    for number, sequence in enumerate(recorded):
        origin = len(sequence.request.prompt)
        keys = [(number, change.step, origin + change.offset) for each in passes[number] for change in each.changes]
        logs = tuple([log_of(found[key]) for key in keys if key in found])
        likelihoods.append(LogLikelihood(fsum(logs), "recorded_order", log_probabilities=logs))
    return likelihoods


def _scored(engine: LoadedEngine, strategy: Replayed) -> dict[Key, float]:
    """Return the probability of each token, by trajectory, pass and position."""
    found: dict[Key, float] = {}

    def record(event: Event) -> None:
        if not isinstance(event, Samples):
            return
        for span, rows in zip(event.plan.spans, event.spans, strict=True):
            if span.wanted.sampled and (sequence := decode.state.find(span.who.id)) is not None:
                scored = zip(span.wanted.sampled, span.wanted.scored_ids, rows.scored_probabilities, strict=True)
                found.update({(span.who.id, sequence.steps - 1, at): chance for at, token, chance in scored if token >= 0})

    first = init(replace(engine.first.config, processors=()), strategy)
    decode = Decode(first, engine.driver, record=record)
    waiting, live = _requests(strategy), 0
    try:
        while True:
            for request in islice(waiting, max(0, 2 * first.config.max_num_reqs - live)):
                decode.add(request)
                live += 1
            if not live:
                return found
            for update in decode.step():
                if update.finish_info is not None:
                    live -= 1
                    if update.finish_info.reason in ("rejected", "error"):
                        raise DlstepError(f"trajectory {update.id} cannot be repeated: {update.finish_info.error}")
    finally:
        decode.close()


def _requests(strategy: Replayed) -> Iterator[Request]:
    """Yield a request for each trajectory that has passes."""
    for number, (sequence, passes) in enumerate(zip(strategy.recorded, strategy.passes, strict=True)):
        given = {name: getattr(sequence.request.params, name) for name in KEPT}
        if passes:
            params = SamplingParams(**given, ignore_eos=True, max_nfe=len(passes))
            yield Request(number, sequence.request.prompt, params, sequence.request.seed)

"""Score recorded trajectories under the current weights: run the passes of step maps again with the recorded tokens."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import fsum
from typing import final

from ..core import (
    Grid,
    Progress,
    Refused,
    Request,
    SampleSpec,
    SamplingParams,
    SequenceState,
    Span,
    SpanSamples,
    Spec,
    State,
    Strategy,
    Wanted,
    init,
)
from ..core.checks import listed, short
from ..core.sequence import PassRecord
from ..text.output import LogLikelihood, Output, log_of
from .decode import sampled_passes
from .loader import LoadedEngine

KEPT = ("max_tokens", "pinned", "suffix", "canvas")  # parameters that decide which positions a request has


@final
@dataclass(frozen=True, slots=True)
class Replayed(Strategy):
    """A strategy that repeats recorded passes in order, and requests the probabilities of the tokens that they set.

    The strategy of each recorded sequence plans its passes from the recorded progress. Passes that blend tokens, carry
    state or read outdated keys and values are therefore repeated exactly.
    """

    holds_pins = takes_canvas = takes_suffix = True
    recorded: tuple[SequenceState, ...]
    """The recorded sequences, by the id of the request that repeats them."""
    passes: tuple[tuple[PassRecord, ...], ...]
    """Their passes, oldest first; then a record of the last progress, without changes."""

    @property
    def carries(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether the strategies carry state; all strategies of a model agree."""
        return self.recorded[0].request.strategy.carries

    @property
    def sample_spec(self) -> SampleSpec:
        """The probabilities of the tokens under the plain softmax of all ids."""
        return SampleSpec(tempered=False, scored=1, all_ids=True)

    def _inner(self, request: Request) -> Strategy:
        return self.recorded[request.id].request.strategy

    def grid(self, request: Request) -> Grid:
        """Return the grid of the recorded strategy."""
        return self._inner(request).grid(request)

    def rows_at_once(self, request: Request) -> int:
        """Return that of the recorded strategy."""
        return self._inner(request).rows_at_once(request)

    def fed_end(self, request: Request) -> int:
        """Return that of the recorded strategy."""
        return self._inner(request).fed_end(request)

    def init(self, sequence: SequenceState, spec: Spec) -> Progress:
        """Return the progress before the first recorded pass."""
        return self._next(sequence).progress

    def schedule(self, sequence: SequenceState, spec: Spec) -> Span:
        """Return the span of the recorded pass, which scores the tokens that the pass set."""
        span, origin = self._inner(sequence.request).schedule(sequence, spec), sequence.request.start
        tokens = {
            origin + change.offset: change.token_id
            for change in self._next(sequence).changes
            if change.token_id is not None and change.plain_log_probability is not None
        }
        scored = tuple([tokens.get(at, -1) for at in span.wanted.sampled])
        wanted = Wanted(span.wanted.sampled, span.wanted.draws, scored, shift=span.wanted.shift)
        return replace(span, wanted=wanted)

    def commit(self, sequence: SequenceState, span: Span, samples: SpanSamples, spec: Spec) -> Progress:
        """Return the progress that was recorded after the pass."""
        return self._next(sequence).progress

    def forget(self, sequence: SequenceState, spec: Spec) -> Progress:
        """Return the progress from which the recorded strategy continues without a cache."""
        return self._inner(sequence.request).forget(sequence, spec)

    def lost_passes(self, sequence: SequenceState) -> int:
        """Return the passes that the recorded strategy has to repeat."""
        return self._inner(sequence.request).lost_passes(sequence)

    def measure(self, sequence: SequenceState) -> int:
        """Return the number of passes left."""
        return len(self.recorded[sequence.request.id].passes) - sequence.steps

    def _next(self, sequence: SequenceState) -> PassRecord:
        return self.passes[sequence.request.id][sequence.steps]


def recorded_in(trajectory: object, first: State) -> list[SequenceState]:
    """Return the recorded sequence of each output. Raises Refused for one that the engine of `first` cannot score."""
    items = listed(trajectory)
    return [_recorded(*item, first) for item in enumerate([trajectory] if items is None else items)]


def _recorded(number: int, output: object, first: State) -> SequenceState:
    if not isinstance(output, Output):
        problem = f"must be an Output, got {short(output)}"
    elif output.finish_reason in ("rejected", "error"):
        problem = f"is no answer ({output.error}): leave it out"
    elif output.step_map is None or (recorded := output.step_map.recorded) is None:
        problem = "has no recorded steps: generate it with SamplingParams(step_map=True); JSON does not keep them"
    else:
        theirs = type(recorded.request.strategy).__name__, output.step_map.mask_id
        ours = type(first.strategy).__name__, first.config.spec.mask_id
        if theirs == ours:
            return recorded
        problem = f"has strategy and mask id {theirs}, this LLM {ours}: score it with an LLM of the same strategy and model"
    raise Refused("trajectory", "invalid_value", f"output {number} {problem}")


def trajectory_likelihoods(engine: LoadedEngine, recorded: Sequence[SequenceState]) -> list[LogLikelihood]:
    """Return the log-likelihood of each trajectory. Trajectories that fit one batch take as many forward passes as the longest.

    Other threads wait meanwhile. Raises DlstepError for a trajectory that the engine cannot repeat.
    """
    if not recorded:
        return []
    passes = [(*reversed([*sequence.passes]), PassRecord(sequence.progress, ())) for sequence in recorded]
    first = init(replace(engine.first.config, processors=()), Replayed(tuple(recorded), tuple(passes)))
    requests: list[Request] = []
    for number, sequence in enumerate(recorded):
        if not sequence.passes:
            continue  # nothing was masked
        given = {name: getattr(sequence.request.params, name) for name in KEPT}
        params = SamplingParams(**given, ignore_eos=True, max_nfe=len(sequence.passes))
        requests.append(Request(number, sequence.request.prompt, params, sequence.request.seed))
    found, _ = engine.turn.run(partial(sampled_passes, first, engine.driver, requests))
    likelihoods: list[LogLikelihood] = []
    for number, sequence in enumerate(recorded):
        logs: list[float] = []
        for span, rows in [found[number, step] for step in range(len(sequence.passes))]:
            scored = zip(span.wanted.scored_ids, rows.scored_probabilities, strict=True)
            logs += [log_of(probability) for token, probability in scored if token >= 0]
        likelihoods.append(LogLikelihood(fsum(logs), "trajectory", log_probabilities=tuple(logs)))
    return likelihoods

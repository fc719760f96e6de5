"""When and where an answer ends. The core checks four conditions after each sampling forward pass.

- `stop`: an end-of-sequence token, stop id or stop string is settled, with everything before it;
- `length`: the answer is full;
- `nfe_limit`: the allowed number of sampling passes is reached;
- `repetition`: too many consecutive settled tokens are equal.

A pass may settle several tokens and meet several conditions. The one that ends the answer earliest
counts; if two end it after the same token, the one listed first. Only settled tokens are emitted.
"""

from dataclasses import replace

from .constraint import RequestConstraint
from .request import Request, SamplingParams
from .sequence import NOTHING_STORED, FinishInfo, FinishReason, SequenceState
from .spec import Config, Spec


def answer_limit(request: Request, config: Config) -> int:
    """Return the first position past the answer, from `max_tokens` and `max_model_len`."""
    return min(len(request.prompt) + request.params.max_tokens, config.max_model_len)


def stop_ids(params: SamplingParams, spec: Spec) -> tuple[int, ...]:
    """Return the ids that end an answer, ascending."""
    ids = params.stop_token_ids if params.ignore_eos else params.stop_token_ids + spec.eos_ids
    return tuple(sorted(set(ids)))


def ended(sequence: SequenceState, reason: FinishReason, end: int, error: str = "") -> SequenceState:
    """Return the sequence as finished, without its pages; its answer ends before position `end`."""
    info = FinishInfo(reason, end, error)
    return sequence.with_accounting(replace(sequence.accounting, storage=NOTHING_STORED, finish_info=info))


def judge(sequence: SequenceState, since: int, spec: Spec) -> SequenceState:
    """Return `sequence` after checking the tokens of `[since, settled)`; finished if a condition holds."""
    request_spec = sequence.request_spec
    params = request_spec.request.params
    settled, repeated = sequence.settled, None
    if settled > since:
        new = sequence.tokens(since, settled)
        if request_spec.constraint is not None:
            sequence = _advanced_state(sequence, request_spec.constraint, new)
        stopped = False
        # Cut `new` before the first stop id, so that the other conditions only see tokens of the answer.
        for stop_id in request_spec.stop_ids:
            if stop_id in new:
                new, stopped = new[: new.index(stop_id)], True
        if params.max_repetition_run is not None:
            sequence, repeated = _count_run(sequence, since, new, params.max_repetition_run)
        if params.stop:
            sequence, cut = _match_stops(sequence, since, new, spec)
            if cut is not None and (repeated is None or cut <= repeated):
                return ended(sequence, "stop", cut)
        if stopped and repeated is None:
            return ended(sequence, "stop", since + len(new))
    # A run that ends at `settled` ends the answer where `length` and `nfe_limit` do, which are listed first.
    if repeated is not None and repeated < settled:
        return ended(sequence, "repetition", repeated)
    if settled == request_spec.limit:
        return ended(sequence, "length", settled)
    if params.max_nfe is not None and sequence.accounting.steps >= params.max_nfe:
        return ended(sequence, "nfe_limit", settled)
    return sequence if repeated is None else ended(sequence, "repetition", settled)


def _advanced_state(sequence: SequenceState, constraint: RequestConstraint, new: tuple[int, ...]) -> SequenceState:
    """Return the sequence with the state of the constraint's automaton after the tokens `new`."""
    stop_state = sequence.accounting.stop_state
    return sequence.with_stop_state(replace(stop_state, state=constraint.run(stop_state.state, new)))


def _count_run(sequence: SequenceState, since: int, new: tuple[int, ...], most: int) -> tuple[SequenceState, int | None]:
    """Return the sequence with the length of its last run of equal tokens, and the end of the first run of `most`, or None."""
    run, last = sequence.accounting.stop_state.run, sequence.tokens(since - 1, since)
    end = None
    for position, token in enumerate(new, since):
        run = run + 1 if (token,) == last else 1
        last = (token,)
        if run >= most:
            end = position + 1
            break
    return sequence.with_stop_state(replace(sequence.accounting.stop_state, run=run)), end


def _match_stops(sequence: SequenceState, since: int, new: tuple[int, ...], spec: Spec) -> tuple[SequenceState, int | None]:
    """Return the sequence with `new` added to its tail, and the end of the first stop string, or None.

    The tail is the last bytes of the text, as many as a stop string may have before its last byte.
    """
    stops = [text.encode() for text in sequence.request.params.stop]
    keep = max(len(stop) for stop in stops) - 1
    tail = sequence.accounting.stop_state.tail
    for position, token in enumerate(new, since):
        text = tail + spec.pieces[token]
        if any(stop in text for stop in stops):
            return sequence, position + 1
        tail = text[max(0, len(text) - keep) :]
    return sequence.with_stop_state(replace(sequence.accounting.stop_state, tail=tail)), None

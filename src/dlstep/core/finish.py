"""When and where an answer ends. The core checks these rules after each sampling forward pass.

`stop`: the first end-of-sequence token, stop id or stop string with everything before it settled;
`length`: the answer is full; `nfe_limit`: the sampling passes are used up; `repetition`: too many
equal settled tokens at the end. The first rule that holds counts. Only settled tokens are emitted.
"""

from itertools import takewhile

from .ledger import Ending, FinishReason, Watch
from .request import Request, SamplingParams
from .sequence import Sequence
from .spec import Config, Spec


def answer_limit(request: Request, config: Config) -> int:
    """Return the first position past the answer, from `max_tokens` and `max_model_len`."""
    return min(len(request.prompt) + request.params.max_tokens, config.max_model_len)


def stop_ids(params: SamplingParams, spec: Spec) -> tuple[int, ...]:
    """Return the ids that end an answer, ascending."""
    ids = params.stop_token_ids if params.ignore_eos else params.stop_token_ids + spec.eos_ids
    return tuple(sorted(set(ids)))


def ended(sequence: Sequence, reason: FinishReason, end: int, error: str = "") -> Sequence:
    """Return the sequence with its answer ended before position `end`, and no pages."""
    return sequence.ended(Ending(reason, end, error))


def judge(sequence: Sequence, since: int, spec: Spec) -> Sequence:
    """Return `sequence` after checking the tokens of `[since, settled)`, ended if a rule holds."""
    goal = sequence.goal
    params = goal.request.params
    settled = sequence.settled
    if settled > since:
        new = sequence.tokens(since, settled)
        stopped = False
        for stop_id in goal.stop_ids:
            if stop_id in new:
                new, stopped = new[: new.index(stop_id)], True
        if params.stop:
            sequence, cut = _match_stops(sequence, since, new, spec)
            if cut is not None:
                return ended(sequence, "stop", cut)
        if stopped:
            return ended(sequence, "stop", since + len(new))
        if params.max_repetition_run is not None:
            sequence = _count_run(sequence, since, new)
    if settled == goal.limit:
        return ended(sequence, "length", settled)
    if params.max_nfe is not None and sequence.ledger.steps >= params.max_nfe:
        return ended(sequence, "nfe_limit", settled)
    if params.max_repetition_run is not None and sequence.ledger.watch.run >= params.max_repetition_run:
        return ended(sequence, "repetition", settled)
    return sequence


def _count_run(sequence: Sequence, since: int, new: tuple[int, ...]) -> Sequence:
    """Return the sequence with the run of equal answer tokens at its settled end counted."""
    run = sum(1 for _ in takewhile(lambda token: token == new[-1], reversed(new)))
    if run == len(new) and sequence.tokens(since - 1, since) == new[-1:]:
        run += sequence.ledger.watch.run
    return sequence.watching(Watch(run, sequence.ledger.watch.tail))


def _match_stops(sequence: Sequence, since: int, new: tuple[int, ...], spec: Spec) -> tuple[Sequence, int | None]:
    """Return the sequence with its tail moved past `new`, and the end of the first stop string."""
    stops = [text.encode() for text in sequence.request.params.stop]
    keep = max(len(stop) for stop in stops) - 1
    tail = sequence.ledger.watch.tail
    for position, token in enumerate(new, since):
        text = tail + spec.pieces[token]
        if any(stop in text for stop in stops):
            return sequence, position + 1
        tail = text[max(0, len(text) - keep) :]
    return sequence.watching(Watch(sequence.ledger.watch.run, tail)), None

"""The law of constrained answers, checked against a definition that shares no code with the core."""

from dataclasses import replace

from hypothesis.strategies import DataObject, sampled_from

from ..core import SamplingParams, SequenceState, Span
from ..core.automaton import DEAD, Automaton
from ..core.finish import answer_limit
from .generators import VOCABULARY, Case, Kind, cases, random_automata
from .harness import run_case

Cells = list["int | None"]


def constrained(kind: Kind, data: DataObject) -> None:
    """Constrained answers are in the language; a mask allows exactly the ids that some valid answer has there.

    Strategies that do not support constraints reject them.
    """
    case = _with_constraints(data.draw(cases(kind, forks=True)), data)
    run = run_case(case)
    for step in run.steps:
        for span, sequence in step.planned_spans():
            if sequence.request.constraint is not None and span.sampled:
                _check_masks(span, sequence)
    for request in case.requests:
        done = run.state.finished[request.id]
        if not done.request_spec.strategy.takes_constraints:
            assert done.finish in ("rejected", "abort"), "a constraint is ignored"
        elif done.finish in ("stop", "length") and not _cut(done):
            assert request.constraint is not None and request.constraint.accepts(done.answer), (
                "an answer is not in the language"
            )
        elif done.finish == "rejected" and "no text that matches" in done.error:
            cells = gaps(done, answer_limit(request, case.config))
            assert not completable(request.constraint, done.stop_ids, cells), "a request is rejected though it has an answer"


def _with_constraints(case: Case, data: DataObject) -> Case:
    """Return the case with a constraint on every request."""
    automata, requests = sampled_from(random_automata()), list(case.requests)
    for index, request in enumerate(requests):
        params = replace(request.params, ignore_eos=False, max_nfe=None, max_repetition_run=None)
        requests[index] = replace(request, params=params, constraint=data.draw(automata))
    return replace(case, requests=tuple(requests))


def gaps(sequence: SequenceState, limit: int) -> Cells:
    """Return the token of each position of the answer up to `limit`; None where there is none yet."""
    cells: Cells = [None] * (limit - len(sequence.request.prompt))
    for offset, token in sequence.request.params.pinned:
        if offset < len(cells):
            cells[offset] = token
    for position, token in sequence.unmasked_tokens.items():
        cells[position - len(sequence.request.prompt)] = token
    return cells


def completable(automaton: "Automaton | None", stop_ids: tuple[int, ...], cells: Cells) -> bool:
    """Return whether the gaps can be filled so that the answer is in the language and ends in time."""
    assert automaton is not None
    class_of, moves = automaton.class_of, automaton.moves
    letters = {class_of[token] for token in range(automaton.vocab_size) if token not in stop_ids}
    states: set[int | None] = {0}  # None stands for the state after a stop id
    for cell in cells:
        after: set[int | None] = set()
        for state in states:
            if (cell is None and stop_ids) or cell in stop_ids:
                after |= {None} if state is None or automaton.accepting >> state & 1 else set()
            if state is not None and cell not in stop_ids:
                after |= {moves[state][letter] for letter in (letters if cell is None else [class_of[cell]])}
        states = after - {DEAD}
    return any(state is None or automaton.accepting >> state & 1 for state in states)


def _check_masks(span: Span, sequence: SequenceState) -> None:
    """Check the mask of each sampled position against `completable`, for some ids of every kind.

    If the strategy gives the answers of autoregressive decoding, a mask depends only on the tokens
    before its position.
    """
    request, start = sequence.request, len(sequence.request.prompt)
    assert len(span.masks) == len(span.sampled)
    known = gaps(sequence, sequence.limit)
    causal = sequence.request_spec.strategy.autoregressive is not None
    settled = sequence.settled - start if causal else len(known)
    cells = known[:settled] + [None] * (len(known) - settled)
    assert completable(request.constraint, sequence.stop_ids, cells), "the window can no longer be completed"
    for position, mask in zip(span.sampled, span.masks, strict=True):
        if causal:
            cells[settled : position - start] = known[settled : position - start]
        if position >= sequence.limit or not completable(request.constraint, sequence.stop_ids, cells):
            # Positions past the answer are sampled, because a canvas is denoised as a whole, and so are positions
            # after a wrong proposal, whose samples are not used.
            assert len(mask.ids()) == VOCABULARY, "a position past the answer is constrained"
            continue
        allowed, before = set(mask.ids()), cells[position - start]
        for token in (*range(5), *sequence.stop_ids[:2], *range(45, 50)):
            cells[position - start] = token
            fits = completable(request.constraint, sequence.stop_ids, cells)
            assert fits == (token in allowed), f"id {token} at position {position} is {'missing' if fits else 'allowed'}"
        cells[position - start] = before


def _cut(done: SequenceState) -> bool:
    """Return whether a stop string ended the answer."""
    end = done.settled if done.finish_info is None else done.finish_info.end
    params: SamplingParams = done.request.params
    stopped = end < done.limit and done.tokens(end, end + 1)[:1] and done.tokens(end, end + 1)[0] in done.stop_ids
    return bool(params.stop) and not stopped and done.finish == "stop"

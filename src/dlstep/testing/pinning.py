"""The law of pinned tokens and of initial canvases."""

from hypothesis.strategies import DataObject

from ..core import Request, SequenceState, Span
from ..core.finish import answer_limit
from .generators import Case, Kind, cases
from .harness import run_case


def pinned(kind: Kind, data: DataObject) -> None:
    """Pinned tokens are given: fed unchanged, not sampled (but in a canvas), in the answer.

    A canvas is denoised whole and starts from the request's ids; a full answer takes no pass.
    """
    case = data.draw(cases(kind, pinned=True))
    run = run_case(case)
    for step in run.steps:
        for span in step.plan.spans:
            sequence = step.planned.find(span.id)
            assert sequence is not None
            _check_span(span, sequence.request)
        for sequence in step.after.running:
            known = sequence.unmasked_tokens
            for position, token in pins_in_window(sequence).items():
                assert known.get(position) == token, "a pinned position is masked, or another token"
    for request in case.requests:
        done = run.state.finished[request.id]
        if done.finish != "rejected":
            _check_answer(case, request, done)


def _check_span(span: Span, request: Request) -> None:
    """Check that the span feeds the request's tokens, and samples no pinned position."""
    length = len(request.prompt)
    brought = dict(enumerate(request.params.canvas, length)) if span.carry == "fresh" else {}
    pins = {length + offset: token for offset, token in request.params.pinned}
    for position, token in (brought | pins).items():
        if span.start <= position < span.stop:
            assert span.tokens[position - span.start] == token, "another token is fed than the request brings"
    assert span.mode == "denoise" or not pins.keys() & set(span.sampled), "a pinned position is sampled"


def _check_answer(case: Case, request: Request, done: SequenceState) -> None:
    """Check that the answer holds the pinned tokens, and takes no pass if they fill it."""
    pinned = dict(request.params.pinned)
    assert case.strategy.holds_pins or not pinned, "pinned tokens are ignored"
    assert case.strategy.takes_canvas or not request.params.canvas, "a canvas is ignored"
    held = zip(done.answer, done.probabilities, strict=True)
    found = {offset: pair for offset, pair in enumerate(held) if offset in pinned}
    kept = {offset: (token, 1.0) for offset, token in pinned.items() if offset < len(done.answer)}
    assert found == kept, "the answer holds other tokens than the pinned ones"
    if len(pinned) >= answer_limit(request, case.config) - len(request.prompt):
        assert done.nfe == 0, "an answer without gaps takes forward passes"


def pins_in_window(sequence: SequenceState) -> dict[int, int]:
    """Return the pinned tokens of a request by position, as far as its blocks reach."""
    length = len(sequence.request.prompt)
    end = max([sequence.final, *(block.end for block in sequence.window)])
    pins = {length + offset: token for offset, token in sequence.request.params.pinned}
    return {position: token for position, token in pins.items() if position < end}

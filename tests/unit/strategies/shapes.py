"""The shapes of the forwards of one scripted request."""

from dlstep.core import (
    Config,
    Request,
    SamplingParams,
    SequenceState,
    Span,
    SpanSamples,
    Spec,
    Strategy,
    add,
    commit,
    init,
    schedule,
)
from dlstep.testing.harness import CaseRun
from dlstep.testing.scripted import ScriptedDriver

SPEC = Spec(mask_id=99, eos_ids=(98,), vocab_size=100, head_shift=1)


def samplings(run: CaseRun) -> list[tuple[Span, SequenceState, SequenceState]]:
    """The spans that sampled and were committed, each with its sequence before and after."""
    found: list[tuple[Span, SequenceState, SequenceState]] = []
    for step in run.steps:
        for span in step.plan.spans:
            before, after = step.before.find(span.who.id), step.after.find(span.who.id)
            assert before is not None and after is not None
            if span.wanted.sampled and before.finish_info is None:
                found.append((span, before, after))
    return found


Shape = tuple[int, int, int, tuple[int, ...]]
Script = list[tuple[Shape, tuple[float, ...]]]


def shapes(strategy: Strategy, prompt: int, answer: int, script: Script, accept: float | None = None) -> list[Shape]:
    """Start after final rows, stop, end and sampled positions of the spans of a request whose rows have `script`'s chances.

    `accept` is the request's own threshold.
    """
    chances, spans = [chance for _, chance in script], list[Shape]()

    def rows(span: Span) -> SpanSamples:
        spans.append(
            (span.rows.start + span.rows.query_only + span.rows.final_rows, span.rows.stop, span.rows.end, span.wanted.sampled)
        )
        return SpanSamples(span.wanted.sampled, chances.pop(0))

    params = SamplingParams(max_tokens=answer, strategy_options=() if accept is None else (("accept_threshold", accept),))
    request = Request(0, tuple(range(prompt)), params)
    state, driver = add(init(Config(SPEC, 8, 64, 64), strategy), request), ScriptedDriver(rows)
    while not state.done:
        state = commit(state, driver.run(schedule(state)))
    assert not chances, "fewer forwards than expected"
    assert state.finished[0].answer == tuple(range(prompt, prompt + answer))
    return spans

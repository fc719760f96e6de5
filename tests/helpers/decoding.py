"""The loop of schedule and commit: states of some requests, what answers their plans, and one request decoded alone."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from dlstep import (
    Config,
    Plan,
    Request,
    Samples,
    SamplingParams,
    SpanSamples,
    Spec,
    State,
    Strategy,
    add,
    commit,
    init,
    schedule,
)
from dlstep.core import NO_SAMPLES, Driver, SequenceState, Span
from dlstep.testing.generators import EOS, MASK, PIECES, VOCABULARY

SPEC = Spec(MASK, (EOS,), VOCABULARY, pieces=PIECES)
CONFIG = Config(SPEC, page_size=4, num_pages=64, max_model_len=64, max_num_batched_tokens=256, max_num_reqs=8)
Run = Callable[[State], Samples]  # the samples of the next plan of a state


def with_requests(config: Config, strategy: Strategy, requests: Iterable[Request]) -> State:
    """The first state of a decode of these requests."""
    state = init(config, strategy)
    for request in requests:
        state = add(state, request)
    return state


def waiting(strategy: Strategy, request: Request, config: Config = CONFIG) -> SequenceState:
    """The sequence of a request that was just added to an empty state."""
    (sequence,) = add(init(config, strategy), request).waiting
    return sequence


def by_driver(driver: Driver) -> Run:
    """Let a driver run the plans."""
    return lambda state: driver.run(schedule(state))


def by_spans(samples: Callable[[State, Plan, Span], SpanSamples]) -> Run:
    """Let `rows` answer each span of a plan that samples something."""

    def run(state: State) -> Samples:
        plan = schedule(state)
        return Samples(plan, tuple([samples(state, plan, span) if span.wanted.sampled else NO_SAMPLES for span in plan.spans]))

    return run


def decoded(state: State, run: Run) -> State:
    """The state after all its requests."""
    while not state.done:
        state = commit(state, run(state))
    return state


def room_for_one(spec: Spec, max_model_len: int = 96) -> Config:
    """A configuration with room to spare for one request."""
    return Config(spec, page_size=4, num_pages=64, max_model_len=max_model_len, max_num_batched_tokens=512, max_num_reqs=1)


def decoded_alone(config: Config, strategy: Strategy, prompt: Sequence[int], params: SamplingParams, run: Run) -> SequenceState:
    """The sequence of one request, which no other and no lack of room disturbs."""
    state = decoded(with_requests(config, strategy, [Request(0, tuple(prompt), params)]), run)
    assert state.finished[0].finish in ("stop", "length"), state.finished[0].error
    return state.finished[0]


def passes(
    config: Config, strategy: Strategy, request: Request, driver: Driver
) -> Iterator[tuple[SequenceState, Span, SequenceState]]:
    """The request before each of its forward passes, alone, the span, and the request after it.

    Each pass that samples lowers the measure.
    """
    state = with_requests(config, strategy, [request])
    while not state.done:
        plan = schedule(state)
        before, state = state.find(request.id), commit(state, driver.run(plan))
        after, (span,) = state.find(request.id), plan.spans
        assert before is not None and after is not None
        assert after.finish or not span.wanted.sampled or strategy.measure(after) < strategy.measure(before)
        yield before, span, after

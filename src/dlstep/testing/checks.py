"""Checks of a state, an answer, a plan or a trace. Each check raises AssertionError."""

from collections import Counter
from dataclasses import replace

from ..core import ReplayDiverged, Request, Samples, SamplingParams, SequenceState, Spec, State, Trace
from ..core.lifecycle import answer_limit
from .harness import Step
from .shadow import ShadowDriver


def check_ownership(state: State) -> None:
    """Check that each page is owned as often as tables hold it, or cached and findable, or free."""
    cache = state.cache
    held = Counter(page for sequence in state.running for page in sequence.pages)
    assert dict(held) == {page: cache.owners[page] for page in cache.owners}, "owners differ from tables"
    unowned = [*cache.free, *cache.cached, *range(cache.fresh, cache.num_pages)]
    assert sorted((*held, *unowned)) == list(range(cache.num_pages)), "a page is lost or held twice"
    assert cache.available == len(unowned)
    slots = [*cache.slots, *(s.storage.slot for s in state.running if s.storage.slot is not None)]
    assert sorted(slots) == list(range(state.config.max_num_reqs if state.strategy.carries else 0)), "a carry slot is lost"
    assert set(cache.cached) == {page for page in cache.keys if page not in held}
    assert {cache.keys[page]: page for page in cache.keys} == {key: cache.index[key] for key in cache.index}
    _check_requests(state)


def check_device(state: State, device: ShadowDriver) -> None:
    """Check that the device last ran a plan of `state`, with the right tokens in its pages."""
    for sequence in state.running:
        seq_id, tokens = sequence.request.seq_id, sequence.tokens(0, sequence.storage.stored)
        assert device.now.tables[seq_id] == list(sequence.pages), "the device has other pages for the request"
        for position, token in enumerate(tokens):
            held = device.now.slots[device.slot(seq_id, position)]
            right = held.is_final(tokens) and (held.position, held.token) == (position, token)
            assert right, f"{held} is stored, not {token}"


def _check_requests(state: State) -> None:
    """Check that requests are found by id, and only running ones hold pages, each page once."""
    for sequence in state.running:
        assert len(set(sequence.pages)) == len(sequence.pages), "a page twice in a table"
        assert sequence.storage.stored <= sequence.final <= max(sequence.settled, sequence.final)
    live = {sequence.request.id: sequence.request.seq_id for sequence in (*state.running, *state.waiting)}
    assert {key: state.live[key] for key in state.live} == live, "an id does not find its request"
    assert sorted(state.ended) == sorted(state.finished), "the finished requests are not those that ended"
    assert len(state.waiting) == len(list(state.waiting))
    for sequence in (*state.waiting, *(state.finished[key] for key in state.finished)):
        assert not sequence.pages and not sequence.storage.stored and sequence.storage.slot is None, (
            "a sequence that does not run holds pages"
        )


def check_answer(state: State, request: Request) -> None:
    """Check that the answer of a finished request agrees with its finish reason."""
    sequence = state.finished[request.id]
    spec, answer = state.config.spec, sequence.answer
    limit = answer_limit(request, state.config) - len(request.prompt)
    assert sequence.request.prompt == request.prompt and spec.mask_id not in answer
    assert len(answer) <= max(limit, 0) and len(sequence.probabilities) == len(answer)
    assert sequence.nfe >= sequence.steps
    if sequence.finish == "rejected":
        assert not answer and sequence.error
        return
    length = len(request.prompt)
    assert sequence.tokens(0, length) == request.prompt
    assert not set(answer) & set(sequence.request.stop_ids), "an answer holds a stop id"
    _check_reason(sequence, request.params, spec, limit)


def _check_reason(sequence: SequenceState, params: SamplingParams, spec: Spec, limit: int) -> None:
    """Check that the answer, of at most `limit` tokens, ends as its reason requires."""
    answer = sequence.answer
    text = b"".join(spec.pieces[token] for token in answer)
    stopped = any(stop.encode() in text for stop in params.stop)
    if (bound := params.max_repetition_run) is not None:
        runs = (answer[end - bound : end] for end in range(bound, len(answer)))
        assert all(len(set(run)) > 1 for run in runs), "the answer goes on after a run of equal tokens"
    match sequence.finish:
        case "stop":
            end = len(sequence.request.prompt) + len(answer)
            assert stopped or sequence.tokens(end, end + 1)[0] in sequence.request.stop_ids
        case "length":
            assert len(answer) == limit and not stopped
        case "nfe_limit":
            assert sequence.steps == params.max_nfe and len(answer) < limit and not stopped
        case "repetition":
            run = params.max_repetition_run
            assert run is not None and len(set(answer[-run:])) == 1 and len(answer) >= run
        case reason:
            assert reason == "abort"


def check_order(step: Step) -> None:
    """Check that the plan of a step respects the order of the sequence numbers."""
    planned, plan = step.planned, step.plan
    live = [sequence.request.id for sequence in (*planned.running, *planned.waiting)]
    seq_ids = [sequence.request.seq_id for sequence in (*planned.running, *planned.waiting)]
    assert seq_ids == sorted(seq_ids)
    served = [span.who.id for span in plan.spans]
    assert served == live[: len(served)], "a request was overtaken"
    assert live == [] or served, "the oldest got no span"
    assert not plan.preemptions or not plan.admissions
    running = [sequence.request.seq_id for sequence in planned.running]
    victims = list(plan.preemptions)
    assert victims == running[::-1][: len(victims)], "the youngest are not the victims"
    serving = [span.who.seq_id for span in plan.spans]
    assert not set(victims) & set(serving)
    assert [admission.seq_id for admission in plan.admissions] == serving[len(planned.running) :]


def check_tampering(trace: Trace) -> None:
    """Check that a replay detects a changed plan."""
    for number, event in enumerate(trace.events):
        if isinstance(event, Samples):
            spec = event.plan.sample_spec
            ties = replace(spec, ties="lowest" if spec.ties == "highest" else "highest")
            other = replace(event, plan=replace(event.plan, sample_spec=ties))
            forged = Trace(trace.first, (*trace.events[:number], other))
            try:
                forged.replay()
            except ReplayDiverged as error:
                assert f"event {number}, " in str(error)
                return
            raise AssertionError("a forged plan was replayed")

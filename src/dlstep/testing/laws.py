"""The laws of the engine: functions of a strategy (class or value) and Hypothesis' `data`.

A law raises AssertionError if it does not hold. `docs/structure.md` describes all `LAWS`.
"""

import pickle
from collections import Counter
from collections.abc import Callable
from dataclasses import fields, replace
from tempfile import TemporaryDirectory

from hypothesis.strategies import DataObject, integers, lists, sampled_from

from ..core import (
    Request,
    SamplingParams,
    SequenceState,
    Span,
    Thresholds,
    Trace,
    abort,
    add,
    commit,
    prepare,
    rebuild,
    schedule,
    with_options,
)
from ..core.block import Grid
from ..core.finish import answer_limit
from ..core.refusals import refusal, sized
from ..core.trace_file import from_json, to_json
from .checks import check_answer, check_order, check_ownership, check_tampering
from .constraining import constrained
from .generators import MAX_MODEL_LEN, Case, Kind, ample, batches, cases, crowds, hyperparameters, specs
from .harness import CaseRun, alone, disturbed, outcomes, run_case, shadow
from .lossless import lossless
from .pinning import pinned
from .shadow import ShadowDriver
from .sharing import histories, told

Law = Callable[[Kind, DataObject], None]


def functions(kind: Kind, data: DataObject) -> None:
    """`schedule` and `commit` are pure functions, also after pickling, and preparing a commit changes nothing."""
    for step in run_case(data.draw(cases(kind))).steps:
        frozen = pickle.dumps((step.planned, step.before, step.samples))
        planned, before, samples = pickle.loads(frozen)
        assert (planned, before, samples) == (step.planned, step.before, step.samples)
        assert schedule(planned) == step.plan == schedule(step.planned)
        assert commit(before, samples) == step.after == commit(step.before, step.samples)
        # A request may have been aborted since `planned`: then what was prepared for it must not count.
        for state in (step.before, step.planned):
            assert commit(step.before, step.samples, prepare(state, step.plan)) == step.after
        assert (planned, before, samples) == pickle.loads(frozen), "an argument changed"
        assert from_json(to_json(step.after)) == step.after
        assert hash(before) == hash(step.before)


def ownership(kind: Kind, data: DataObject) -> None:
    """Owned (counted), cached and free pages add up; tables repeat no page; all end unowned."""
    run = run_case(data.draw(cases(kind)), watch=lambda run: check_ownership(run.state))
    assert not len(run.state.cache.owners)


def single_writer(kind: Kind, data: DataObject) -> None:
    """No two sequences store to one page; shared pages are full, final and read-only."""

    def watch(run: CaseRun) -> None:
        state = run.steps[-1].after
        size = state.config.page_size
        for sequence in state.running:
            for index, page in enumerate(sequence.pages):
                if state.cache.owners[page] > 1 or page in state.cache.keys:
                    assert (index + 1) * size <= sequence.stored, "a shared page is not final"

    run_case(data.draw(cases(kind)), watch=watch)


def written_before_read(kind: Kind, data: DataObject) -> None:
    """Every slot that is read or below `stored` holds its position's final token."""

    def watch(run: CaseRun) -> None:
        device = run.driver
        assert isinstance(device, ShadowDriver)
        for sequence in run.state.running:
            tokens = sequence.tokens(0, sequence.stored)
            assert _is_cut(sequence.request_spec.grid, sequence.stored), "a group is stored in part"
            for position, token in enumerate(tokens):
                held = device.now.slots[device.slot(sequence.request.seq_id, position)]
                right = held.is_final(tokens) and (held.position, held.token) == (position, token)
                assert right, f"{held} is stored, not {token}"

    run_case(data.draw(cases(kind)), watch=watch)


def budgets(kind: Kind, data: DataObject) -> None:
    """Spans, rows and positions stay within their limits."""
    case = data.draw(cases(kind) | crowds(kind))
    requests = {request.id: request for request in case.requests}
    for step in run_case(case).steps:
        assert len(step.plan.spans) <= case.config.max_num_reqs
        assert len(step.after.running) <= case.config.max_num_reqs
        assert sum(len(span.tokens) for span in step.plan.spans) <= case.config.max_num_batched_tokens
        for span in step.plan.spans:
            limit = answer_limit(requests[span.id], case.config)
            assert limit <= case.config.max_model_len
            reach = case.strategy.reach(sized(requests[span.id], MAX_MODEL_LEN))
            assert span.stop <= span.end <= reach, "fed past the grid end of the answer"
            last = reach if span.mode == "denoise" else limit  # a canvas is denoised whole
            assert all(len(requests[span.id].prompt) <= position < last for position in span.sampled)


def _is_cut(grid: Grid, position: int) -> bool:
    return position == 0 or grid.end(position - 1) == position


def _check_draws(span: Span, sequence: SequenceState, drawn: Counter[tuple[int, int]]) -> None:
    """Check that sampled positions are in the window and draws count earlier passes of their block.

    `drawn` holds these counts by request and start of block. A `fresh` window restarts at 0. If the
    strategy gives the answers of autoregressive decoding, every draw number is 0, as it is there.
    """
    one_by_one = sequence.request_spec.strategy.autoregressive is not None
    draws = dict(zip(span.sampled, span.draws, strict=True))
    for block in sequence.window:
        own = {draws.pop(position) for position in span.sampled if block.start <= position < block.end}
        if own:
            due = 0 if one_by_one or span.carry == "fresh" else drawn[span.id, block.start]
            assert own == {due}, "a draw is repeated or skipped"
            drawn[span.id, block.start] = due + 1
    assert not draws, "a sampled position is in no block of the window"


def _check_rows(span: Span, sequence: SequenceState, exact: bool) -> None:
    """Check that rows hold the right tokens, and that spans start and end where they may."""
    assert span.tokens == sequence.tokens(span.start, span.stop)
    assert span.sampled or _is_cut(span.grid, span.stop), "cut inside a group"
    if exact or not span.sampled:
        assert span.stop == span.end, "an exact strategy sees what it does not feed"
    assert span.query_only in (0, 1) and span.query_only + span.final_rows <= len(span.tokens)
    in_front = span.query_only + span.final_rows
    if exact or in_front:
        assert span.start + in_front <= sequence.final, "rows of the window are left out, or count as final"
    if not span.sampled:
        assert span.final_rows == len(span.tokens), "a storing span holds rows that are not final"


def _check_sampled(span: Span, sequence: SequenceState, shift: int) -> None:
    """Check that sampled positions ascend and have rows, and the number of their scored ids."""
    assert list(span.sampled) == sorted(set(span.sampled))
    assert len(span.scored_ids) == sequence.request_spec.strategy.sample_spec.scored * len(span.sampled), (
        "the scored ids are not those of the sampled positions"
    )
    for position in span.sampled:
        assert span.start <= position - shift < span.stop, "a sampled position has no row"
        assert position >= sequence.final


def spans_are_sound(kind: Kind, data: DataObject) -> None:
    """Rows hold the right tokens, end at groups, serve sampled positions, number draws."""
    case = data.draw(cases(kind, forks=True))
    drawn: Counter[tuple[int, int]] = Counter()
    for step in run_case(case).steps:
        shift = step.planned.config.spec.head_shift
        for span in step.plan.spans:
            sequence = step.planned.find(span.id)
            assert sequence is not None
            _check_rows(span, sequence, sequence.request_spec.strategy.exact)
            _check_sampled(span, sequence, span.row_shift(shift))
            _check_draws(span, sequence, drawn)


def progress(kind: Kind, data: DataObject) -> None:
    """Every pass stores or samples; sampling passes lower the measure; both are bounded."""
    case = data.draw(cases(kind, forks=True))
    storing: Counter[int] = Counter()
    losses: Counter[int] = Counter()

    def watch(run: CaseRun) -> None:  # step by step: a decode that does not progress never ends
        step = run.steps[-1]
        assert step.plan.spans or step.planned.done, "nothing was planned though work is queued"
        losses.update(sequence.id for sequence in step.planned.running if sequence.request.seq_id in step.plan.preemptions)
        for span in step.plan.spans:
            before, after = step.before.find(span.id), step.after.find(span.id)
            assert before is not None and after is not None
            if before.finish_info is not None:  # aborted after it was planned
                assert after == before
                continue
            assert after.nfe == before.nfe + 1 and after.steps == before.steps + bool(span.sampled)
            if not span.sampled:
                storing[span.id] += 1
                assert after.stored == span.stop
            elif after.finish_info is None:
                strategy = after.request_spec.strategy
                assert 0 <= strategy.measure(after) < strategy.measure(before), "the measure did not fall"

    run_case(case, watch=watch)
    for request in case.requests:
        limit = answer_limit(request, case.config)
        groups = case.strategy.grid(sized(request, MAX_MODEL_LEN)).group(limit - 1) + 2
        assert storing[request.id] <= (losses[request.id] + len(case.rebuilds + case.forks) + 1) * groups


def outputs(kind: Kind, data: DataObject) -> None:
    """Answers are unmasked tokens, end where the reason says, and final tokens never change."""
    case = data.draw(cases(kind, forks=True))
    run = run_case(case)
    for step in run.steps:
        for span in step.plan.spans:
            before, after = step.before.find(span.id), step.after.find(span.id)
            assert before is not None and after is not None
            assert after.settled >= before.settled and after.final >= before.final
            assert after.tokens(0, before.settled) == before.tokens(0, before.settled), "a settled token changed"
            bound = after.request.params.max_repetition_run
            if bound is not None and after.finish_info is None and len(after.answer) >= bound:
                assert len(set(after.answer[-bound:])) > 1, "too many equal tokens, and the answer goes on"
    assert set(run.state.finished) == {request.id for request in case.requests}
    for request in case.requests:
        check_answer(run.state, request)


def transparency(kind: Kind, data: DataObject) -> None:
    """Memory pressure, batching, chunking, preemption and `rebuild` change no answer.

    If a strategy is not exact, only answers of preempted requests may change.
    """
    case = data.draw(cases(kind, aborts=False))
    if not case.strategy.exact:
        case = replace(case, rebuilds=())
    run = run_case(case)
    spared = set[int]() if case.strategy.exact else disturbed(run)
    for request in case.requests:
        if request.id in spared:
            continue
        ours = run.state.finished[request.id]
        if ours.finish == "rejected":
            assert refusal(run.first.config, run.first.strategy, request)
            continue
        theirs = alone(ample(case.config.spec), case.strategy, request).state.finished[request.id]
        assert (ours.answer, ours.finish, ours.probabilities) == (theirs.answer, theirs.finish, theirs.probabilities)
        assert ours.steps == theirs.steps


def second_turns(kind: Kind, data: DataObject) -> None:
    """Check that a prompt that continues an earlier answer may reuse its pages, with the same answer."""
    value = data.draw(hyperparameters(kind))
    spec = data.draw(specs(value))
    prompt = data.draw(lists(integers(0, 9), min_size=1, max_size=5).map(tuple))
    first = Request(0, prompt, SamplingParams(max_tokens=20, ignore_eos=True, seed=0))
    answer = alone(ample(spec), value, first).state.finished[0].answer
    # Most first turns end at the end of a group, so that the second turn begins another group.
    grid, length = value.grid(sized(first, MAX_MODEL_LEN)), len(prompt)
    ends = [end for end in range(length, length + len(answer) + 1) if grid.end(end - 1) == end]
    end = data.draw(sampled_from(ends[:3] or [length]) | integers(length, length + len(answer)))
    prompt = (prompt + answer)[:end] + data.draw(sampled_from([(), (), (1,)]))
    second = replace(first, id=1, prompt=prompt)
    config = replace(ample(spec), page_size=data.draw(sampled_from([1, 3, 5, 8])), enable_prefix_caching=True)
    run = run_case(Case(config, value, (first, second), (0, MAX_MODEL_LEN * 3)))
    ours, theirs = run.state.finished[1], alone(ample(spec), value, replace(second, id=0)).state.finished[0]
    assert (ours.answer, ours.finish, ours.steps) == (theirs.answer, theirs.finish, theirs.steps)


def order(kind: Kind, data: DataObject) -> None:
    """First come, first served: nothing overtakes; only younger sequences are preempted."""
    for step in run_case(data.draw(cases(kind) | crowds(kind))).steps:
        check_order(step)


def aborts(kind: Kind, data: DataObject) -> None:
    """Check that an abort frees only what its request held and changes no other answer; repeating it does nothing."""
    case = data.draw(cases(kind, rebuilds=False))
    run = run_case(case, watch=lambda run: check_ownership(run.state))
    gone = {request_id for _, request_id in case.aborts + case.late_aborts}
    for step in run.steps:
        for request_id in gone:
            once = abort(step.after, request_id)
            assert abort(once, request_id) == once
            check_ownership(once)
    whole = run_case(replace(case, aborts=(), late_aborts=()))
    undisturbed = outcomes(whole.state)
    spared = set[int]() if case.strategy.exact else disturbed(run) | disturbed(whole)
    for request_id, outcome in outcomes(run.state).items():
        if request_id in spared:
            continue
        if run.state.finished[request_id].finish != "abort":
            assert outcome == undisturbed[request_id]
        else:
            assert request_id in gone
            assert undisturbed[request_id][0][: len(outcome[0])] == outcome[0], "an aborted answer is no prefix"


def accounting(kind: Kind, data: DataObject) -> None:
    """Check that the first `measure` bounds the sampling passes; pages never exceed the answer's needs."""
    case = data.draw(cases(kind))
    run = run_case(case)
    for step in run.steps:
        for sequence in step.after.running:
            reach = case.strategy.reach(sized(sequence.request, MAX_MODEL_LEN))
            assert len(sequence.pages) <= -(-reach // case.config.page_size)
    for request in case.requests:
        opened = add(run.first, request)
        for sequence in opened.waiting:
            assert run.state.finished[request.id].steps <= case.strategy.measure(sequence)


def traces(kind: Kind, data: DataObject) -> None:
    """Folding the trace, also from a file, gives the run; a rebuilt state the same answers."""
    case = data.draw(cases(kind))
    run = run_case(case)
    assert run.trace.state == run.trace.replay() == run.state
    with TemporaryDirectory() as folder:
        run.trace.save(f"{folder}/trace.jsonl")
        loaded = Trace.load(f"{folder}/trace.jsonl")
    assert loaded == run.trace and loaded.replay() == run.state
    check_tampering(loaded)
    if run.steps and not case.aborts and not case.late_aborts and case.strategy.exact:
        step = data.draw(sampled_from(run.steps))
        state = rebuild(step.after)
        late = [r for r, arrival in zip(case.requests, case.arrive, strict=True) if state.find(r.id) is None]
        for request in late:
            state = add(state, request)
        device = shadow(case.config, case.strategy)
        while not state.done:
            state = commit(state, device.run(schedule(state)))
        assert outcomes(state) == outcomes(run.state)


def batch_is_its_members(kind: Kind, data: DataObject) -> None:
    """Each request of a batch gets the answer that it gets alone in the same engine."""
    value = data.draw(hyperparameters(kind))
    spec = data.draw(specs(value))
    requests = data.draw(batches(value))
    config = ample(spec)
    together = run_case(Case(config, value, requests, (0,) * len(requests)))
    for request in requests:
        single = alone(config, value, request)
        ours, theirs = together.state.finished[request.id], single.state.finished[request.id]
        assert (ours.answer, ours.finish, ours.nfe) == (theirs.answer, theirs.finish, theirs.nfe)


def overrides(kind: Kind, data: DataObject) -> None:
    """Options of a request give the same answer as the same options of the engine."""
    value = data.draw(hyperparameters(kind))
    spec = data.draw(specs(value))
    (request, *_) = data.draw(batches(value, most=1))
    plain = replace(request, params=replace(request.params, thresholds=Thresholds()))
    one = alone(ample(spec), value, request).state.finished[request.id]
    try:
        own = with_options(value, request.params.options)
    except ValueError:
        assert one.finish == "rejected"
        return
    two = alone(ample(spec), own, plain).state.finished[request.id]
    assert (one.answer, one.finish, one.steps) == (two.answer, two.finish, two.steps)


def folding(kind: Kind, data: DataObject) -> None:
    """With one block at a time, `fold_commits` changes no answer, only `nfe`."""
    if not {"fold_commits", "buffer_size"} <= {field.name for field in fields(kind)}:
        return
    value = replace(data.draw(hyperparameters(kind)), buffer_size=1)
    spec = data.draw(specs(value))
    (request, *_) = data.draw(batches(value, most=1))
    one = alone(ample(spec), replace(value, fold_commits=True), request).state.finished[request.id]
    two = alone(ample(spec), replace(value, fold_commits=False), request).state.finished[request.id]
    assert (one.answer, one.finish, one.steps) == (two.answer, two.finish, two.steps)
    assert one.nfe <= two.nfe


LAWS: tuple[Law, ...] = (
    functions,
    ownership,
    single_writer,
    written_before_read,
    budgets,
    spans_are_sound,
    progress,
    outputs,
    transparency,
    batch_is_its_members,
    second_turns,
    order,
    aborts,
    accounting,
    traces,
    overrides,
    folding,
    pinned,
    constrained,
    lossless,
    histories,
    told,
)

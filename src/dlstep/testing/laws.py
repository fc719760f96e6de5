"""The laws of the engine: functions of a strategy (class or value) and Hypothesis' `data`.

A law raises AssertionError if it does not hold. `docs/structure.md` describes all `LAWS`.
"""

import pickle
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from operator import or_
from tempfile import TemporaryDirectory

from hypothesis.strategies import DataObject, integers, lists, sampled_from

from ..core import (
    Grid,
    Ids,
    Request,
    SamplingParams,
    SequenceState,
    Span,
    Trace,
    abort,
    add,
    commit,
    prepare,
    rebuild,
    schedule,
    with_options,
)
from ..core.automaton import Automaton
from ..core.lifecycle import answer_limit, refusal, sized
from ..core.trace import from_json, to_json
from .edges import PlainEdges
from .generators import (
    MAX_MODEL_LEN,
    VOCABULARY,
    Case,
    Kind,
    ample,
    batches,
    cases,
    crowds,
    engines,
    random_automata,
    under,
)
from .harness import (
    CaseRun,
    alone,
    answered_alone,
    check_answer,
    check_device,
    check_ownership,
    disturbed,
    outcome,
    outcomes,
    run_case,
    shadow,
)
from .shadow import ShadowDriver
from .sharing import histories, told

Law = Callable[[Kind, DataObject], None]
# Fractions of positions whose samples do not depend on earlier tokens. At other positions, nearly all proposals are wrong.
ALIKE = sampled_from([0.0, 0.5, 0.8, 0.9, 1.0])


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
                    assert (index + 1) * size <= sequence.storage.stored, "a shared page is not final"

    run_case(data.draw(cases(kind)), watch=watch)


def written_before_read(kind: Kind, data: DataObject) -> None:
    """Every slot that is read or below `stored` holds its position's final token."""

    def watch(run: CaseRun) -> None:
        device = run.driver
        assert isinstance(device, ShadowDriver)
        check_device(run.state, device)
        for sequence in run.state.running:
            assert _is_cut(sequence.request.grid, sequence.storage.stored), "a group is stored in part"

    run_case(data.draw(cases(kind)), watch=watch)


def budgets(kind: Kind, data: DataObject) -> None:
    """Spans, rows and positions stay within their limits."""
    case = data.draw(cases(kind) | crowds(kind))
    requests = {request.id: request for request in case.requests}
    for step in run_case(case).steps:
        assert len(step.plan.spans) <= case.config.max_num_reqs
        assert len(step.after.running) <= case.config.max_num_reqs
        assert step.plan.num_rows <= case.config.max_num_batched_tokens
        for span in step.plan.spans:
            limit = answer_limit(requests[span.who.id], case.config)
            assert limit <= case.config.max_model_len
            fed_end = case.strategy.fed_end(sized(requests[span.who.id], MAX_MODEL_LEN))
            assert span.rows.stop <= span.rows.end <= fed_end, "fed past the grid end of the answer"
            last = fed_end if span.rows.mode == "denoise" else limit  # a canvas is denoised whole
            assert all(len(requests[span.who.id].prompt) <= position < last for position in span.wanted.sampled)


def _is_cut(grid: Grid, position: int) -> bool:
    return position == 0 or grid.end(position - 1) == position


def _check_draws(span: Span, sequence: SequenceState, drawn: Counter[tuple[int, int]]) -> None:
    """Check that sampled positions are in the window and draws count earlier passes of their block.

    `drawn` holds these counts by request and start of block. A `fresh` window restarts at 0. If the
    strategy gives the answers of autoregressive decoding, every draw number is 0, as it is there.
    """
    one_by_one = sequence.request.strategy.autoregressive is not None
    draws = dict(zip(span.wanted.sampled, span.wanted.draws, strict=True))
    for block in sequence.progress.window:
        own = {draws.pop(position) for position in span.wanted.sampled if block.start <= position < block.end}
        if own:
            due = 0 if one_by_one or span.rows.carry == "fresh" else drawn[span.who.id, block.start]
            assert own == {due}, "a draw is repeated or skipped"
            drawn[span.who.id, block.start] = due + 1
    assert not draws, "a sampled position is in no block of the window"


def _check_rows(span: Span, sequence: SequenceState, exact: bool) -> None:
    """Check that rows hold the right tokens, and that spans start and end where they may."""
    rows, sampled = span.rows, span.wanted.sampled
    at = rows.positions or range(rows.start, rows.stop)
    assert sorted(at) == [*range(rows.start, rows.stop)]
    known = sequence.tokens(0, rows.stop) + sequence.request.params.suffix
    assert rows.tokens == tuple([known[position] for position in at])
    assert sampled or _is_cut(rows.grid, rows.stop), "cut inside a group"
    if exact or not sampled:
        assert rows.stop == rows.end, "an exact strategy sees what it does not feed"
    assert rows.query_only in (0, 1) and rows.query_only + rows.final_rows <= len(rows.tokens)
    in_front = rows.query_only + rows.final_rows
    if exact or in_front:
        assert rows.start + in_front <= sequence.progress.final, "rows of the window are left out, or count as final"
    if not sampled:
        assert rows.final_rows == len(rows.tokens), "a storing span holds rows that are not final"


def _check_sampled(span: Span, sequence: SequenceState, shift: int) -> None:
    """Check that sampled positions ascend and have rows, and the number of their scored ids."""
    sampled = span.wanted.sampled
    assert list(sampled) == sorted(set(sampled))
    assert len(span.wanted.scored_ids) == sequence.request.strategy.sample_spec.scored * len(sampled), (
        "the scored ids are not those of the sampled positions"
    )
    for position in sampled:
        row = span.rows.index(position - shift)
        assert 0 <= row < len(span.rows.tokens), "a sampled position has no row"
        assert position >= sequence.progress.final


def spans_are_sound(kind: Kind, data: DataObject) -> None:
    """Rows hold the right tokens, end at groups, serve sampled positions, number draws."""
    case = data.draw(cases(kind, forks=True))
    drawn: Counter[tuple[int, int]] = Counter()
    for step in run_case(case).steps:
        shift = step.planned.config.spec.head_shift
        for span, sequence in step.planned_spans():
            _check_rows(span, sequence, sequence.request.strategy.exact)
            _check_sampled(span, sequence, span.wanted.row_shift(shift))
            _check_draws(span, sequence, drawn)


def progress(kind: Kind, data: DataObject) -> None:
    """Every pass stores or samples; sampling passes lower the measure; both are bounded."""
    case = data.draw(cases(kind, forks=True))
    storing: Counter[int] = Counter()
    losses: Counter[int] = Counter()

    def watch(run: CaseRun) -> None:  # step by step: a decode that does not progress never ends
        step = run.steps[-1]
        assert step.plan.spans or step.planned.done, "nothing was planned though work is queued"
        losses.update(
            sequence.request.id for sequence in step.planned.running if sequence.request.seq_id in step.plan.preemptions
        )
        for span, before, after in step.served():
            if before.finish_info is not None:  # aborted after it was planned
                assert after == before
                continue
            assert after.nfe == before.nfe + 1 and after.steps == before.steps + bool(span.wanted.sampled)
            if not span.wanted.sampled:
                storing[span.who.id] += 1
                assert after.storage.stored == span.rows.stop
            elif after.finish_info is None:
                strategy = after.request.strategy
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
        for _, before, after in step.served():
            assert after.progress.settled >= before.progress.settled and after.progress.final >= before.progress.final
            assert after.tokens(0, before.progress.settled) == before.tokens(0, before.progress.settled), (
                "a settled token changed"
            )

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
        assert outcome(ours) == outcome(answered_alone(case.config.spec, case.strategy, request))


def second_turns(kind: Kind, data: DataObject) -> None:
    """Check that a prompt that continues an earlier answer may reuse its pages, with the same answer."""
    value, spec = data.draw(engines(kind))
    prompt = data.draw(lists(integers(0, 9), min_size=1, max_size=5).map(tuple))
    first = Request(0, prompt, SamplingParams(max_tokens=20, ignore_eos=True, seed=0))
    answer = answered_alone(spec, value, first).answer
    # Most first turns end at the end of a group, so that the second turn begins another group.
    grid, length = value.grid(sized(first, MAX_MODEL_LEN)), len(prompt)
    ends = [end for end in range(length, length + len(answer) + 1) if grid.end(end - 1) == end]
    end = data.draw(sampled_from(ends[:3] or [length]) | integers(length, length + len(answer)))
    prompt = (prompt + answer)[:end] + data.draw(sampled_from([(), (), (1,)]))
    second = replace(first, id=1, prompt=prompt)
    config = replace(ample(spec), page_size=data.draw(sampled_from([1, 3, 5, 8])), enable_prefix_caching=True)
    run = run_case(Case(config, value, (first, second), (0, MAX_MODEL_LEN * 3)))
    assert outcome(run.state.finished[1]) == outcome(answered_alone(spec, value, replace(second, id=0)))


def order(kind: Kind, data: DataObject) -> None:
    """First come, first served: nothing overtakes; only younger sequences are preempted."""
    for step in run_case(data.draw(cases(kind) | crowds(kind))).steps:
        planned, plan = step.planned, step.plan
        running = [sequence.request.seq_id for sequence in planned.running]
        live = running + [sequence.request.seq_id for sequence in planned.waiting]
        served, victims = [span.who.seq_id for span in plan.spans], list(plan.preemptions)
        assert live == sorted(live)
        assert served == live[: len(served)], "a request was overtaken"
        assert served or not live, "the oldest got no span"
        assert not victims or not plan.admissions
        assert victims == running[::-1][: len(victims)], "the youngest are not the victims"
        assert not set(victims) & set(served)
        assert [admission.seq_id for admission in plan.admissions] == served[len(running) :]


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
    for request_id, found in outcomes(run.state).items():
        if request_id in spared:
            continue
        if run.state.finished[request_id].finish != "abort":
            assert found == undisturbed[request_id]
        else:
            assert request_id in gone
            assert undisturbed[request_id][0][: len(found[0])] == found[0], "an aborted answer is no prefix"


def accounting(kind: Kind, data: DataObject) -> None:
    """Check that the first `measure` bounds the sampling passes; pages never exceed the answer's needs."""
    run = run_case(data.draw(cases(kind)))
    case = run.case
    for step in run.steps:
        for sequence in step.after.running:
            fed_end = case.strategy.fed_end(sized(sequence.request, MAX_MODEL_LEN))
            assert len(sequence.pages) <= -(-fed_end // case.config.page_size)
    for request in case.requests:
        opened = add(run.first, request)
        for sequence in opened.waiting:
            assert run.state.finished[request.id].steps <= case.strategy.measure(sequence)


def traces(kind: Kind, data: DataObject) -> None:
    """Folding the trace, also from a file, gives the run; a rebuilt state the same answers."""
    run = run_case(data.draw(cases(kind)))
    case = run.case
    assert run.trace.state == run.trace.replay() == run.state
    with TemporaryDirectory() as folder:
        run.trace.save(f"{folder}/trace.jsonl")
        loaded = Trace.load(f"{folder}/trace.jsonl")
    assert loaded == run.trace and loaded.replay() == run.state
    if run.steps and not case.aborts and not case.late_aborts and case.strategy.exact:
        step = data.draw(sampled_from(run.steps))
        state = rebuild(step.after)
        for request in case.requests:
            if state.find(request.id) is None:
                state = add(state, request)
        device = shadow(case.config, case.strategy)
        while not state.done:
            state = commit(state, device.run(schedule(state)))
        assert outcomes(state) == outcomes(run.state)


def batch_is_its_members(kind: Kind, data: DataObject) -> None:
    """Each request of a batch gets the answer that it gets alone in the same engine."""
    value, spec = data.draw(engines(kind))
    requests = data.draw(batches(value))
    together = run_case(Case(ample(spec), value, requests, (0,) * len(requests)))
    for request in requests:
        ours, theirs = together.state.finished[request.id], answered_alone(spec, value, request)
        assert (ours.answer, ours.finish, ours.nfe) == (theirs.answer, theirs.finish, theirs.nfe)


def overrides(kind: Kind, data: DataObject) -> None:
    """Options of a request give the same answer as the same options of the engine."""
    value, spec = data.draw(engines(kind))
    (request, *_) = data.draw(batches(value, most=1))
    plain = replace(request, params=replace(request.params, strategy_options=()))
    one = answered_alone(spec, value, request)
    try:
        own = with_options(value, dict(request.params.strategy_options))
    except ValueError:
        assert one.finish == "rejected"
        return
    assert outcome(one) == outcome(answered_alone(spec, own, plain))


def pinned(kind: Kind, data: DataObject) -> None:
    """Pinned tokens are given: fed unchanged, not sampled (but in a canvas), in the answer.

    A canvas is denoised whole and starts from the request's ids; a full answer takes no pass.
    """
    case = data.draw(cases(kind, pinned=True))
    run = run_case(case)
    for step in run.steps:
        for span, sequence in step.planned_spans():
            _check_pins_fed(span, sequence.request)
        for sequence in step.after.running:
            known, length = sequence.unmasked_tokens, sequence.request.start
            end = max([sequence.progress.final, *(block.end for block in sequence.progress.window)]) - length
            for offset, token in sequence.request.params.pinned:
                held = known.get(length + offset) == token
                assert held or offset >= end, "a pinned position is masked, or another token"
    for request in case.requests:
        done = run.state.finished[request.id]
        if done.finish != "rejected":
            _check_pins_kept(case, request, done)


def _check_pins_fed(span: Span, request: Request) -> None:
    """Check that the span feeds the request's tokens, and samples no pinned position."""
    length = request.start
    brought = dict(enumerate(request.params.canvas, length)) if span.rows.carry == "fresh" else {}
    pins = {length + offset: token for offset, token in request.params.pinned}
    for position, token in (brought | pins).items():
        if span.rows.start <= position < span.rows.stop:
            assert span.rows.tokens[span.rows.index(position)] == token, "another token is fed than the request brings"
    assert span.rows.mode == "denoise" or not pins.keys() & set(span.wanted.sampled), "a pinned position is sampled"


def _check_pins_kept(case: Case, request: Request, done: SequenceState) -> None:
    """Check that the answer holds the pinned tokens, and takes no pass if they fill it."""
    pins = dict(request.params.pinned)
    assert case.strategy.holds_pins or not pins, "pinned tokens are ignored"
    assert case.strategy.takes_canvas or not request.params.canvas, "a canvas is ignored"
    held = zip(done.answer, done.probabilities, strict=True)
    found = {offset: pair for offset, pair in enumerate(held) if offset in pins}
    kept = {offset: (token, 1.0) for offset, token in pins.items() if offset < len(done.answer)}
    assert found == kept, "the answer holds other tokens than the pinned ones"
    if len(pins) >= answer_limit(request, case.config) - request.start:
        assert done.nfe == 0, "an answer without gaps takes forward passes"


def constrained(kind: Kind, data: DataObject) -> None:
    """Constrained answers are in the language; a mask allows exactly the ids that some valid answer has there.

    Strategies that do not support constraints reject them. `_completable` shares no code with the core.
    """
    case, automata = data.draw(cases(kind, forks=True)), sampled_from(random_automata())
    case = replace(case, requests=tuple(under(request, data.draw(automata)) for request in case.requests))
    run = run_case(case)
    for step in run.steps:
        for span, sequence in step.planned_spans():
            if sequence.request.automaton is not None and span.wanted.sampled:
                _check_masks(span, sequence)
    for request in case.requests:
        done = run.state.finished[request.id]
        if not done.request.strategy.takes_constraints:
            assert done.finish in ("rejected", "abort"), "a constraint is ignored"
        elif done.finish in ("stop", "length") and not _stopped_by_text(done):
            assert request.automaton is not None and request.automaton.accepts(done.answer), "an answer is not in the language"
        elif done.finish == "rejected" and "no text that matches" in done.error:
            cells = _gaps(done, answer_limit(request, case.config))
            assert not _completable(request.automaton, done.request.stop_ids, cells), (
                "a request is rejected though it has an answer"
            )


def _gaps(sequence: SequenceState, limit: int) -> list[int | None]:
    """Return the token of each position of the answer up to `limit`; None where there is none yet."""
    cells: list[int | None] = [None] * (limit - sequence.request.start)
    for offset, token in sequence.request.params.pinned:
        if offset < len(cells):
            cells[offset] = token
    for position, token in sequence.unmasked_tokens.items():
        cells[position - sequence.request.start] = token
    return cells


def _completable(automaton: Automaton | None, stop_ids: Ids, cells: list[int | None]) -> bool:
    """Return whether the gaps can be filled so that the answer is in the language and ends in time."""
    assert automaton is not None
    class_of, accepting = automaton.class_of, automaton.accepting
    letters = {class_of[token] for token in range(automaton.vocab_size) if token not in stop_ids}
    edges, states, done = PlainEdges(automaton, -1), 1, False  # done: the text may have ended before
    for cell in cells:
        read = [] if cell in stop_ids else letters if cell is None else [class_of[cell]]
        done = (cell in stop_ids or (cell is None and stop_ids != ())) and (done or states & accepting != 0)
        states = reduce(or_, [edges.after(states, letter) for letter in read], 0)
    return done or states & accepting != 0


def _check_masks(span: Span, sequence: SequenceState) -> None:
    """Check the mask of each sampled position against `_completable`, for some ids of every kind.

    If the strategy gives the answers of autoregressive decoding, a mask depends only on the tokens
    before its position.
    """
    request, start = sequence.request, sequence.request.start
    assert len(span.wanted.masks) == len(span.wanted.sampled)
    known = _gaps(sequence, request.limit)
    causal = request.strategy.autoregressive is not None
    settled = sequence.progress.settled - start if causal else len(known)
    cells = known[:settled] + [None] * (len(known) - settled)
    assert _completable(request.automaton, request.stop_ids, cells), "the window can no longer be completed"
    for position, mask in zip(span.wanted.sampled, span.wanted.masks, strict=True):
        if causal:
            cells[settled : position - start] = known[settled : position - start]
        if position >= request.limit or not _completable(request.automaton, request.stop_ids, cells):
            # Positions past the answer are sampled, because a canvas is denoised as a whole, and so are positions
            # after a wrong proposal, whose samples are not used.
            assert len(mask.ids()) == VOCABULARY, "a position past the answer is constrained"
            continue
        allowed, before = set(mask.ids()), cells[position - start]
        for token in (*range(5), *request.stop_ids[:2], *range(45, 50)):
            cells[position - start] = token
            fits = _completable(request.automaton, request.stop_ids, cells)
            assert fits == (token in allowed), f"id {token} at position {position} is {'missing' if fits else 'allowed'}"
        cells[position - start] = before


def _stopped_by_text(done: SequenceState) -> bool:
    """Return whether a stop string ended the answer."""
    end = done.request.start + len(done.answer)
    by_id = end < done.request.limit and not set(done.request.stop_ids).isdisjoint(done.tokens(end, end + 1))
    return bool(done.request.params.stop) and done.finish == "stop" and not by_id


def lossless(kind: Kind, data: DataObject) -> None:
    """Check that a strategy gives the answers of its `autoregressive` strategy, token for token.

    The `autoregressive` strategy settles one token in each sampling pass, with draw number 0. Tokens,
    probabilities and finish reason are equal even if the request is preempted or runs with others,
    and at every step the settled tokens are the beginning of that answer. The strategy needs at most
    as many passes that settle tokens. Every other sampling pass is a draft, which a later pass verifies.
    """
    case = data.draw(cases(kind))
    plain, share = case.strategy.autoregressive, data.draw(ALIKE)
    if plain is None:
        return
    # The strategies need different numbers of passes.
    unlimited = [replace(request, params=replace(request.params, max_nfe=None)) for request in case.requests]
    case = replace(case, requests=tuple(unlimited))
    run = run_case(case, shadow(case.config, case.strategy, blind=share))
    settling, drafts = _passes(run)
    answers: dict[int, Ids] = {}
    for request in case.requests:
        ours = run.state.finished[request.id]
        if ours.finish == "rejected":
            continue
        one = alone(case.config.spec, plain, request, blind=share)
        _check_one_by_one(one)
        theirs = one.state.finished[request.id]
        answers[request.id] = theirs.answer
        assert ours.answer == theirs.answer[: len(ours.answer)], "autoregressive decoding gives another answer"
        assert ours.probabilities == theirs.probabilities[: len(ours.answer)], "the probabilities differ"
        assert settling[request.id] <= theirs.steps, "autoregressive decoding takes fewer passes"
        assert drafts[request.id] <= settling[request.id] - (ours.finish != "abort"), "a draft was not verified"
        assert ours.finish == "abort" or (ours.answer, ours.finish) == (theirs.answer, theirs.finish), "the finish differs"
    for step in run.steps:
        for sequence in step.after.running:
            answer = sequence.answer
            assert answer == answers[sequence.request.id][: len(answer)], "a settled token is not the one of the answer"


def _passes(run: CaseRun) -> tuple[Counter[int], Counter[int]]:
    """Return, by request, the number of sampling passes that settled tokens and of those that settled none."""
    settling, drafts = Counter[int](), Counter[int]()
    for step in run.steps:
        for span, before, after in step.served():
            if span.wanted.sampled and before.finish_info is None:
                (settling if after.progress.settled > before.progress.settled else drafts)[span.who.id] += 1
    return settling, drafts


def _check_one_by_one(run: CaseRun) -> None:
    """Check that each sampling pass samples the next position of the answer, with draw 0."""
    for step in run.steps:
        for span, before, after in step.served():
            if span.wanted.sampled:
                assert (span.wanted.sampled, span.wanted.draws) == ((before.progress.settled,), (0,)), (
                    "it samples more than the next position"
                )
                assert after.progress.settled == before.progress.settled + 1, "it does not settle a token"


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
    pinned,
    constrained,
    lossless,
    histories,
    told,
)

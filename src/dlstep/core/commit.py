"""The state after a forward pass, in time linear in the windows of spans and in ownership changes.

After each sampling forward pass, the core checks four conditions that end an answer:

- `stop`: an end-of-sequence token, stop id or stop string is settled, with everything before it, or the
  strategy returns an empty window;
- `length`: the answer is full;
- `nfe_limit`: the allowed number of sampling passes is reached;
- `repetition`: too many consecutive settled tokens are equal.

A pass may settle several tokens and meet several conditions. The one that ends the answer earliest
counts; if two end it after the same token, the one listed first. A stop id is not part of the
answer and comes one token later, so a run of equal tokens that reaches up to it counts first.
Only settled tokens are emitted.
"""

from dataclasses import dataclass, replace
from itertools import islice

from rpds import HashTrieMap, List

from .block import moved
from .checks import short
from .config import Config
from .contract import check_settled, request_fault, sample_spec_of, sequence_after, state_after
from .errors import SamplesMismatch, WrongAnswer
from .plan import FEW_BEST, Grant, Plan, Samples, Span, SpanSamples
from .sequence import NOTHING_STORED, FinishInfo, FinishReason, SequenceState, StopState, Storage
from .spec import Ids, SeqIds, Spec
from .state import Cache, State, WaitingQueue, new_keys
from .step_map import recorded


def forgotten(sequence: SequenceState, state: State) -> SequenceState:
    """Return `sequence` after the device has dropped its cache. Raises RequestFault."""
    strategy = sequence.request.strategy
    try:
        lost: object = strategy.lost_passes(sequence)
        if type(lost) is not int or not 0 <= lost <= sequence.steps:
            raise WrongAnswer(strategy, "lost_passes", f"{short(lost)}: it must be an integer from 0 to {sequence.steps}")
        passes = List([*sequence.passes][lost:])
        before = replace(sequence, storage=NOTHING_STORED, passes=passes, steps=sequence.steps - lost)
        return sequence_after(before, "forget", strategy.forget(before, state.config.spec))
    except BaseException as error:
        raise request_fault(sequence, state.step, error) from error


def _transfer(state: State, plan: Plan) -> tuple[Cache, list[SequenceState], WaitingQueue]:
    """Apply the ownership changes of `plan`, except of ended requests; return what it changes."""
    cache, running, waiting = state.cache, list(state.running), state.waiting
    if plan.preemptions:
        gone = set(plan.preemptions)
        victims = [sequence for sequence in running if sequence.request.seq_id in gone]
        for victim in reversed(victims):
            cache = cache.release(victim.pages, victim.storage.slot)
        running = [sequence for sequence in running if sequence.request.seq_id not in gone]
        waiting = waiting.push_front([forgotten(victim, state) for victim in victims])
    if plan.admissions:
        entering = [(admission, waiting.get(admission.seq_id)) for admission in plan.admissions]
        waiting = waiting.remove([admission.seq_id for admission in plan.admissions])
        for admission, sequence in entering:
            if sequence is None:
                continue
            cache = cache.share(admission.shared, admission.slot)
            pages = admission.shared  # all of them are full
            key = cache.keys[pages[-1]] if pages else b""
            stored = len(pages) * state.config.page_size
            storage = Storage(stored, List(pages[::-1]), len(pages), key, admission.slot)
            running.append(replace(sequence, storage=storage))
    if plan.grants:
        cache = _granted(plan.grants, cache, running)
    return cache, running, waiting


def _granted(grants: tuple[Grant, ...], cache: Cache, running: list[SequenceState]) -> Cache:
    """Append granted pages to the tables in `running`; return the cache without these pages."""
    indices = {sequence.request.seq_id: index for index, sequence in enumerate(running)}
    for grant in grants:
        cache = cache.take(grant.pages)
        index = indices.get(grant.seq_id)
        if index is None:
            # The request has ended, but the device wrote to these pages. `take` dropped their old prefix keys; free them.
            cache = cache.release(grant.pages)
            continue
        sequence = running[index]
        held = sequence.storage
        table = held.table
        for page in grant.pages:
            table = table.push_front(page)
        running[index] = replace(sequence, storage=replace(held, table=table))
    return cache


def _stored(cache: Cache, sequence: SequenceState, stored: int, config: Config) -> tuple[Cache, Storage]:
    """Return the cache and the storage of `sequence` once `[0, stored)` is stored.

    Pages are published if all their groups are stored, and so final.
    """
    held = replace(sequence.storage, stored=stored)
    keys = tuple(new_keys(sequence, held, stored, config.page_size)) if config.enable_prefix_caching else ()
    if not keys:
        return cache, held
    pages = tuple(islice(held.table, len(held.table) - held.published))[::-1]
    cache = cache.publish(zip(pages, keys, strict=False))
    return cache, replace(held, published=held.published + len(keys), prefix_key=keys[-1])


def _store_window(
    cache: Cache, before: SequenceState, after: SequenceState, span: Span, config: Config
) -> tuple[Cache, SequenceState]:
    """Return the cache and `after`, in which window rows of `span` with final tokens count as stored.

    A group counts as stored if its rows and all window rows before it were fed the tokens that are now final.
    """
    end, first = before.progress.final, before.progress.final - span.rows.start
    tokens = after.tokens(end, min(after.progress.final, span.rows.stop))
    for fed, token in zip(span.rows.tokens[first:], tokens, strict=False):
        if fed != token:
            break
        end += 1
    stored = span.rows.grid.start(end)
    if stored <= after.storage.stored:
        return cache, after
    cache, held = _stored(cache, after, stored, config)
    return cache, replace(after, storage=held)


def _check_ids(samples: Samples, spec: Spec) -> None:
    """Raise SamplesMismatch for an id that no token has, except -1 in a failed row and listed ids of probability 0."""
    for span, rows in zip(samples.plan.spans, samples.spans, strict=True):
        listed = [token for token, chance in zip(rows.best_ids, rows.best_probabilities, strict=False) if chance]
        for token in (*rows.tokens, *rows.noise, *listed):
            known = type(token) is int and 0 <= token < spec.vocab_size and token != spec.mask_id
            if not known and not (token == -1 and 0.0 in rows.probabilities):
                raise SamplesMismatch(
                    f"step {samples.plan.step}, request {span.who.id}: id {short(token)} came back: it must be in "
                    f"[0, {spec.vocab_size}) and not the mask id {spec.mask_id}"
                )


def after_samples(state: State, sequence: SequenceState, samples: Samples, index: int) -> SequenceState:
    """Return `sequence` after its sampling span, `samples.plan.spans[index]`."""
    spec, given, span, rows = state.config.spec, samples.plan.sample_spec, samples.plan.spans[index], samples.spans[index]
    if not samples.checked and -1 in rows.tokens:
        position = span.wanted.sampled[rows.tokens.index(-1)]
        end = max(sequence.progress.settled, len(sequence.request.prompt))
        reason = f"the logits of position {position} were not finite in step {state.step}"
        if rows.error:
            reason = f"step {state.step}, from position {position} on: {rows.error}"
        return ended(sequence, "error", end, reason)
    strategy = sequence.request.strategy
    needed = rows
    try:
        # The driver returns the statistics that any request of the pass needs; a strategy gets only those it asked for.
        # `trimmed` would change nothing if the request has no options, and no request of the pass uses `top_logprobs` or
        # `step_map`: skipping it saves 1 us.
        if strategy is not state.strategy or given.best >= FEW_BEST or "policy" in given.statistics:
            needed = rows.trimmed(given, sample_spec_of(strategy))
        after = sequence_after(sequence, "commit", strategy.commit(sequence, span, needed, spec))
        after = apply_finish_rules(after, sequence.progress.settled, spec)
        if sequence.request.params.step_map:
            after = replace(after, passes=sequence.passes.push_front(recorded(sequence, after, span, rows)))
        return _with_best(sequence, after, span, rows, given.best) if span.who.params.top_logprobs else after
    except BaseException as error:
        raise request_fault(sequence, state.step, error) from error


def _with_best(before: SequenceState, after: SequenceState, span: Span, samples: SpanSamples, width: int) -> SequenceState:
    """Return `after` with the most probable ids (`width` per row) of the positions whose token this pass set."""
    best, replaced = after.best, after.progress.replaced
    gone = {each.position for each in replaced}
    kept = [(row, position) for row, position in enumerate(span.wanted.sampled) if position not in gone]
    if replaced:
        best = HashTrieMap({moved(position, replaced): own for position, own in best.items() if position not in gone})
    if not kept:
        return replace(after, best=best)
    start, end = kept[0][1], kept[-1][1] + 1
    old = dict(enumerate(before.cells(start, end), start))
    start, end = moved(start, replaced), moved(end, replaced)
    new = dict(enumerate(after.cells(start, end), start))  # a strategy drops wrong drafts, so there may be fewer positions
    pairs = list(zip(samples.best_ids, samples.best_probabilities, strict=True))
    for row, position in kept:
        place = moved(position, replaced)
        if old.get(position) != new.get(place):
            own = pairs[row * width : row * width + span.who.params.top_logprobs]
            best = best.insert(place, tuple([pair for pair in own if pair[1]]))  # probability 0: forbidden
    return replace(after, best=best)


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A prepared commit: the part of a commit that follows from the plan alone. `prepare` returns it."""

    state: State
    """The state that made the plan."""
    plan: Plan
    """The plan."""
    cache: Cache
    """Owners and prefix keys of pages after the forward pass."""
    waiting: WaitingQueue
    """Requests that still wait."""
    running: list[tuple[SequenceState, int]]
    """Each running sequence after the pass, but without its samples, and the index of its span (-1: it has none)."""


def prepare(state: State, plan: Plan) -> Prepared | None:
    """Return the part of `commit` that follows from the plan alone.

    Call this while the device runs the plan: the host then has less to do between two steps
    (docs/development/performance_log.md). The result is None for a plan with preemptions, because
    applying them calls user code (`Strategy.forget`).

    Args:
        state: The state that made the plan, or that state after requests were added or ended.
        plan: The plan.

    Raises:
        SamplesMismatch: If another state made the plan.
    """
    return None if plan.preemptions else _prepared(state, plan)


def _prepared(state: State, plan: Plan) -> Prepared:
    if plan.step != state.step or plan.cache_digest != state.cache_digest:
        raise SamplesMismatch(
            f"the plan belongs to step {plan.step} with cache digest {plan.cache_digest}, but the state is at step "
            f"{state.step} with cache digest {state.cache_digest}: commit the samples of the plan that schedule(state) returns"
        )
    cache, sequences, waiting = _transfer(state, plan)
    indices = {span.who.seq_id: index for index, span in enumerate(plan.spans)}
    running: list[tuple[SequenceState, int]] = []
    for sequence in sequences:
        index = indices.get(sequence.request.seq_id, -1)
        if index >= 0:
            span = plan.spans[index]
            # After a span that samples, all final rows are stored: `fit` prepended the unstored ones to the window.
            stored = sequence.progress.final if span.wanted.sampled else span.rows.stop
            held = sequence.storage
            if stored != held.stored:
                cache, held = _stored(cache, sequence, stored, state.config)
            sequence = sequence.after_forward(held, 1 if span.wanted.sampled else 0)
        running.append((sequence, index))
    return Prepared(state, plan, cache, waiting, running)


def commit(state: State, samples: Samples, prepared: Prepared | None = None) -> State:
    """Return the state after `samples.plan` ran and returned `samples`. Drops spans of ended requests.

    Args:
        state: The state that made the plan, or that state after requests were added or ended.
        samples: Results of the plan.
        prepared: The result of `prepare` for this state and plan; if None or of another state or plan, it is
            computed.

    Raises:
        SamplesMismatch: If another state made the plan.
        RequestFault: If user code of a request fails: `fail` the request, then commit again.
    """
    plan = samples.plan
    if prepared is None or prepared.state is not state or prepared.plan is not plan:
        prepared = _prepared(state, plan)
    if not samples.checked and not plan.sample_spec.all_ids:
        _check_ids(samples, state.config.spec)
    cache = prepared.cache
    still: list[SequenceState] = []
    done: list[SequenceState] = []
    for sequence, index in prepared.running:
        after = sequence
        if index >= 0 and (span := plan.spans[index]).wanted.sampled:
            after = after_samples(state, sequence, samples, index)
            if span.storing.keeps_window and after.finish_info is None:
                cache, after = _store_window(cache, sequence, after, span, state.config)
        if after.finish_info is None:
            still.append(after)
            continue
        if after.finish_info.reason == "error":
            # Keys and values that led to the error may not be finite: stop sharing them.
            cache = cache.unpublish(sequence.pages)
        cache = cache.release(sequence.pages, sequence.storage.slot)
        done.append(after)
    return replace(
        state.with_finished(done),
        cache=cache,
        waiting=prepared.waiting,
        running=tuple(still),
        step=state.step + 1,
        cache_digest=samples.cache_digest,
        releases=_releases(state, plan, done),
    )


def _releases(state: State, plan: Plan, done: list[SequenceState]) -> SeqIds:
    """Return the sequence numbers that released pages: aborted since `plan`, or ended by it."""
    known = len(plan.releases)
    # Requests that the plan admitted but that have ended since: the device has opened their page tables.
    gone = tuple([a.seq_id for a in plan.admissions if state.waiting.get(a.seq_id) is None]) if plan.admissions else ()
    return state.releases[known:] + gone + tuple([sequence.request.seq_id for sequence in done])


def ended(sequence: SequenceState, reason: FinishReason, end: int, error: str = "") -> SequenceState:
    """Return the sequence as finished, without its pages; its answer ends before position `end`."""
    return replace(sequence, storage=NOTHING_STORED, finish_info=FinishInfo(reason, end, error))


def apply_finish_rules(sequence: SequenceState, since: int, spec: Spec) -> SequenceState:
    """Return `sequence` after checking the tokens of `[since, settled)`; finished if a condition holds.

    Raises WrongAnswer for missing or invalid tokens, or tokens that the constraint forbids.
    """
    request, params = sequence.request, sequence.request.params
    settled, repeated = sequence.progress.settled, None
    if settled > since:
        new, stop_state, stopped, cut = sequence.tokens(since, settled), sequence.stop_state, False, None
        check_settled(sequence, since, new, spec)
        if request.constraint is not None:
            stop_state = replace(stop_state, state=state_after(sequence, request.constraint, new))
        # Cut `new` before the first stop id, so that the other conditions only see tokens of the answer.
        for stop_id in request.stop_ids:
            if stop_id in new:
                new, stopped = new[: new.index(stop_id)], True
        if params.max_repetition_run is not None:
            stop_state, repeated = _count_run(
                stop_state, sequence.tokens(since - 1, since), since, new, params.max_repetition_run
            )
        if params.stop:
            stop_state, cut = _match_stops(stop_state, params.stop, since, new, spec)
        if stop_state is not sequence.stop_state:
            sequence = replace(sequence, stop_state=stop_state)
        if cut is not None and (repeated is None or cut <= repeated):
            return ended(sequence, "stop", cut)
        if stopped and repeated is None:
            return ended(sequence, "stop", since + len(new))
    # A run that ends at `settled` ends the answer where `length` and `nfe_limit` do, which are listed first.
    if repeated is not None and repeated < settled:
        return ended(sequence, "repetition", repeated)
    if settled == request.limit:
        return ended(sequence, "length", settled)
    if not sequence.progress.window:
        return ended(sequence, "stop", settled)
    if params.max_nfe is not None and sequence.steps >= params.max_nfe:
        return ended(sequence, "nfe_limit", settled)
    return sequence if repeated is None else ended(sequence, "repetition", settled)


def _count_run(stop_state: StopState, last: Ids, since: int, new: Ids, most: int) -> tuple[StopState, int | None]:
    """Return the last run of equal tokens after `last` and `new`, and the end of the first run of `most`, or None."""
    run = stop_state.run
    for position, token in enumerate(new, since):
        run = run + 1 if (token,) == last else 1
        last = (token,)
        if run >= most:
            return replace(stop_state, run=run), position + 1
    return replace(stop_state, run=run), None


def _match_stops(
    stop_state: StopState, stop: tuple[str, ...], since: int, new: Ids, spec: Spec
) -> tuple[StopState, int | None]:
    """Return the tail with `new` added, and the end of the first stop string, or None.

    The tail is the last bytes of the text, as many as a stop string may have before its last byte.
    """
    stops, tail = [text.encode() for text in stop], stop_state.tail
    keep = max(map(len, stops)) - 1
    for position, token in enumerate(new, since):
        text = tail + spec.pieces[token]
        if any(stop in text for stop in stops):
            return stop_state, position + 1
        tail = text[max(0, len(text) - keep) :]
    return replace(stop_state, tail=tail), None

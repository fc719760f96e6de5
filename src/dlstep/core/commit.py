"""The state after a forward pass. Linear in the windows of spans and in ownership changes."""

from itertools import islice

from rpds import List

from .cache import Cache, prefix_keys
from .contract import check_sequence
from .errors import SamplesMismatch
from .faults import fault_of
from .finish import ended, judge
from .ledger import NOTHING_STORED, Storage
from .plan import Admission, Grant, Plan, Rows, Samples, Span
from .queue import WaitingQueue
from .sequence import Sequence
from .state import State


def forgotten(sequence: Sequence, state: State) -> Sequence:
    """Return `sequence` after the device has dropped its cache. Raises RequestFault."""
    strategy, sequence = sequence.goal.strategy, sequence.holding(NOTHING_STORED)
    try:
        after = strategy.forget(sequence, state.config.spec)
        if not strategy.shipped:
            check_sequence(strategy, "forget", sequence, after)
        return after
    except BaseException as error:
        raise fault_of(sequence, state.step, error) from error


def _transfer(state: State, plan: Plan) -> tuple[Cache, list[Sequence], WaitingQueue]:
    """Apply the ownership changes of `plan`, except of ended requests; return what it changes."""
    cache, running, waiting = state.cache, list(state.running), state.waiting
    if plan.preemptions:
        gone = set(plan.preemptions)
        victims = [sequence for sequence in running if sequence.goal.request.arrival in gone]
        for victim in reversed(victims):
            cache = cache.release(victim.pages, victim.ledger.storage.slot)
        running = [sequence for sequence in running if sequence.goal.request.arrival not in gone]
        waiting = waiting.push_front([forgotten(victim, state) for victim in victims])
    if plan.admissions:
        entering = [(admission, waiting.get(admission.arrival)) for admission in plan.admissions]
        waiting = waiting.remove([admission.arrival for admission in plan.admissions])
        for admission, sequence in entering:
            if sequence is None:
                continue
            cache = cache.share(admission.shared, admission.slot)
            running.append(_admitted(sequence, admission, cache, state.config.page_size))
    if plan.grants:
        cache = _granted(plan.grants, cache, running)
    return cache, running, waiting


def _admitted(sequence: Sequence, admission: Admission, cache: Cache, page_size: int) -> Sequence:
    """Return `sequence` with its shared pages, all of which are full."""
    pages = admission.shared
    key = cache.keys[pages[-1]] if pages else b""
    stored = len(pages) * page_size
    return sequence.holding(Storage(stored, List(pages[::-1]), len(pages), key, admission.slot))


def _granted(grants: tuple[Grant, ...], cache: Cache, running: list[Sequence]) -> Cache:
    """Append granted pages to the tables in `running`; return the cache without these pages."""
    places = {sequence.goal.request.arrival: place for place, sequence in enumerate(running)}
    for grant in grants:
        cache = cache.take(grant.pages)
        place = places.get(grant.arrival)
        if place is None:
            # The request has ended, but the device wrote to these pages: their prefix is gone.
            cache = cache.release(grant.pages)
            continue
        sequence = running[place]
        held = sequence.ledger.storage
        table = held.table
        for page in grant.pages:
            table = table.push_front(page)
        running[place] = sequence.holding(held.growing(table))
    return cache


def _published(cache: Cache, sequence: Sequence, held: Storage, page_size: int) -> tuple[Cache, Storage]:
    """Add pages of `held` to the prefix index if all their groups are stored, and so final."""
    grid = sequence.goal.grid
    page, stored = held.published, held.stored
    if grid.end((page + 1) * page_size - 1) > stored:
        return cache, held
    start = grid.end(page * page_size - 1) if page else 0
    before = held.prefix_key if page else sequence.goal.request.salt
    keys = tuple(prefix_keys(grid, page_size, page, before, start, sequence.tokens(start, stored)))
    pages = tuple(islice(held.table, len(held.table) - page))[::-1]
    cache = cache.publish(zip(pages, keys, strict=False))
    return cache, held.publishing(page + len(keys), keys[-1])


def advanced(state: State, sequence: Sequence, span: Span, rows: Rows, any_zero: bool) -> Sequence:
    """Return `sequence` after its sampling span; `any_zero` is `Samples.any_zero`."""
    spec = state.config.spec
    if any_zero and -1 in rows.tokens:
        position = span.wanted[rows.tokens.index(-1)]
        end = max(sequence.settled, len(sequence.goal.request.prompt))
        return ended(sequence, "error", end, f"the logits of position {position} were not finite in step {state.step}")
    strategy = sequence.goal.strategy
    if strategy is not state.strategy and strategy.wants != state.strategy.wants:
        rows = rows.trimmed(state.strategy.wants, strategy.wants)
    try:
        after = strategy.commit(sequence, span, rows, spec)
        if not sequence.goal.shipped:
            check_sequence(strategy, "commit", sequence, after)
    except BaseException as error:
        raise fault_of(sequence, state.step, error) from error
    return judge(after, sequence.settled, spec)


def commit(state: State, samples: Samples) -> State:
    """Return the state after `samples.plan` ran and returned `samples`.

    Drops spans of ended requests. Raises SamplesMismatch if the plan is of another state,
    RequestFault if a request's strategy or rule fails: `fail` this request, then commit the samples
    again.
    """
    plan, config = samples.plan, state.config
    if plan.step != state.step or plan.line != state.line:
        raise SamplesMismatch(
            f"the samples answer step {plan.step} of line {plan.line}, the state is at step {state.step} of line "
            f"{state.line}: commit what schedule(state) planned"
        )
    cache, running, waiting = _transfer(state, plan)
    answers = {span.arrival: (span, rows) for span, rows in zip(plan.spans, samples.rows, strict=True)}
    still: list[Sequence] = []
    done: list[Sequence] = []
    for before in running:
        answer = answers.get(before.goal.request.arrival)
        if answer is None:
            still.append(before)
            continue
        span, rows = answer
        # A span that samples also stores all final rows: `fit` put them before the window.
        stored = before.final if span.wanted else span.stop
        held = before.ledger.storage
        if stored != held.stored:
            held = held.reaching(stored)
            if config.enable_prefix_caching:
                cache, held = _published(cache, before, held, config.page_size)
        after = before.counted(held, 1 if span.wanted else 0)
        if span.wanted:
            after = advanced(state, after, span, rows, samples.any_zero)
        if after.ledger.ending is None:
            still.append(after)
            continue
        if after.ledger.ending.reason == "error":
            # Keys and values that led to the error may not be finite: stop sharing them.
            cache = cache.unpublish(before.pages)
        cache = cache.release(before.pages, before.ledger.storage.slot)
        done.append(after)
    finished, ended, live = state.filed(done) if done else (state.finished, state.ended, state.live)
    return State(
        config=config,
        strategy=state.strategy,
        cache=cache,
        waiting=waiting,
        running=tuple(still),
        finished=finished,
        ended=ended,
        live=live,
        step=state.step + 1,
        line=samples.line,
        arrivals=state.arrivals,
        releases=_releases(state, plan, done),
    )


def _releases(state: State, plan: Plan, done: list[Sequence]) -> tuple[int, ...]:
    """Return the arrival numbers that released pages: aborted since `plan`, or ended by it."""
    told = len(plan.releases)
    gone = tuple([a.arrival for a in plan.admissions if state.waiting.get(a.arrival) is None]) if plan.admissions else ()
    return state.releases[told:] + gone + tuple([sequence.goal.request.arrival for sequence in done])

"""Scheduling: the next plan, as a pure function of the state.

Sequences are served in the order of their sequence numbers; the first that does not fit ends the plan, so no younger
one overtakes it. Only younger sequences are preempted, and a plan that preempts admits nothing.
"""

from dataclasses import dataclass, field, replace
from itertools import islice

from .block import open_block
from .contract import check_span, request_fault, sample_spec_of
from .errors import RequestFault, WrongAnswer
from .filtering import span_masks
from .plan import FEW_BEST, Admission, Grant, Plan, Rows, SampleSpec, SoFar, Span
from .sequence import NOTHING_STORED, SequenceState, Storage
from .spec import Pages, Spec
from .state import Cache, State, new_keys


def fit(sequence: SequenceState, window: Span, shift: int, budget: int, *, joins: bool = True) -> Span | None:
    """Return the span to feed within `budget` rows; None if nothing fits.

    It is `window`, with unstored final rows before it if `joins`, or only final rows, cut at group ends.
    `shift` is the model's `head_shift`.
    """
    if sequence.storage.stored < sequence.progress.final:
        return _fit_unstored(sequence, window, budget, joins=joins and window.storing.joins)
    rows, start = len(window.rows.tokens), window.rows.start
    sampled = window.wanted.sampled
    if start and sampled and sampled[0] == start and window.wanted.row_shift(shift):
        # Row start-1 predicts position start: feed it again although it is stored.
        return window.with_prefix(start - 1, sequence.tokens(start - 1, start), query_only=1) if rows < budget else None
    return window if rows <= budget else None


def _fit_unstored(sequence: SequenceState, window: Span, budget: int, *, joins: bool) -> Span | None:
    """Return what `fit` returns for a sequence with unstored final rows."""
    stored, final, grid = sequence.storage.stored, sequence.progress.final, sequence.request.grid
    if joins and window.rows.start == final and window.rows.grid == grid and window.rows.stop - stored <= budget:
        # One forward pass both stores the final rows and samples the window.
        return window.with_prefix(stored, sequence.tokens(stored, final), final_rows=final - stored)
    # Store as many whole groups of final rows as fit; the window waits for a later pass.
    reach = stored + budget
    stop = final if reach >= final else grid.start(reach)
    if stop <= stored:  # not even one group fits
        return None
    return Span(sequence.request.who, Rows(stored, sequence.tokens(stored, stop), stop, grid, final_rows=stop - stored))


def shared_pages(cache: Cache, sequence: SequenceState, page_size: int) -> tuple[Pages, bytes | None]:
    """Return the pages of a prefix that are in the prefix index, and the key of the first page that is not.

    The key is None if the tokens that determine it are not all final.
    """
    pages: list[int] = []
    for key in new_keys(sequence, NOTHING_STORED, sequence.progress.final, page_size):
        if (page := cache.index.get(key)) is None:
            return tuple(pages), key
        pages.append(page)
    return tuple(pages), None


@dataclass(slots=True)
class _Draft:
    """A plan under construction, used only inside `schedule`."""

    cache: Cache
    budget: int
    spans: list[Span] = field(default_factory=list[Span])
    grants: list[Grant] = field(default_factory=list[Grant])
    preemptions: list[int] = field(default_factory=list[int])
    admissions: list[Admission] = field(default_factory=list[Admission])

    def grant(self, seq_id: int, count: int) -> None:
        """Allocate `count` pages, which must be available."""
        pages = self.cache.next_pages(count)
        self.cache = self.cache.take(pages)
        self.grants.append(Grant(seq_id, pages))

    def run(self, span: Span) -> None:
        """Add `span` to the forward pass."""
        self.spans.append(span)
        self.budget -= len(span.rows.tokens)


def schedule(state: State, *, ahead: bool = False) -> Plan:
    """Return the plan of the next forward pass. A plan without spans means that the state is done.

    Args:
        state: The current state.
        ahead: Whether the device already runs a pass from `plan_ahead`. To match it, final rows are stored without the
            window, and requests are admitted only if none runs.

    Raises:
        RequestFault: If the strategy or rule of a request fails, or returns a span that can never
            fit. A reachable state raises no other error.
    """
    draft = _Draft(state.cache, state.config.max_num_batched_tokens)
    fits = _continue_running(state, draft, joins=not ahead)
    if fits and state.waiting and not draft.preemptions and not (ahead and draft.spans):
        _admit_waiting(state, draft)
    if not draft.spans and not state.done:
        raise _stuck(state)
    return Plan(
        step=state.step,
        cache_digest=state.cache_digest,
        spans=tuple(draft.spans),
        sample_spec=_sample_spec(state, draft.spans),
        releases=state.releases,
        preemptions=tuple(draft.preemptions),
        admissions=tuple(draft.admissions),
        grants=tuple(draft.grants),
        num_pages=state.config.num_pages,
    )


def _sample_spec(state: State, spans: list[Span]) -> SampleSpec:
    """Return the statistics that the spans need. Raises RequestFault of the oldest request if the strategy fails."""
    if not spans:  # the state is done: no request can fail
        return state.strategy.sample_spec
    try:
        spec = sample_spec_of(state.strategy)
    except BaseException as error:
        raise request_fault(state.sequence(spans[0].who.seq_id), state.step, error) from error
    asked = max([span.who.params.top_logprobs for span in spans])
    if any(span.who.params.step_map for span in spans):
        spec = replace(spec, statistics=spec.statistics | {"policy"})
    return replace(spec, best=max(spec.best, asked, FEW_BEST)) if asked else spec


def scheduled_span(state: State, sequence: SequenceState) -> Span:
    """Return the checked span that the strategy schedules. Raises RequestFault."""
    strategy, spec = sequence.request.strategy, state.config.spec
    try:
        span = strategy.schedule(sequence, spec)
        check_span(strategy, sequence, span, spec)
        masks = span_masks(sequence, span.wanted.sampled) if sequence.request.constraint else span.wanted.masks
    except BaseException as error:
        raise request_fault(sequence, state.step, error) from error
    if masks is span.wanted.masks and not sequence.request.params.processors:
        return span
    so_far = _so_far(sequence, span.rows, spec) if sequence.request.params.processors else None
    return replace(span, wanted=replace(span.wanted, masks=masks, so_far=so_far))


def _so_far(sequence: SequenceState, rows: Rows, spec: Spec) -> SoFar:
    """Return all known tokens of a request, also those after the rows: of later blocks, and pinned ones after the window."""
    request, window = sequence.request, sequence.progress.window
    fed = sequence.tokens(rows.start, rows.stop) if rows.positions else rows.tokens
    tokens = sequence.tokens(0, rows.start) + fed
    if window and rows.stop < window[-1].end:
        tokens += sequence.tokens(rows.stop, window[-1].end)
    end, limit, pinned = len(tokens), request.limit, request.params.pinned
    if pinned and end < limit and spec.mask_id is not None:
        tokens += open_block(end, limit - end, limit, request.prompt, spec.mask_id, pinned=pinned).tokens
    return SoFar(tokens, len(request.prompt))


def _stuck(state: State) -> RequestFault:
    """Return the fault of the oldest request, whose span does not fit even on an empty device."""
    sequence = state.running[0] if state.running else next(iter(state.waiting))
    config, rows = state.config, scheduled_span(state, sequence).rows
    what = (
        f"a span of {len(rows.tokens)} rows up to position {rows.end}. It can never fit into "
        f"max_num_batched_tokens={config.max_num_batched_tokens} and num_pages={config.num_pages} pages of "
        f"{config.page_size}: `rows_at_once` or `fed_end` returns too small a number, so the request was not rejected"
    )
    return request_fault(sequence, state.step, WrongAnswer(sequence.request.strategy, "schedule", what))


# Preemption and admission.
#
# Sequences are served by age, and the first one that gets no span ends the plan. If younger ones could
# overtake it, they would take the rows and pages that become free, and it might wait forever.
# Running sequences come first. One that needs more pages than are available takes them from the youngest
# running sequence, which then waits before all others and later stores its tokens again. Only
# sequences without a span in this plan are victims, so the plan never feeds rows of pages that it releases.
# The oldest sequence always gets its span: `refusal` has refused requests that do not fit an empty device.
# Thus every plan advances some sequence, and each of them becomes the oldest at some time.
# A plan that preempts admits nothing: the waiting sequences would take the pages of the victim, which is
# older than they are. A shared page with an owner costs nothing. A shared page without an owner counts as
# available, so sharing it leaves one page fewer for grants.
def _continue_running(state: State, draft: _Draft, *, joins: bool) -> bool:
    """Plan the running sequences. Return whether all that keep their pages got a span."""
    page_size, shift = state.config.page_size, state.config.spec.head_shift
    running, count, index = state.running, len(state.running), 0
    while index < count:
        sequence = running[index]
        window = scheduled_span(state, sequence)
        span = fit(sequence, window, shift, draft.budget, joins=joins)
        if span is None:
            return False
        missing = -(-window.rows.end // page_size) - len(sequence.storage.table)
        if missing > 0:
            while missing > draft.cache.available and count > index + 1:
                count -= 1
                draft.preemptions.append(running[count].request.seq_id)
                draft.cache = draft.cache.release(running[count].pages, running[count].storage.slot)
            if missing > draft.cache.available:
                return False
            draft.grant(sequence.request.seq_id, missing)
        draft.run(span)
        index += 1
    return True


def _admit_waiting(state: State, draft: _Draft) -> None:
    """Plan waiting sequences in order until one does not fit; give each the pages it needs now.

    A sequence waits if this plan already computes its next page: equal prefixes are computed once.
    """
    strategy, config = state.strategy, state.config
    room = config.max_num_reqs - len(state.running)
    coming = _coming_keys(state) if room and config.enable_prefix_caching else set[bytes | None]()
    for sequence in islice(state.waiting, room):
        if draft.budget <= 0:
            return
        window = scheduled_span(state, sequence)
        shared, next_page = (), None
        if config.enable_prefix_caching:
            shared, next_page = shared_pages(draft.cache, sequence, config.page_size)
        if next_page in coming:
            return
        missing = -(-window.rows.end // config.page_size) - len(shared)
        if missing > draft.cache.available - sum(page not in draft.cache.owners for page in shared):
            return
        opened = replace(sequence, storage=Storage(len(shared) * config.page_size))  # `fit` reads only `storage.stored`
        span = fit(opened, window, config.spec.head_shift, draft.budget)
        if span is None:
            return
        slot = draft.cache.slots[0] if strategy.carries else None
        draft.cache = draft.cache.share(shared, slot)
        seq_id = sequence.request.seq_id
        draft.admissions.append(Admission(seq_id, shared, slot))
        if missing:
            draft.grant(seq_id, missing)
        draft.run(span)
        if next_page is not None:
            coming.add(next_page)


def _coming_keys(state: State) -> set[bytes | None]:
    """Return the prefix key of the next page of each running sequence with unstored final rows."""
    page_size, running = state.config.page_size, state.running
    unstored = [sequence for sequence in running if sequence.storage.stored < sequence.progress.final]
    keys = [next(new_keys(each, each.storage, each.progress.final, page_size), None) for each in unstored]
    return {*keys} - {None}

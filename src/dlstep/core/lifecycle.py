"""Events, and the functions that apply them: they add and remove requests, or refuse one that can never run."""

from array import array
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from hashlib import blake2b

from rpds import List

from .block import Grid
from .checks import Checked, short
from .commit import apply_finish_rules, commit, ended, forgotten
from .config import Config
from .constraint import RequestConstraint
from .contract import refusal_of_values, request_fault, sequence_after
from .errors import Refusal, Refused, RequestFault
from .options import options_of, with_options
from .plan import EMPTY_CACHE, Samples
from .request import Processor, Request, SamplingParams
from .sequence import AddedRequest, FinishReason, Progress, SequenceState, Strategy
from .spec import Count, Ids, Spec
from .state import Cache, State

_SHORT = SamplingParams(max_tokens=1)


@dataclass(frozen=True, slots=True)
class Add(Checked):
    """The addition of a request."""

    request: Request | AddedRequest
    """The request, as given to `add`."""


@dataclass(frozen=True, slots=True)
class Adopt(Checked):
    """The addition of a sequence of another state under a new id."""

    sequence: SequenceState
    """The sequence, as given to `adopt`."""
    id: int
    """Its new request id."""


@dataclass(frozen=True, slots=True)
class Abort(Checked):
    """The abort of a request."""

    id: int
    """Id of the request."""
    reason: str = ""
    """Message that becomes the request's `error`."""


@dataclass(frozen=True, slots=True)
class Fail(Checked):
    """The end of a request by an error that did not come from the network."""

    id: int
    """Id of the request."""
    error: str
    """Message of the error."""


@dataclass(frozen=True, slots=True)
class Rebuild:
    """The loss of all device contents."""


@dataclass(frozen=True, slots=True)
class Prune:
    """The removal of finished requests."""


@dataclass(frozen=True, slots=True)
class Grow(Checked):
    """The addition of KV cache pages."""

    num_pages: Count
    """The new number of pages; it has no effect unless it exceeds the current number."""


Event = Add | Adopt | Abort | Fail | Rebuild | Prune | Grow | Samples


def init(config: Config, strategy: Strategy) -> State:
    """Return a state without requests.

    Args:
        config: Limits of the engine, and the facts of its model.
        strategy: The strategy of requests that set no options.

    Raises:
        Refused: If the strategy cannot decode this model, or if an admitted request could never
            run: the pages must hold the longest request, and a forward pass must hold the window of
            any request. The message has the minimum.
    """
    request, name = probe(config.spec), type(strategy).__name__
    reason = refusal_of_values(strategy, request) or strategy.refusal(config.spec, request)
    if reason := reason or _refusal_of_processors(strategy, config.processors):
        raise Refused(reason.field, reason.code, f"{name} cannot decode this model: {reason.message}")
    least = least_pages(strategy, config.max_model_len, config.page_size)
    if config.num_pages < least:
        fed_end = largest_fed_end(strategy, config.max_model_len)
        raise Refused(
            "num_pages",
            "out_of_range",
            f"{config.num_pages} pages of page_size={config.page_size} cannot hold one request of "
            f"max_model_len={config.max_model_len}, which may feed {fed_end} positions: give at least {least} pages",
        )
    rows = strategy.rows_at_once(request) + config.spec.head_shift
    if config.max_num_batched_tokens < rows:
        raise Refused(
            "max_num_batched_tokens",
            "out_of_range",
            f"{config.max_num_batched_tokens} is less than the {rows} rows that {name} must feed at once: raise it, or lower "
            "block_size or buffer_size",
        )
    return State(config, strategy, _empty_cache(config, strategy))


def probe(spec: Spec, params: SamplingParams = _SHORT) -> Request:
    """Return a short request with which to query a strategy or `refusal`.

    Args:
        spec: Facts of the model. The prompt is one token that is not its mask.
        params: Sampling parameters of the request.
    """
    return Request(0, (int(spec.mask_id == 0),), params)


def least_pages(strategy: Strategy, max_model_len: int, page_size: int) -> int:
    """Return the number of pages with which every request of the maximum length can run.

    Args:
        strategy: The strategy that decodes the requests.
        max_model_len: Maximum number of tokens of a prompt and its answer together.
        page_size: Positions of a page.
    """
    return -(-largest_fed_end(strategy, max_model_len) // page_size)


def largest_fed_end(strategy: Strategy, max_model_len: int) -> int:
    """Return the first position that no request of at most `max_model_len` tokens feeds."""
    # The prompt's length shifts the group boundaries, with a period of at most `rows_at_once` positions.
    period = strategy.rows_at_once(Request(0, (0,), _SHORT))
    lengths = range(1, min(max_model_len, period + 1))
    return max(
        strategy.fed_end(Request(0, (0,) * length, SamplingParams(max_tokens=max_model_len - length))) for length in lengths
    )


def _empty_cache(config: Config, strategy: Strategy) -> Cache:
    return Cache(config.num_pages, slots=tuple(range(config.max_num_reqs)) if strategy.carries else ())


def add(state: State, request: Request) -> State:
    """Return `state` with `request` at the end of the waiting queue.

    A request that could never run finishes at once as `rejected`, one whose strategy or rule fails
    as `error`. Without a seed, a request gets one that depends only on its prompt, its `index` and
    the configured seed.

    Args:
        state: The current state.
        request: The request, whose id is not in use. An `AddedRequest` of `checked`, for the same limits and strategy,
            is not checked again.

    Raises:
        Refused: If the id is in use.
    """
    _check_id(state, request.id)
    config, base, reason = state.config, state.strategy, None
    if not isinstance(request, AddedRequest):
        request, reason = checked(config, base, request)
    seed, length = request.params.seed, request.start
    if seed is None:
        seed = 0 if reason else derived_seed(config.seed, request.prompt, request.index)
    request = replace(
        request,
        params=request.params.processed(config.processors),
        seed=seed,
        seq_id=state.next_seq_id,
        strategy=base if request.strategy == base else request.strategy,  # it may come from another process
    )
    without_blocks = SequenceState(request=request, progress=Progress((), 0, length, List([])))
    if reason:
        return _finished(state, ended(without_blocks, "rejected", length, str(reason)))
    try:
        sequence = sequence_after(without_blocks, "init", request.strategy.init(without_blocks, config.spec))
        if sequence.progress.settled > length:  # pinned tokens may settle positions, even the whole answer
            sequence = apply_finish_rules(sequence, length, config.spec)
    except BaseException as error:  # noqa: BLE001 - user code may raise anything
        return _finished(state, ended(without_blocks, "error", length, str(request_fault(without_blocks, state.step, error))))
    return _queued(state, sequence) if sequence.finish_info is None else _finished(state, sequence)


def _finished(state: State, sequence: SequenceState) -> State:
    """Return `state` with the newest sequence among the finished ones."""
    return replace(state.with_finished((sequence,)), next_seq_id=state.next_seq_id + 1)


def adopt(state: State, sequence: SequenceState, request_id: int) -> State:
    """Return `state` with an unfinished sequence of any state of this model waiting last.

    The sequence continues under a new id with the same parameters, including its seed. If its
    strategy or rule fails, it finishes with reason `error`.

    Args:
        state: The current state.
        sequence: The sequence to continue.
        request_id: Its new id, which is not in use.

    Raises:
        Refused: If the id is in use, the answer has ended, or the sequence could not run here.
    """
    _check_id(state, request_id)
    if sequence.finish_info is not None:
        raise Refused("sequence", "conflict", f"it has ended by {sequence.finish}: give an unfinished sequence")
    request = replace(sequence.request, id=request_id, seq_id=state.next_seq_id)
    if state.strategy.grid(sized(request, state.config.max_model_len)) != sequence.request.grid:
        raise Refused("sequence", "conflict", f"its blocks differ from those of the state's {state.strategy!r}")
    reason = _refusal_of_request(state.config, request) or refusal_by(
        sequence.request.strategy, state.config, state.strategy, request
    )
    length, most = sequence.request.limit + len(request.params.suffix), state.config.max_model_len
    if not reason and length > most:
        message = f"prompt and answer may have {length} tokens, more than max_model_len={most}: raise it"
        reason = Refusal("sequence", "context_length_exceeded", message)
    if reason:
        raise Refused(*reason)
    try:
        adopted = forgotten(replace(sequence, request=request), state)
    except RequestFault as fault:
        return _finished(state, ended(replace(sequence, request=request), "error", sequence.progress.settled, str(fault)))
    return _queued(state, adopted)


def _check_id(state: State, request_id: int) -> None:
    if request_id in state.live or request_id in state.finished:
        raise Refused("id", "conflict", f"{request_id} is in use in this state: give a new one, such as {state.next_seq_id}")


def _queued(state: State, sequence: SequenceState) -> State:
    """Return `state` with the newest sequence at the end of the waiting queue."""
    request = sequence.request
    waiting, live = state.waiting.push(sequence), state.live.insert(request.id, request.seq_id)
    return replace(state, waiting=waiting, live=live, next_seq_id=state.next_seq_id + 1)


def abort(state: State, request_id: int, reason: str = "") -> State:
    """Return `state` with the request finished as `abort`; unchanged if it is not live.

    Args:
        state: The current state.
        request_id: The caller's id of the request.
        reason: Message that becomes the request's `error`.
    """
    return _ended_early(state, request_id, "abort", reason)


def fail(state: State, request_id: int, error: str) -> State:
    """Return `state` with the request finished as `error`, without pages. A request that is not live changes nothing.

    Args:
        state: The current state.
        request_id: The caller's id of the request.
        error: Message that becomes the request's `error`.
    """
    return _ended_early(state, request_id, "error", error)


def _ended_early(state: State, request_id: int, reason: FinishReason, message: str) -> State:
    sequence = state.find(request_id)
    if sequence is None or sequence.finish_info is not None:
        return state
    seq_id = sequence.request.seq_id
    state = state.with_finished((ended(sequence, reason, sequence.progress.settled, message),))
    if state.waiting.get(seq_id) is not None:
        return replace(state, waiting=state.waiting.remove((seq_id,)))
    return replace(
        state,
        cache=state.cache.release(sequence.pages, sequence.storage.slot),
        running=tuple(other for other in state.running if other is not sequence),
        releases=(*state.releases, seq_id),
    )


def rebuild(state: State) -> State:
    """Return `state` for an empty device: for a new process, a rewound session or a fork.

    All sequences wait without pages or cached prefixes, so any driver accepts the next plan.

    Args:
        state: The current state.

    Raises:
        RequestFault: If the strategy of a request fails.
    """
    running = [forgotten(sequence, state) for sequence in state.running]
    cache, waiting = _empty_cache(state.config, state.strategy), state.waiting.push_front(running)
    return replace(state, cache=cache, running=(), waiting=waiting, cache_digest=EMPTY_CACHE, releases=())


def prune(state: State) -> State:
    """Return `state` without finished requests, to bound memory; their ids become free.

    Args:
        state: The current state.
    """
    return replace(state, finished=type(state.finished)(), ended=type(state.ended)())


def grow(state: State, num_pages: int) -> State:
    """Return `state` with `num_pages` KV cache pages; unchanged if it already has as many or more.

    Args:
        state: The current state.
        num_pages: The new number of pages.
    """
    if num_pages <= state.config.num_pages:
        return state
    config, cache = replace(state.config, num_pages=num_pages), replace(state.cache, num_pages=num_pages)
    return replace(state, config=config, cache=cache)


def pages_needed(config: Config, sequences: Iterable[SequenceState]) -> int:
    """Return how many pages `sequences` need to run to their ends at the same time without sharing any."""
    requests = [sequence.request for sequence in sequences]
    ends = [request.strategy.fed_end(sized(request, config.max_model_len)) for request in requests]
    return sum([-(-end // config.page_size) for end in ends])


def sized(request: Request, max_model_len: int) -> Request:
    """Return `request` with `max_tokens` cut to the room in `max_model_len`, but at least 1."""
    room = max(1, request.room(max_model_len))
    return request if request.params.max_tokens <= room else replace(request, params=request.params.shortened(room))


def refusal_of_max_tokens(config: Config, request: Request) -> Refusal | None:
    """Return why an answer of `max_tokens` does not fit after the prompt; None if it fits, or if not even one token does."""
    most, room = request.params.max_tokens, request.room(config.max_model_len)
    if 0 < room < most:
        return Refusal(
            "max_tokens",
            "context_length_exceeded",
            f"{most} exceeds the {room} tokens that max_model_len leaves after the prompt: lower it",
        )
    return None


def refusal(config: Config, strategy: Strategy, request: Request) -> Refusal | None:
    """Return why `add` would always reject `request`; None if it would not.

    Args:
        config: Limits of the engine, and the facts of its model.
        strategy: The strategy of requests that set no options.
        request: The request.
    """
    return checked(config, strategy, request)[1]


def checked(config: Config, base: Strategy, request: Request) -> tuple[AddedRequest, Refusal | None]:
    """Return the request with the values derived from it, and why it could never run (None if it can).

    The strategy of the request is `base` with the options that the request sets, or `base` if it could never run.
    """
    params, start, limit = request.params, request.start, answer_limit(request, config)
    stops, automaton = stop_ids(params, config.spec), request.automaton
    reserve = params.end_reserve or (1 if params.json_schema is None else 2)
    constraint = None if automaton is None else RequestConstraint(automaton, stops, start, limit, params.pinned, reserve)
    given = {field.name: getattr(request, field.name) for field in fields(Request) if field.init}
    added = AddedRequest(**given, limit=limit, stop_ids=stops, grid=Grid(start, 1), strategy=base, constraint=constraint)
    reason = _refusal_of_request(config, added)
    try:
        strategy = with_options(base, dict(params.strategy_options))
    except Refused as error:
        return added, reason or error.refusal
    try:
        reason = reason or refusal_by(strategy, config, base, request)
        if not reason:
            added = replace(added, grid=strategy.grid(sized(request, config.max_model_len)), strategy=strategy)
    except BaseException as error:  # noqa: BLE001 - user code may raise anything
        reason = Refusal("strategy_options", "strategy_failed", str(request_fault(None, 0, error)))
    return added, reason


def _refusal_of_request(config: Config, request: AddedRequest) -> Refusal | None:
    """Return why `request` could never run under any strategy; None if it can."""
    spec, params = config.spec, request.params
    length = len(request.prompt)
    if (room := request.room(config.max_model_len)) < 1:
        after = f" and the suffix {len(params.suffix)}" if params.suffix else ""
        return Refusal(
            "prompt",
            "context_length_exceeded",
            f"it has {length} tokens{after}; max_model_len={config.max_model_len} leaves no room for an answer",
        )
    if params.stop and not spec.pieces:
        return Refusal(
            "stop", "unsupported", f"{short(params.stop)} needs the bytes of the tokens; give stop_token_ids instead"
        )
    if request.automaton is None and (source := params.constraint_source):
        return Refusal(source[0], "unsupported", f"{short(source[1])} is not compiled: set Request.automaton, as LLM does")
    reason = (
        _refusal_of_ids("prompt", request.prompt, spec)
        or _refusal_of_ids("stop_token_ids", params.stop_token_ids, spec)
        or _refusal_of_ids("pinned", [token for _, token in params.pinned], spec)
        or _refusal_of_ids("canvas", params.canvas, spec)
        or _refusal_of_ids("suffix", params.suffix, spec)
    )
    last = params.pinned[-1][0] if params.pinned else 0
    if not reason and last >= room:
        message = f"offset {last} must be below {room}, the room for an answer in max_model_len={config.max_model_len}"
        reason = Refusal("pinned", "out_of_range", message)
    if reason or request.constraint is None:
        return reason
    return _refusal_of_constraint(config, params, request.constraint)


def _refusal_of_ids(field: str, ids: Sequence[int], spec: Spec) -> Refusal | None:
    """Return why token ids are not those of the model; None if they are."""
    if spec.mask_id in ids:
        message = f"id {spec.mask_id} at position {ids.index(spec.mask_id)} is the mask, which is not a token: remove it"
    elif ids and not 0 <= min(ids) <= max(ids) < spec.vocab_size:
        wrong = max(ids) if min(ids) >= 0 else min(ids)
        message = f"{wrong} is an id outside [0, {spec.vocab_size}), the ids of the tokenizer"
    else:
        return None
    return Refusal(field, "unknown_token_id", message)


def _refusal_of_constraint(config: Config, params: SamplingParams, constraint: RequestConstraint) -> Refusal | None:
    """Return why no answer satisfies the constraint of a request; None if one does."""
    automaton = constraint.automaton.loaded
    if automaton.vocab_size != config.spec.vocab_size:
        return Refusal(
            "automaton",
            "conflict",
            f"{automaton.source} was compiled for {automaton.vocab_size} ids, the model has {config.spec.vocab_size}: compile "
            "it with the tokenizer of the model",
        )
    for name in ("ignore_eos", "max_nfe", "max_repetition_run"):
        if value := getattr(params, name):
            return Refusal(
                name, "conflict", f"{value} may cut an answer before it satisfies the constraint: leave one of them out"
            )
    if constraint.feasible:
        return None
    room, pins, change = constraint.limit - constraint.start, "", ""
    if params.pinned:
        pins, change = " with the pinned tokens", ", or pin others"
    return Refusal(
        "max_tokens", "unsatisfiable", f"no text that matches {automaton.source} fits {room} tokens{pins}: raise it{change}"
    )


def refusal_by(strategy: Strategy, config: Config, base: Strategy, request: Request) -> Refusal | None:
    """Return why `strategy` cannot decode `request` in a batch of `base`; None if it can."""
    name, params = type(base).__name__, request.params
    sizes = sized(request, config.max_model_len)
    if reason := refusal_of_values(strategy, sizes) or strategy.refusal(config.spec, request):
        return reason
    if strategy is not base:
        if type(strategy) is not type(base):
            message = f"{type(strategy).__name__} is not the engine's {name}: load an engine for it"
            return Refusal("decoding_strategy", "conflict", message)
        if lacking := _lacking(base, strategy, sizes):
            field = _field_of(strategy, base, params, lambda other: not _lacking(base, other, sizes))
            return Refusal(field, "conflict", f"it needs {lacking}, which the engine does not provide: set it for the engine")
    most = config.max_num_batched_tokens - config.spec.head_shift
    if (rows := strategy.rows_at_once(sizes)) > most:
        few = base.rows_at_once(sizes) <= most
        field = _field_of(strategy, base, params, lambda other: other.rows_at_once(sizes) <= most) if few else "max_tokens"
        return Refusal(
            field,
            "out_of_range",
            f"{name} must feed {rows + config.spec.head_shift} rows of this request at once; "
            f"max_num_batched_tokens={config.max_num_batched_tokens}",
        )
    if reason := _refusal_of_processors(strategy, config.processors + params.processors):
        return reason
    ineffective = {
        "pinned": bool(params.pinned) and not strategy.holds_pins,
        (params.constraint_source or ("automaton",))[0]: request.automaton is not None and not strategy.takes_constraints,
        "canvas": bool(params.canvas) and not strategy.takes_canvas,
        "suffix": bool(params.suffix) and not strategy.takes_suffix,
    }
    field = next((field for field, given in ineffective.items() if given), None)
    message = f"it has no effect in {name}, which does not support it: leave it out"
    return None if field is None else Refusal(field, "unsupported", message)


def _lacking(base: Strategy, strategy: Strategy, request: Request) -> str:
    """Return what `strategy` needs for `request` but a batch of `base` does not provide; empty if nothing."""
    layouts = [(value.carries, value.grid(request)) for value in (strategy, base)]
    if layouts[0] != layouts[1] or strategy.fed_end(request) > base.fed_end(request):
        return f"blocks, or data carried between forward passes, that differ from those of {base!r}"
    return base.sample_spec.lacking(strategy.sample_spec)


def _field_of(strategy: Strategy, base: Strategy, params: SamplingParams, fits: Callable[[Strategy], bool]) -> str:
    """Return the one option of a request whose removal makes its strategy fit; `strategy_options` if there is none."""
    own = options_of(base)
    for name, _ in params.strategy_options:
        with suppress(Refused):  # without it, another option is invalid
            if name in own and fits(with_options(strategy, {name: own[name]})):
                return name
    return "strategy_options"


def _refusal_of_processors(strategy: Strategy, processors: tuple[Processor, ...]) -> Refusal | None:
    """Return why a strategy cannot decode with these processors; None if it can."""
    name = type(strategy).__name__
    if not processors:
        return None
    first, guided = type(processors[0]).__name__, next((each for each in processors if each.guided), None)
    if strategy.autoregressive not in (None, strategy):
        message = f"{first} does not go with {name}, whose verified tokens it could change: leave one of them out"
    elif strategy.carries:
        message = f"{first} does not go with {name}, whose next pass reads unprocessed logits: leave one of them out"
    elif guided is not None and not strategy.full_passes:
        message = (
            f"{type(guided).__name__} needs a canvas that each pass feeds in full, which {name} does not: give "
            "decoding_strategy='dual_cache' with cache='none'"
        )
    else:
        return None
    return Refusal("processors", "conflict", message)


def answer_limit(request: Request, config: Config) -> int:
    """Return the first position past the longest answer, from `max_tokens` and `max_model_len`."""
    return request.start + min(request.params.max_tokens, request.room(config.max_model_len))


def stop_ids(params: SamplingParams, spec: Spec) -> Ids:
    """Return the ids that end an answer, ascending."""
    ids = params.stop_token_ids if params.ignore_eos else params.stop_token_ids + spec.eos_ids
    return tuple(sorted(set(ids)))


def derived_seed(seed: int, prompt: Ids, index: int) -> int:
    """Return the 64-bit seed of a request that has none; `index` distinguishes equal prompts.

    The seed depends only on the arguments, not on the arrival time or the options of the request.
    """
    numbers = array("q", (index, *prompt)).tobytes()
    return int.from_bytes(blake2b(numbers, digest_size=8, key=(seed % (1 << 64)).to_bytes(8, "little")).digest(), "little")


def apply(state: State, event: Event) -> State:
    """Return the state after `event`."""
    match event:
        case Add():
            return add(state, event.request)
        case Adopt():
            return adopt(state, event.sequence, event.id)
        case Abort():
            return abort(state, event.id, event.reason)
        case Fail():
            return fail(state, event.id, event.error)
        case Rebuild():
            return rebuild(state)
        case Prune():
            return prune(state)
        case Grow():
            return grow(state, event.num_pages)
        case Samples():
            return commit(state, event)

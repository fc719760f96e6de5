"""Entering and leaving: init, add, abort, rebuild, prune."""

from dataclasses import fields, replace
from operator import attrgetter

from .cache import Cache
from .commit import forgotten
from .draws import mix
from .finish import answer_limit, ended, stop_ids
from .plan import START_LINE
from .request import Request, SamplingParams
from .sequence import Sequence, open_sequence
from .spec import Config
from .state import State
from .strategy import Strategy


def init(config: Config, strategy: Strategy) -> State:
    """A state without requests.

    Raises ValueError, naming the fields and the least that would do, if some admitted request could never run: the pages
    must hold all that the longest request may feed, and one forward must hold the window of any request; or if the strategy
    cannot decode such a model.
    """
    why = strategy.unfit(config.spec)
    if why:
        raise ValueError(f"{type(strategy).__name__} cannot decode this model: {why}")
    probe = Request(0, (0,), SamplingParams(max_tokens=1))
    reach = farthest(strategy, config.max_model_len)
    least = -(-reach // config.page_size)
    if config.num_pages < least:
        raise ValueError(
            f"num_pages={config.num_pages} of page_size={config.page_size} cannot hold one request of "
            f"max_model_len={config.max_model_len}, which may feed {reach} positions: give at least {least} pages"
        )
    rows = strategy.atom(probe) + config.spec.head_shift
    if config.max_num_batched_tokens < rows:
        raise ValueError(
            f"max_num_batched_tokens={config.max_num_batched_tokens} is less than the {rows} rows that "
            f"{type(strategy).__name__} must feed at once: raise it, or lower block_size or buffer_size"
        )
    return State(config, strategy, _empty_cache(config, strategy))


def farthest(strategy: Strategy, max_model_len: int) -> int:
    """First position that no request of at most `max_model_len` tokens feeds, whatever its prompt's length."""
    # Where groups begin depends on the prompt's length, at most up to as many positions as are fed at once.
    atom = strategy.atom(Request(0, (0,), SamplingParams(max_tokens=1)))
    lengths = range(1, min(max_model_len, atom + 1))
    return max(
        strategy.reach(Request(0, (0,) * length, SamplingParams(max_tokens=max_model_len - length))) for length in lengths
    )


def _empty_cache(config: Config, strategy: Strategy) -> Cache:
    return Cache(config.num_pages, slots=tuple(range(config.max_num_reqs)) if strategy.carries else ())


def sized(request: Request, max_model_len: int) -> Request:
    """`request` with `max_tokens` cut to what `max_model_len` leaves; 1 at least, for prompts that leave nothing."""
    room = max(1, min(request.params.max_tokens, max_model_len - len(request.prompt)))
    return replace(request, params=replace(request.params, max_tokens=room))


def refusal(state: State, request: Request) -> str:
    """Why `request` could never run in `state`; empty if it can."""
    config, spec, params = state.config, state.config.spec, request.params
    length = len(request.prompt)
    if length >= config.max_model_len:
        return f"the prompt has {length} tokens; max_model_len={config.max_model_len} leaves no room for an answer"
    if spec.mask_id is not None and spec.mask_id in request.prompt:
        return f"the prompt holds the mask id {spec.mask_id} at position {request.prompt.index(spec.mask_id)}"
    if min(request.prompt) < 0 or max(request.prompt) >= spec.vocab_size:
        return f"the prompt holds an id outside [0, {spec.vocab_size}), the ids of the tokenizer"
    if params.stop and not spec.pieces:
        return f"stop={params.stop!r} needs the bytes of the tokens; give stop_token_ids instead"
    if spec.mask_id is not None and spec.mask_id in params.stop_token_ids:
        return f"stop_token_ids holds the mask id {spec.mask_id}, which is never sampled"
    known = {field.name for field in fields(state.strategy)}
    for field in fields(params.thresholds):
        if attrgetter(field.name)(params.thresholds) is not None and field.name not in known:
            return f"{type(state.strategy).__name__} has no {field.name}; it knows {', '.join(sorted(known))}"
    rows = state.strategy.atom(sized(request, config.max_model_len)) + spec.head_shift
    if rows > config.max_num_batched_tokens:
        return (
            f"{type(state.strategy).__name__} must feed {rows} rows of this request at once; "
            f"max_num_batched_tokens={config.max_num_batched_tokens}"
        )
    return state.strategy.refuses(request)


def add(state: State, request: Request) -> State:
    """`state` with `request` waiting behind all others.

    A request that could never run is finished at once with reason `rejected` and a sentence in `error`. Raises ValueError
    if its id was used before.
    """
    if state.find(request.id) is not None:
        raise ValueError(f"request id {request.id} is in use in this state: give a new one, such as {state.arrivals}")
    seed = request.params.seed
    if seed is None:
        seed = mix(mix(state.config.seed) ^ state.arrivals)
    request = replace(request, seed=seed, arrival=state.arrivals)
    limit = answer_limit(request, state.config)
    grid = state.strategy.grid(sized(request, state.config.max_model_len))
    sequence = open_sequence(request, limit, stop_ids(request.params, state.config.spec), grid)
    why = refusal(state, request)
    if why:
        refused = ended(sequence, "rejected", len(request.prompt), f"request {request.id}: {why}")
        return replace(state, finished=state.finished.insert(request.id, refused), arrivals=state.arrivals + 1)
    sequence = state.strategy.init(sequence, state.config.spec)
    return replace(state, waiting=(*state.waiting, sequence), arrivals=state.arrivals + 1)


def abort(state: State, request_id: int) -> State:
    """`state` with the request finished by reason `abort`, holding nothing; unchanged if it is not live."""

    def others(sequences: tuple[Sequence, ...]) -> tuple[Sequence, ...]:
        return tuple(sequence for sequence in sequences if sequence.request.id != request_id)

    sequence = next((s for s in (*state.running, *state.waiting) if s.request.id == request_id), None)
    if sequence is None:
        return state
    return replace(
        state,
        cache=state.cache.release(sequence.pages, sequence.storage.slot),
        running=others(state.running),
        waiting=others(state.waiting),
        finished=state.finished.insert(request_id, ended(sequence, "abort", sequence.settled)),
        releases=(*state.releases, request_id),
    )


def rebuild(state: State) -> State:
    """`state` when no device holds anything: for a new process, a rewound session, a fork.

    Every sequence is forgotten and waits again, the prefix index is empty, and the next plan is one that any driver accepts.
    """
    running = tuple(forgotten(state.strategy, sequence, state) for sequence in state.running)
    waiting = running + state.waiting
    cache = _empty_cache(state.config, state.strategy)
    return replace(state, cache=cache, running=(), waiting=waiting, line=START_LINE, releases=())


def prune(state: State) -> State:
    """`state` without its finished requests, so that a long-lived engine does not grow; their ids may be used again."""
    return replace(state, finished=type(state.finished)())

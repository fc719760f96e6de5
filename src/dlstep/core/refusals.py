"""Why a request can never run: its prompt, its parameters, its constraint or its strategy."""

from dataclasses import replace
from operator import attrgetter

from .checks import short
from .constraint import RequestConstraint
from .contract import unusable
from .faults import RequestFault, run_user_code
from .finish import answer_limit, stop_ids
from .options import with_options
from .request import Request
from .sequence import Strategy
from .spec import Config


def sized(request: Request, max_model_len: int) -> Request:
    """Return `request` with `max_tokens` cut to the room in `max_model_len`, but at least 1."""
    room = max(1, min(request.params.max_tokens, max_model_len - len(request.prompt)))
    return replace(request, params=request.params.shortened(room))


def refusal(config: Config, strategy: Strategy, request: Request) -> str | None:
    """Return why `add` would always reject `request`; None if it would not.

    Args:
        config: Limits of the engine, and the facts of its model.
        strategy: The strategy of requests that set no options.
        request: The request.
    """
    return request_strategy(config, strategy, request)[1]


def unrunnable(config: Config, request: Request) -> str | None:
    """Return why `request` could never run under any strategy; None if it can."""
    spec, params = config.spec, request.params
    length = len(request.prompt)
    if length >= config.max_model_len:
        return f"the prompt has {length} tokens; max_model_len={config.max_model_len} leaves no room for an answer"
    if spec.mask_id is not None and spec.mask_id in request.prompt:
        return f"the prompt holds the mask id {spec.mask_id} at position {request.prompt.index(spec.mask_id)}"
    if min(request.prompt) < 0 or max(request.prompt) >= spec.vocab_size:
        return f"the prompt holds an id outside [0, {spec.vocab_size}), the ids of the tokenizer"
    if params.stop and not spec.pieces:
        return f"stop={short(params.stop)} needs the bytes of the tokens; give stop_token_ids instead"
    if spec.mask_id is not None and spec.mask_id in params.stop_token_ids:
        return f"stop_token_ids holds the mask id {spec.mask_id}, which is never sampled"
    if any(not 0 <= stop_id < spec.vocab_size for stop_id in params.stop_token_ids):
        return f"stop_token_ids holds an id outside [0, {spec.vocab_size}), the ids of the tokenizer"
    if request.constraint is None and (source := params.constraint_source):
        return f"its constraint {source[0]}={short(source[1])} is not compiled: set Request.constraint, as LLM does"
    reason = _unpinnable(config, request) if params.pinned or params.canvas else None
    return reason or (unsatisfiable(config, request) if request.constraint is not None else None)


def unsatisfiable(config: Config, request: Request) -> str | None:
    """Return why no answer satisfies the constraint of the request; None if one does."""
    assert request.constraint is not None
    automaton, params = request.constraint.loaded, request.params
    if automaton.vocab_size != config.spec.vocab_size:
        return (
            f"its constraint {automaton.source} was compiled for {automaton.vocab_size} ids, the model has "
            f"{config.spec.vocab_size}: compile it with the tokenizer of the model"
        )
    for name in ("ignore_eos", "max_nfe", "max_repetition_run"):
        if attrgetter(name)(params):
            return (
                f"{name}={attrgetter(name)(params)} may cut an answer before it satisfies the constraint: leave one of them out"
            )
    constraint = request_constraint(config, request)
    assert constraint is not None
    if constraint.feasible:
        return None
    with_pins = " with the pinned tokens" if params.pinned else ""
    room = answer_limit(request, config) - len(request.prompt)
    return f"no text that matches {automaton.source} fits {room} tokens{with_pins}: raise max_tokens"


def request_constraint(config: Config, request: Request) -> RequestConstraint | None:
    """Return the constraint of the request; None if it has none."""
    if request.constraint is None:
        return None
    stops, start = stop_ids(request.params, config.spec), len(request.prompt)
    return RequestConstraint(request.constraint, stops, start, answer_limit(request, config), request.params.pinned)


def _unpinnable(config: Config, request: Request) -> str | None:
    """Return why the pinned tokens or the canvas of the request are invalid; None if valid."""
    spec, params = config.spec, request.params
    room = config.max_model_len - len(request.prompt)
    for offset, token in params.pinned:
        if offset >= room:
            return f"pinned[{offset}]={token} is past the answer: max_model_len={config.max_model_len} leaves {room} tokens"
        if token == spec.mask_id:
            return f"pinned[{offset}]={token} is the mask id, which is not a token"
        if token >= spec.vocab_size:
            return f"pinned[{offset}]={token} is outside [0, {spec.vocab_size}), the ids of the tokenizer"
    for token in params.canvas:
        if not 0 <= token < spec.vocab_size or token == spec.mask_id:
            return f"canvas holds {token}: ids must be in [0, {spec.vocab_size}) and not the mask id"
    return None


def request_strategy(config: Config, base: Strategy, request: Request) -> tuple[Strategy, str | None]:
    """Return the strategy for `request`, and why the request could never run (None if it can).

    The strategy is `base`, or `base` changed by the options of the request.
    """
    strategy, reason = base, unrunnable(config, request)
    try:
        if options := request.params.options:
            strategy = with_options(strategy, options)
        reason = reason or run_user_code(None, 0, incompatibility, config, base, strategy, request)
    except (ValueError, RequestFault) as error:
        reason = reason or str(error)
    return (base if reason else strategy), reason


def incompatibility(config: Config, base: Strategy, strategy: Strategy, request: Request) -> str | None:
    """Return why `strategy` cannot decode `request` in a batch of `base`; None if it can."""
    name = type(base).__name__
    sizes = sized(request, config.max_model_len)
    if reason := unusable(strategy, sizes):
        return reason
    if strategy is not base:
        if type(strategy) is not type(base):
            return f"it is decoded by {type(strategy).__name__}, the others by {name}"
        if reason := strategy.incompatibility(config.spec):
            return f"{name} cannot decode this model with its options: {reason}"
        if strategy.carries != base.carries:
            return "its options change whether the network carries state from one forward pass to the next"
        layouts = [(value.grid(sizes), value.reach(sizes)) for value in (strategy, base)]
        if layouts[0] != layouts[1]:
            return f"its options would give it other blocks than those of {base!r}: set them for the engine"
        if not base.sample_spec.covers(strategy.sample_spec):
            needed, sampled = strategy.sample_spec, base.sample_spec
            return f"its options need {needed}, the engine's samples have {sampled}: set them for the engine"
    rows = strategy.atom(sizes) + config.spec.head_shift
    if rows > config.max_num_batched_tokens:
        return f"{name} must feed {rows} rows of this request at once; max_num_batched_tokens={config.max_num_batched_tokens}"
    params = request.params
    if params.pinned and not strategy.holds_pins:
        return f"pinned={dict(params.pinned)} has no effect in {name}, which does not support pinned tokens: leave it out"
    if request.constraint is not None and not strategy.takes_constraints:
        return strategy.refusal(request) or f"{name} does not support constraints: leave the constraint out"
    if params.canvas and not strategy.takes_canvas:
        return f"canvas has no effect in {name}, which has no canvas of random tokens: leave it out"
    return strategy.refusal(request)

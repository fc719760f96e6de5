"""Forks: requests that continue with changed options, in a second session or as a new request on a server."""

from collections.abc import Callable
from dataclasses import replace
from itertools import islice

from ..core import (
    Config,
    Json,
    Refused,
    Rule,
    SamplingParams,
    SequenceState,
    State,
    Strategy,
    WaitingQueue,
    init,
    options_of,
    rebuild,
    with_options,
)
from ..core.commit import forgotten
from ..core.lifecycle import refusal_by, sized


def with_changes(
    sequence: SequenceState,
    config: Config,
    base: Strategy,
    changes: Json,
    *,
    seed: int | None = None,
    temperature: float | None = None,
) -> SequenceState:
    """Return `sequence` with some strategy options (rules given as instances), its seed or its temperature changed.

    Settled tokens stay settled: a rule that remasks receives them as given tokens and changes only later ones.
    None keeps the seed or the temperature. A changed strategy that equals `base`, the strategy of the engine,
    is stored as `base`. Raises Refused for an invalid value, for an option that the strategy does not
    have, and if the changed strategy could not continue the current blocks.
    """
    values = {name: value for name, value in (("seed", seed), ("temperature", temperature)) if value is not None}
    request = sequence.request
    params: SamplingParams = replace(request.params, **values)
    request = replace(request, seed=request.seed if seed is None else seed, params=params)
    strategy = with_options(sequence.request.strategy, changes)
    if strategy.grid(sized(request, config.max_model_len)) != sequence.request.grid:
        raise Refused(next(iter(changes), "strategy_options"), "conflict", "it would move the blocks of an unfinished request")
    changed = replace(request, params=replace(params, strategy_options=changes))
    if reason := refusal_by(strategy, config, base, changed):
        raise Refused(reason.field, reason.code, f"the request is already running: {reason.message}")
    sequence = replace(sequence, request=request)
    if strategy != sequence.request.strategy:
        sequence = _handed_over(sequence, strategy)
    request = replace(sequence.request, strategy=base if strategy == base else strategy)
    return replace(sequence, request=request)


def _handed_over(sequence: SequenceState, strategy: Strategy) -> SequenceState:
    """Return `sequence` with its blocks changed so that `strategy`, a new one, and its rule can continue them."""
    progress, window = sequence.progress, sequence.progress.window
    if any(isinstance(option, Rule) and option.remasks for option in options_of(strategy).values()):
        # Users have seen the settled tokens, and stop strings, repetition limits and the constraint have read them.
        window = tuple([block.with_given(progress.settled) for block in window])
    return replace(sequence, progress=replace(progress, window=window))


def forked(state: State, base: Strategy, changes: Json, seed: int | None = None) -> State:
    """Return `state` with strategy `base`, and with `changes` and `seed` (None keeps it) for all unfinished requests.

    The new state reads the same pages on the device, or none if the changes alter what pages may
    hold. Raises ValueError if an unfinished request could not continue.
    """
    SamplingParams(seed=seed)  # raises ValueError for an invalid seed
    init(state.config, base)  # raises ValueError if strategy, model, pages and rows do not fit

    def moved(sequence: SequenceState) -> SequenceState:
        return with_changes(sequence, state.config, base, changes, seed=seed)

    def moved_waiting(sequence: SequenceState) -> SequenceState:
        # Waiting requests have no pages, but may have a canvas drawn with the old seed.
        return forgotten(moved(sequence), state)

    running = tuple(map(moved, state.running))
    after = replace(state, strategy=base, running=running, waiting=_mapped(state.waiting, moved_waiting))
    inexact = not all(sequence.request.strategy.exact for sequence in (*state.running, *running))
    return rebuild(after) if (changes and inexact) or (seed is not None and base.carries) else after


def _mapped(queue: WaitingQueue, change: Callable[[SequenceState], SequenceState]) -> WaitingQueue:
    """Return the queue with `change` applied to each sequence; preempted ones stay at the front."""
    mapped = WaitingQueue(tuple(map(change, queue.front)))
    for sequence in islice(queue, len(queue.front), None):
        mapped = mapped.push(change(sequence))
    return mapped

"""Change options of a request while it is decoded, in a session's fork or on a server."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..core import Config, SamplingParams, SequenceState, Strategy, with_options
from ..core.checks import short
from ..core.refusals import incompatibility


def with_changes(sequence: SequenceState, changes: Mapping[str, Any], config: Config, base: Strategy) -> SequenceState:
    """Return `sequence` with some strategy options changed (rules given as instances).

    A changed strategy equal to `base`, the engine's, is stored as `base`. Raises ValueError for a
    name that the strategy does not have, or if the current blocks could not continue.
    """
    request, changed = sequence.request, short(dict(changes))
    try:
        strategy = with_options(sequence.request_spec.strategy, changes)
    except ValueError as error:
        raise ValueError(f"{changed} does not go with request {request.id}, which is under way: {error}") from error
    if strategy.grid(request) != sequence.request_spec.grid:
        raise ValueError(f"{changed} would move the blocks of request {request.id}, which is under way")
    if reason := incompatibility(config, base, strategy, request):
        raise ValueError(f"{changed} does not go with request {request.id}, which is under way: {reason}")
    return sequence.with_strategy(base if strategy == base else strategy)


def with_params(sequence: SequenceState, *, seed: int | None = None, temperature: float | None = None) -> SequenceState:
    """Return `sequence` with a new seed for further noise, or a new temperature; None keeps it.

    Raises ValueError for an invalid seed or temperature.
    """
    changes = {name: value for name, value in (("seed", seed), ("temperature", temperature)) if value is not None}
    request = sequence.request
    params: SamplingParams = replace(request.params, **changes)
    return sequence.with_request(replace(request, seed=request.seed if seed is None else seed, params=params))

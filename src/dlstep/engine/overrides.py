"""Change options of a request while it is decoded, in a session's fork or on a server."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..core import Config, SamplingParams, Sequence, Strategy, with_options
from ..core.checks import short
from ..core.lifecycle import misfit


def with_changes(sequence: Sequence, changes: Mapping[str, Any], config: Config, base: Strategy) -> Sequence:
    """Return `sequence` with some strategy options changed (rules given as instances).

    A changed strategy equal to `base`, the engine's, is stored as `base`. Raises ValueError for a
    name that the strategy does not have, or if the current blocks could not continue.
    """
    request, said = sequence.request, short(dict(changes))
    try:
        strategy = with_options(sequence.goal.strategy, changes)
    except ValueError as error:
        raise ValueError(f"{said} does not go with request {request.id}, which is under way: {error}") from error
    if strategy.grid(request) != sequence.goal.grid:
        raise ValueError(f"{said} would move the blocks of request {request.id}, which is under way")
    if why := misfit(config, base, strategy, request):
        raise ValueError(f"{said} does not go with request {request.id}, which is under way: {why}")
    return sequence.decoded_by(base if strategy == base else strategy)


def with_params(sequence: Sequence, *, seed: int | None = None, temperature: float | None = None) -> Sequence:
    """Return `sequence` with a new seed for further noise, or a new temperature; None keeps it.

    Raises ValueError for an invalid seed or temperature.
    """
    given = {name: value for name, value in (("seed", seed), ("temperature", temperature)) if value is not None}
    request = sequence.request
    params: SamplingParams = replace(request.params, **given)
    return sequence.asking(replace(request, seed=request.seed if seed is None else seed, params=params))

"""Other options for an answer under way: what a session's fork does to each request, and a server's to one."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..core import Config, SamplingParams, Sequence, Strategy, with_options
from ..core.checks import short
from ..core.lifecycle import misfit


def with_changes(sequence: Sequence, changes: Mapping[str, Any], config: Config, base: Strategy) -> Sequence:
    """`sequence` with some options of its strategy changed, rules given as values; the others are decoded by `base`.

    Raises ValueError for a name that the strategy does not have, and where the blocks under way could not go on.
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
    """`sequence` with another seed, by which all noise from here on is drawn, or another temperature; None leaves it.

    Raises ValueError for what is no seed or no temperature.
    """
    given = {name: value for name, value in (("seed", seed), ("temperature", temperature)) if value is not None}
    request = sequence.request
    params: SamplingParams = replace(request.params, **given)
    return sequence.asking(replace(request, seed=request.seed if seed is None else seed, params=params))

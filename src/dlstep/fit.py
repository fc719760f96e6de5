"""Which strategies can decode a model."""

from . import strategies
from .config import EngineConfig
from .resolve import Description, misfit, resolve


def unfit_strategies(model: Description) -> dict[str, str]:
    """For each strategy that can be named why it cannot decode the model, or nothing if it can."""
    return {name: _unfit(name, model) for name in strategies.available()}


def _unfit(name: str, model: Description) -> str:
    if why := misfit(name, strategies.load(name)(), model.decoding_strategy, model.spec):
        return why
    try:
        resolve(EngineConfig(decoding_strategy=name), model)
    except ValueError as error:
        return str(error)
    return ""

"""Which strategies can decode a model or a family of models, by the code that rejects the others."""

from typing import TYPE_CHECKING

from .. import strategies
from ..core import Refusal, Spec
from .config import EngineConfig
from .strategy_choice import refusal_of_model, strategy_for

if TYPE_CHECKING:
    from ..models import Description, Family


def refusal_of_family(name: str, family: "Family") -> Refusal | None:
    """Return why the strategy cannot decode a default checkpoint of `family`; None if it can."""
    spec = Spec(0 if family.masked else None, (1,), 9, family.head_shift, family.accept_rule)
    return refusal_of_model(strategies.load(name)(), family.training, spec)


def incompatible_strategies(model: "Description") -> dict[str, str | None]:
    """Return, for each available strategy, why it cannot decode the model; None if it can."""
    return {name: _problem_of(name, model) for name in strategies.available()}


def declared_problem(model: "Description") -> str | None:
    """Return why the declared strategy cannot decode the model; None if there is no problem."""
    return None if model.decoding_strategy is None else _refusal(EngineConfig(), model)


def _problem_of(name: str, model: "Description") -> str | None:
    reason = refusal_of_model(strategies.load(name)(), model.training, model.spec)
    return _refusal(EngineConfig(decoding_strategy=name), model) if reason is None else reason.message


def _refusal(config: EngineConfig, model: "Description") -> str | None:
    """Return why the options do not fit the model; None if they do."""
    try:
        strategy_for(config, model)
    except ValueError as error:
        return str(error)
    return None

"""The compatibility matrix: strategies by model families and training methods, and their features.

The rows are computed by calling the code that decodes and the code that rejects.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .. import strategies
from ..core import Refusal, Request, SamplingParams, Spec
from ..core.spec import TRAININGS, refusal_of_training
from .config import EngineConfig
from .strategy_choice import mode_of, refusal_of_model, strategy_for

if TYPE_CHECKING:
    from ..models.description import Description
    from ..models.families import Family

PROMPT = (5,) * 64  # long enough for every strategy's blocks


@dataclass(frozen=True, slots=True)
class Features:
    """Features of a strategy with default options.

    `sampling_mode`: "edit" if unmasked tokens may change, else "naive". `blocks_in_flight`: maximum
    number of unfinished blocks. `exact`: preemption never changes an answer. `shares_prefixes`:
    equal prompts share KV pages. `cuts_prompts`: long prompts may be prefilled in pieces.
    `temperature`: requests may set one. `carries`: forward passes carry over state.
    """

    sampling_mode: str
    blocks_in_flight: int
    exact: bool
    shares_prefixes: bool
    cuts_prompts: bool
    temperature: bool
    carries: bool


@dataclass(frozen=True, slots=True)
class MatrixRow:
    """One strategy of the matrix.

    `models` (by training method) and `families` (by family name) hold the reason why the strategy
    cannot decode such a model; None if it can.
    """

    strategy: str
    models: dict[str, str | None]
    families: dict[str, str | None]
    features: Features


def matrix() -> list[MatrixRow]:
    """Return a row for each available strategy. Imports transformers."""
    from ..models.families import PLUGINS

    return [
        MatrixRow(
            name,
            {training: _message(refusal_of_training(name, training)) for training in TRAININGS},
            {family.name: _message(refusal_of_family(name, family)) for family in PLUGINS.values()},
            features(name),
        )
        for name in strategies.available()
    ]


def _message(refusal: Refusal | None) -> str | None:
    return None if refusal is None else refusal.message


def refusal_of_family(name: str, family: "Family") -> Refusal | None:
    """Return why the strategy cannot decode a default checkpoint of `family`; None if it can."""
    spec = Spec(0 if family.masked else None, (1,), 9, family.head_shift, family.accept_rule)
    return refusal_of_model(strategies.load(name)(), family.training, spec)


def features(name: str) -> Features:
    """Return the features of the strategy of this name."""
    strategy = strategies.load(name)()
    request = Request(0, PROMPT, SamplingParams(max_tokens=1))
    first_group = strategy.grid(request).origin
    return Features(
        sampling_mode=mode_of(name),
        blocks_in_flight=strategy.buffer_size if isinstance(strategy, strategies.Blocks) else 1,
        exact=strategy.exact,
        shares_prefixes=first_group <= len(PROMPT),
        cuts_prompts=first_group < len(PROMPT),
        temperature="temperature" not in strategy.OWN_PARAMS,
        carries=strategy.carries,
    )


def incompatible_strategies(model: "Description") -> dict[str, str | None]:
    """Return, for each available strategy, why it cannot decode the model; None if it can."""
    return {name: _problem_of(name, model) for name in strategies.available()}


def declared_problem(model: "Description") -> str | None:
    """Return why the declared strategy cannot decode the model; None if there is no problem."""
    return None if model.decoding_strategy is None else _refusal(EngineConfig(), model)


def _problem_of(name: str, model: "Description") -> str | None:
    reason = refusal_of_model(strategies.load(name)(), model.training, model.spec)
    return _message(reason) or _refusal(EngineConfig(decoding_strategy=name), model)


def _refusal(config: EngineConfig, model: "Description") -> str | None:
    """Return why the options do not fit the model; None if they do."""
    try:
        strategy_for(config, model)
    except ValueError as error:
        return str(error)
    return None

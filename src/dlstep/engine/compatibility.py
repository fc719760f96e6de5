"""The compatibility matrix: every strategy against every family of models and every way of training a network, and what a
strategy can and cannot do.

Nothing here is a list of its own: rows are asked of the code that decodes and of the code that refuses.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .. import strategies
from ..core import Request, SamplingParams, Spec, Strategy
from ..core.sequence import open_sequence
from ..core.trainings import TRAININGS, unsupported
from .config import EngineConfig
from .resolve import SAMPLING_MODES, Description, misfit, resolve

if TYPE_CHECKING:
    from ..models.families import Family

PROMPT = (5,) * 64  # long enough for every strategy's blocks
_SPECS = [Spec(mask, (1,), 9, head) for mask in (0, None) for head in (0, 1)]


@dataclass(frozen=True, slots=True)
class Features:
    """Features of a strategy with default options.

    `sampling_mode`: whether decided tokens may change. `blocks_in_flight`: unfinished blocks at a time. `exact`: preemption
    changes no answer. `shares_prefixes`: equal prompts are stored once. `cuts_prompts`: a long prompt may be fed in pieces.
    `temperature`: requests may set one. `carries`: the network carries something from forward to forward.
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
    """One strategy: `models` says for each way of training, and `families` for each family of models, why it cannot be
    decoded so, or nothing if it can.
    """

    strategy: str
    models: dict[str, str]
    families: dict[str, str]
    features: Features


def matrix() -> list[MatrixRow]:
    """A row for each strategy that can be named; transformers is imported here."""
    from ..models.families import FAMILIES

    return [
        MatrixRow(
            name,
            {training: unsupported(name, training) for training in TRAININGS},
            {family.name: family_misfit(name, family) for family in FAMILIES.values()},
            features(name),
        )
        for name in strategies.available()
    ]


def family_misfit(name: str, family: "Family") -> str:
    """Why a checkpoint of `family` that says nothing else cannot be decoded with the strategy of this name; empty if it can."""
    spec = Spec(0 if family.masked else None, (1,), 9, family.head_shift, family.accept_rule)
    return misfit(strategies.load(name)(), family.training, spec)


def features(name: str) -> Features:
    """Features of the strategy of this name."""
    strategy = strategies.load(name)()
    request = Request(0, PROMPT, SamplingParams(max_tokens=1))
    opened = _opened(strategy, request)
    return Features(
        sampling_mode=SAMPLING_MODES.get(name, "naive"),
        blocks_in_flight=strategy.buffer_size if isinstance(strategy, strategies.Blocks) else 1,
        exact=strategy.exact,
        shares_prefixes=opened > 0,
        cuts_prompts=strategy.grid(request).origin < len(PROMPT),
        temperature=not strategy.refuses(Request(0, PROMPT, SamplingParams(temperature=1.0))),
        carries=strategy.carries,
    )


def _opened(strategy: Strategy, request: Request) -> int:
    """Positions of the prompt that are final before the first forward."""
    spec = next(spec for spec in _SPECS if not strategy.unfit(spec))
    goal = open_sequence(request, len(PROMPT) + 1, (), strategy.grid(request), strategy)
    return strategy.init(goal, spec).final


def unfit_strategies(model: Description) -> dict[str, str]:
    """For each strategy that can be named why it cannot decode the model, or nothing if it can."""
    return {name: _unfit(name, model) for name in strategies.available()}


def declared_problem(model: Description) -> str:
    """Why a checkpoint cannot be decoded as it asks for itself; empty where it can, or where it asks for nothing."""
    return "" if model.decoding_strategy is None else _refusal(EngineConfig(), model)


def _unfit(name: str, model: Description) -> str:
    why = misfit(strategies.load(name)(), model.training, model.spec)
    return why or _refusal(EngineConfig(decoding_strategy=name), model)


def _refusal(config: EngineConfig, model: Description) -> str:
    """Why the options do not go with the model; empty if they do."""
    try:
        resolve(config, model)
    except ValueError as error:
        return str(error)
    return ""

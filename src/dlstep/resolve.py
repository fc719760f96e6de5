"""From options and a model's facts to a complete, consistent configuration; and from that to what the engine runs on.

Everything here is a pure function. `resolve` makes every choice and refuses what cannot be; `build` only constructs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from typing import Any, Protocol

from . import strategies
from .config import STRATEGY_OPTIONS, EngineConfig, embedded_models, given_strategy_options
from .core import Config, Spec, Strategy, options_of, with_options
from .core.checks import short
from .core.lifecycle import farthest
from .declared import check_name, check_options

# Pages for so many positions are made unless `num_pages` says otherwise: 128 answers of the embedded models.
DEFAULT_POSITIONS = 65_536
EDIT = "multi_bd_edit"
BIDIRECTIONAL = "dual_cache"  # the strategy of networks that see everything
SUB_BLOCKS = (8, 4, 2, 1)  # positions that fast_dllm_v2 decides together: the first that divides a block into several


class Description(Protocol):
    """The facts of a model that options refer to; a loaded checkpoint is one.

    `options` are values of strategy options that the checkpoint was made for or asks for.
    """

    @property
    def name(self) -> str: ...
    @property
    def spec(self) -> Spec: ...
    @property
    def decoding_strategy(self) -> str | None: ...
    @property
    def options(self) -> Mapping[str, Any]: ...
    @property
    def max_model_len(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Training:
    """How a network was trained to see and what to say: it decides which strategies it can be decoded with.

    The first of `strategies` is the one that such a checkpoint names as its own.
    """

    name: str
    strategies: tuple[str, ...]


TRAININGS = (
    Training("block-causal", ("multi_bd", "d2f")),
    Training("block-causal, corrects tokens", (EDIT, "dmax", "multi_bd")),
    Training("prompt in full, blocks causal", ("d2f", "multi_bd")),
    Training("block-causal, shifted head, sub-blocks", ("fast_dllm_v2", "multi_bd")),
    Training("bidirectional", ("dual_cache", "d2f")),
    Training("canvas of random tokens", ("diffusion_gemma",)),
)
# What tokens may do once decided: `edit` strategies may change them until their block is sealed.
SAMPLING_MODES = {EDIT: "edit", "dmax": "edit"}


def training_of(declared: str | None) -> Training | None:
    """The training of a checkpoint that names `declared` as its strategy; None if that tells nothing."""
    name = None if declared is None else strategies.ALIASES.get(declared, declared)
    named = [training for training in TRAININGS if training.strategies[0] == name]
    able = named or [training for training in TRAININGS if name in training.strategies]
    return able[0] if len(able) == 1 else None


def trained_further(declared: str | None, config: EngineConfig) -> str | None:
    """The strategy of a checkpoint that names `declared`, once an adapter is applied to it.

    One that saw everything has been taught to see its prompt in full and blocks behind it, so d2f is its own, unless
    `config` asks to decode it as it was before.
    """
    training, asked = training_of(declared), config.decoding_strategy
    name = type(asked).__module__.rpartition(".")[2] if isinstance(asked, Strategy) else chosen_name(config)
    unchanged = training is None or training.strategies[0] != BIDIRECTIONAL or name == BIDIRECTIONAL
    return declared if unchanged else "d2f"


def chosen_name(config: EngineConfig, default: str | None = None) -> str | None:
    """The name of the strategy that `config` asks for, `default` if it leaves that open; aliases and modes worked out.

    Raises ValueError for a sampling mode that the strategy does not have.
    """
    asked = config.decoding_strategy
    if isinstance(asked, Strategy):
        return None
    mode = config.sampling_mode
    if asked is None:
        if mode is None or default is None or SAMPLING_MODES.get(default, "naive") == mode:
            return EDIT if default is None and mode == "edit" else default
        asked = "multi_bd"
    name = strategies.ALIASES.get(asked, asked)
    if name == "multi_bd" and mode == "edit":
        return EDIT
    if mode is not None and SAMPLING_MODES.get(name, "naive") != mode:
        raise ValueError(
            f"decoding_strategy={short(asked)} does not go with sampling_mode={mode!r}: 'edit' needs multi_bd or dmax, "
            "and dmax needs 'edit'"
        )
    return name


def unsupported(name: str, training: Training) -> str:
    """Why a network of such training cannot be decoded with the strategy of this name; empty if it can."""
    known = {own for other in TRAININGS for own in other.strategies}
    if name in training.strategies or name not in known:
        return ""
    return f"it was trained {training.name}, which {', '.join(training.strategies)} can decode"


def resolve(config: EngineConfig, model: Description) -> EngineConfig:
    """`config` with every choice made: what is given wins, then what the checkpoint says, then the defaults.

    `num_pages` -1 stays: what there is memory for is measured where the network is. Raises ValueError for options that
    contradict the model or one another, naming both sides.
    """
    strategy, config = _with_strategy(config, model)
    max_model_len = config.max_model_len or model.max_model_len
    if max_model_len > model.max_model_len:
        raise ValueError(
            f"EngineConfig.max_model_len must be at most {model.max_model_len}, which {model.name} was made for, "
            f"got {max_model_len}"
        )
    page_size = config.page_size or max(1, min(32, max_model_len // 64))
    num_pages = config.num_pages
    if num_pages is None:
        longest = -(-farthest(strategy, max_model_len) // page_size)
        num_pages = max(longest, min(config.max_num_reqs * longest, DEFAULT_POSITIONS // page_size))
    return replace(config, max_model_len=max_model_len, page_size=page_size, num_pages=num_pages)


def _with_strategy(config: EngineConfig, model: Description) -> tuple[Strategy, EngineConfig]:
    """The strategy, and `config` with its name and all of its options; a strategy given as a value is left as it is."""
    if isinstance(config.decoding_strategy, Strategy):
        strategy = config.decoding_strategy
        _check_fit(type(strategy).__module__.rpartition(".")[2], strategy, model)
        return strategy, config
    name = chosen_name(config, model.decoding_strategy)
    if name is None:
        raise ValueError(
            f"{model.name} does not say how it wants to be decoded: "
            f"give decoding_strategy, one of {', '.join(strategies.available())}"
        )
    if config.decoding_strategy is None:
        check_name(model.name, name)
    chosen = strategies.load(name)
    known = list(options_of(chosen()))
    given = given_strategy_options(config)
    for option, value in given.items():
        if option not in known:
            raise ValueError(
                f"strategy {name!r} has no option {option!r}, but {option}={value!r} is given: it knows {', '.join(known)}"
            )
    check_options(model.name, model.options, chosen)
    said = {option: value for option, value in model.options.items() if option in known}
    said |= {option: value for option, value in _block_sizes(name, model, given).items() if option in known}
    if "canvas_length" in said and given.get("canvas_length", said["canvas_length"]) != said["canvas_length"]:
        raise ValueError(
            f"canvas_length={given['canvas_length']} does not go with {model.name}, whose canvas has {said['canvas_length']}"
        )
    strategy = with_options(chosen(), said | given)
    _check_fit(name, strategy, model)
    filled = {option: value for option, value in options_of(strategy).items() if option in STRATEGY_OPTIONS}
    mode = SAMPLING_MODES.get(name, "naive")
    return strategy, replace(config, decoding_strategy=name, sampling_mode=mode, **filled)


def _block_sizes(name: str, model: Description, given: dict[str, Any]) -> dict[str, Any]:
    """The sizes of a strategy that follow from `bd_size`, the positions that see one another, unless those are stated.

    fast_dllm_v2 divides them into sub-blocks, of eight positions unless something else is given; others take them as a block.
    """
    whole = model.options.get("bd_size")
    if whole is None or "block_size" in model.options or {"block_size", "buffer_size"} <= set(given):
        return {}
    if name != "fast_dllm_v2":
        return {"block_size": whole}
    option = "buffer_size" if "buffer_size" in given else "block_size"
    part = given.get(option) or next((size for size in SUB_BLOCKS if whole % size == 0 and whole > size), whole)
    if whole % part:
        raise ValueError(
            f"{option}={part} does not divide the bd_size={whole} of {model.name}: give one that does, or both sizes"
        )
    other = "block_size" if option == "buffer_size" else "buffer_size"
    return {option: part, other: whole // part}


def misfit(name: str, strategy: Strategy, declared: str | None, spec: Spec) -> str:
    """Why a strategy cannot decode a network that names `declared` as its own; empty if it can."""
    training = training_of(declared)
    return (unsupported(name, training) if training else "") or strategy.unfit(spec)


def _check_fit(name: str, strategy: Strategy, model: Description) -> None:
    if why := misfit(name, strategy, model.decoding_strategy, model.spec):
        raise ValueError(f"decoding_strategy={name!r} does not go with the model {model.name}: {why}")


def embedded_models_for(config: EngineConfig) -> list[str]:
    """Names of the embedded models for the strategy that `config` asks for: those made for it, then others it can decode.

    All of them if it asks for none. Raises ValueError for an unknown strategy.
    """
    models = embedded_models()
    asked = config.decoding_strategy
    name = type(asked).__module__.rpartition(".")[2] if isinstance(asked, Strategy) else chosen_name(config)
    if name is None:
        return list(models)
    strategies.load(name)
    made = [model for model, declared in models.items() if declared == name]
    able = [model for model, declared in models.items() if (of := training_of(declared)) and name in of.strategies]
    return made + [model for model in able if model not in made]


def build(config: EngineConfig, spec: Spec) -> tuple[Config, Strategy]:
    """The arguments of `core.init`, from a resolved configuration.

    Raises ValueError for one that is not resolved.
    """
    if config.decoding_strategy is None or None in (config.max_model_len, config.page_size, config.num_pages):
        raise ValueError("the configuration is not complete: pass it through resolve(config, model) first")
    strategy = config.decoding_strategy
    if not isinstance(strategy, Strategy):
        strategy = strategies.make(strategy, **given_strategy_options(config))
    shared = {field.name: attrgetter(field.name)(config) for field in fields(Config) if field.name != "spec"}
    return Config(spec=spec, **shared), strategy

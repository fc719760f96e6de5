"""Combine options with a model's facts into a complete, consistent configuration.

All functions are pure. `resolve` chooses and rejects contradictions; `build` only constructs.
"""

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from .. import rules, strategies, tiny
from ..core import Config, Spec, Strategy, options_of, with_options
from ..core.checks import short
from ..core.lifecycle import least_pages
from ..core.trainings import BIDIRECTIONAL, PROMPT_IN_FULL, TRAININGS, training_mismatch
from .config import EngineConfig
from .option_help import unknown

if TYPE_CHECKING:
    from ..models.description import Description

# Default positions of the KV cache if `num_pages` is None: 128 answers of the embedded models.
DEFAULT_POSITIONS = 65_536
EDIT = "multi_bd_edit"
BLOCK = "bd_size"  # size of a block that is divided into sub-blocks; for checkpoints only
SUB_BLOCKS = (8, 4, 2, 1)  # sub-block sizes of fast_dllm_v2; the first proper divisor is used
# Unmasked tokens of `edit` strategies may change until their block is sealed.
SAMPLING_MODES = {EDIT: "edit", "dmax": "edit"}


StrategyChoice = str | type[Strategy]


def name_of(strategy: StrategyChoice | Strategy | None) -> str | None:
    """Return the name of a strategy in this package, or the class name of any other strategy."""
    if strategy is None or isinstance(strategy, str):
        return strategy
    cls = strategy if isinstance(strategy, type) else type(strategy)
    return strategies.name_of(cls) or cls.__name__


def trained_further(training: str | None, config: EngineConfig) -> str | None:
    """Return the training method of a network once an adapter is applied to it.

    An adapter for a bidirectional network is assumed to train block-wise attention with the prompt
    seen in full, unless `config` requests the original network's strategy.
    """
    choice = config.decoding_strategy
    name = name_of(choice if isinstance(choice, Strategy) else chosen(config))
    unchanged = training != BIDIRECTIONAL or name == TRAININGS[BIDIRECTIONAL].strategies[0]
    return training if unchanged else PROMPT_IN_FULL


def chosen(config: EngineConfig, default: str | None = None) -> StrategyChoice | None:
    """Return the strategy that `config` requests, or `default`, with aliases and modes resolved.

    None if `config` holds an instance, or if there is no request and no default. Raises ValueError
    for a sampling mode that the strategy does not support.
    """
    choice, mode = config.decoding_strategy, config.sampling_mode
    if isinstance(choice, Strategy):
        return None
    if choice is None:
        if mode is None or default is None or SAMPLING_MODES.get(default, "naive") == mode:
            return EDIT if default is None and mode == "edit" else default
        choice = "multi_bd"
    name = strategies.ALIASES.get(choice, choice) if isinstance(choice, str) else name_of(choice) or ""
    if name == "multi_bd" and mode == "edit":
        return EDIT
    if mode is not None and SAMPLING_MODES.get(name, "naive") != mode:
        raise ValueError(
            f"decoding_strategy={short(choice)} does not go with sampling_mode={mode!r}: 'edit' needs multi_bd or dmax, "
            "and dmax needs 'edit'"
        )
    return name if isinstance(choice, str) else choice


def resolve(config: EngineConfig, model: "Description") -> EngineConfig:
    """Return `config` with every option chosen: as given, else from the checkpoint, else default.

    `num_pages=-1` is kept, because free memory is only measured once the network is loaded. Raises
    ValueError for options that contradict the model or each other, naming both sides.
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
        longest = least_pages(strategy, max_model_len, page_size)
        num_pages = max(longest, min(config.max_num_reqs * longest, DEFAULT_POSITIONS // page_size))
    return replace(config, max_model_len=max_model_len, page_size=page_size, num_pages=num_pages)


def _with_strategy(config: EngineConfig, model: "Description") -> tuple[Strategy, EngineConfig]:
    """Return the strategy, and `config` with its known options. An instance is left unchanged."""
    if isinstance(config.decoding_strategy, Strategy):
        strategy = config.decoding_strategy
        _check_fit(strategy, model)
        return strategy, config
    choice = chosen(config, model.decoding_strategy)
    if choice is None:
        raise ValueError(
            f"{model.name} does not name its decoding strategy: "
            f"give decoding_strategy, one of {', '.join(strategies.available())}"
        )
    if config.decoding_strategy is None and isinstance(choice, str):
        _check_name(model.name, choice)
    _check_options(model.name, model.options)
    given, own = rules.with_values(dict(config.strategy_options)), rules.with_values(model.options)
    base = base_of(choice, own | given)
    known = options_of(base)
    for option, value in given.items():
        if option not in known:
            raise ValueError(unknown(f"strategy {name_of(choice)!r}", option, value, base))
    stated = own | _block_sizes(name_of(choice), base, model, given)
    stated = {option: value for option, value in stated.items() if option in known}
    if "canvas_length" in stated and given.get("canvas_length", stated["canvas_length"]) != stated["canvas_length"]:
        raise ValueError(
            f"canvas_length={short(given['canvas_length'])} does not go with {model.name}, "
            f"whose canvas has {stated['canvas_length']}"
        )
    try:
        strategy = with_options(base, stated | given)
    except ValueError as error:
        with_options(base, given)  # raises first if the given options alone are wrong
        wrong = [f"{option}={short(value)}" for option, value in stated.items() if option in str(error)]
        raise ValueError(f"{model.name} states {', '.join(wrong)}: {error}") from error
    _check_fit(strategy, model)
    mode = SAMPLING_MODES.get(name_of(choice) or "", "naive")
    options = tuple((stated | given).items())
    return strategy, replace(config, decoding_strategy=choice, sampling_mode=mode, strategy_options=options)


def base_of(choice: StrategyChoice, options: Mapping[str, Any]) -> Strategy:
    """Return the strategy with defaults, except for a rule in `options`, which adds options."""
    strategy = strategies.PLUGINS.value(choice)
    holders = {name: options[name] for name in rules.HOLDERS if name in options}
    own = {field.name for field in fields(strategy)}
    for name, rule in holders.items():
        if name not in options_of(strategy):
            continue
        try:
            strategy = with_options(strategy, {name: rule})
        except ValueError:  # the rule contradicts a default, but may fit the given options
            others = {option: value for option, value in options.items() if option in own}
            strategy = with_options(strategy, others | {name: rule})
    return strategy


def _block_sizes(name: str | None, base: Strategy, model: "Description", given: dict[str, Any]) -> dict[str, Any]:
    """Return block sizes that follow from `bd_size`, the width of block attention, unless set.

    fast_dllm_v2 divides `bd_size` into sub-blocks (by default of 8); others use it as block size.
    """
    whole = model.options.get(BLOCK)
    if whole is None or "block_size" in model.options or {"block_size", "buffer_size"} <= set(given):
        return {}
    if name != "fast_dllm_v2":
        return {"block_size": whole}
    option = "buffer_size" if "buffer_size" in given else "block_size"
    part = next((size for size in SUB_BLOCKS if whole % size == 0 and whole > size), whole)
    if option in given:
        part = options_of(with_options(base, {option: given[option]}))[option]
    if whole % part:
        raise ValueError(
            f"{option}={part} does not divide the bd_size={whole} of {model.name}: give one that does, or both sizes"
        )
    other = "block_size" if option == "buffer_size" else "buffer_size"
    return {option: part, other: whole // part}


def incompatibility(strategy: Strategy, training: str | None, spec: Spec) -> str | None:
    """Return why a strategy cannot decode a network with this training method; None if it can."""
    return training_mismatch(strategies.name_of(type(strategy)), training) or strategy.incompatibility(spec)


def _check_fit(strategy: Strategy, model: "Description") -> None:
    if reason := incompatibility(strategy, model.training, model.spec):
        raise ValueError(f"decoding_strategy={name_of(strategy)!r} does not go with the model {model.name}: {reason}")


def embedded_facts() -> dict[str, dict[str, Any]]:
    """Return the `dlstep` section of each embedded model's config.json, by the model's name."""
    texts = {name: (tiny.path(name) / "config.json").read_text(encoding="utf-8") for name in tiny.names()}
    return {name: json.loads(text)["dlstep"] for name, text in texts.items()}


def embedded_models_for(config: EngineConfig) -> list[str]:
    """Return embedded models for the strategy in `config`, those made for it first.

    All of them if `config` names no strategy. Raises ValueError for an unknown strategy.
    """
    models, choice = embedded_facts(), config.decoding_strategy
    if not isinstance(choice, Strategy):
        choice = chosen(config)
        if choice is None:
            return list(models)
        choice = strategies.PLUGINS.value(choice)
    name = strategies.name_of(type(choice))
    made = [model for model, facts in models.items() if facts["decoding_strategy"] == name]
    specs = {m: Spec(facts.get("mask_token_id"), (2,), 1000, facts["head_shift"]) for m, facts in models.items()}
    able = [model for model, facts in models.items() if not incompatibility(choice, facts["training"], specs[model])]
    return made + [model for model in able if model not in made]


def build(config: EngineConfig, spec: Spec) -> tuple[Config, Strategy]:
    """Return the arguments of `core.init`. Raises ValueError if `config` is not resolved."""
    if config.decoding_strategy is None or None in (config.max_model_len, config.page_size, config.num_pages):
        raise ValueError("the configuration is not complete: pass it through resolve(config, model) first")
    strategy = config.decoding_strategy
    if not isinstance(strategy, Strategy):
        strategy = with_options(strategies.PLUGINS.value(strategy), dict(config.strategy_options))
    shared = {field.name: attrgetter(field.name)(config) for field in fields(Config) if field.name != "spec"}
    return Config(spec=spec, **shared), strategy


def _check_name(model: str, declared: str, *, option: str = "decoding_strategy") -> None:
    """Raise ValueError unless `declared` is the name of a known strategy (or rule).

    Only the caller may give a dotted path: it could import a module from the checkpoint folder.
    """
    plugins = strategies.PLUGINS if option == "decoding_strategy" else rules.PLUGINS
    if not plugins.is_known(declared):
        raise ValueError(
            f"{model} asks for {option}={declared!r}, and a checkpoint may only ask for one of "
            f"{', '.join(plugins.available())}: give {option} yourself if you trust another one"
        )


def _check_options(model: str, options: Mapping[str, Any]) -> None:
    """Raise ValueError for options that no strategy or rule has. Values are checked later."""
    classes = [plugins.load(name) for plugins in (strategies.PLUGINS, rules.PLUGINS) for name in plugins.own()]
    known = {field.name for cls in classes for field in fields(cls)} | {BLOCK}
    for option, value in options.items():
        if option not in known:
            raise ValueError(f"{model} states {option}={short(value)}, which no strategy knows: take it out of its config.json")
        if option == BLOCK and (type(value) is not int or value <= 0):
            raise ValueError(f"{model} states {option}={short(value)}, which must be an integer above 0")
        if option in rules.HOLDERS:
            if not isinstance(value, str):
                raise ValueError(f"{model} states {option}={short(value)}, which must be the name of a rule")
            _check_name(model, value, option=option)

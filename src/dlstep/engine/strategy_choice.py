"""Choose the decoding strategy of a model and its options: as requested, else as its checkpoint states, else the defaults.

The fields of a strategy's class and of its rule's class are the only place that defines their options.
"""

import json
from dataclasses import fields
from typing import TYPE_CHECKING

from .. import rules, strategies, tiny
from ..core import Json, Refusal, Refused, SamplingParams, Spec, Strategy, options_of, probe, with_options
from ..core.checks import did_you_mean, short
from ..core.options import unknown_option
from ..core.spec import BIDIRECTIONAL, PROMPT_IN_FULL, TRAININGS, refusal_of_training
from .config import ENGINE_FIELDS, EngineConfig
from .hints import ELSEWHERE, foreign

if TYPE_CHECKING:
    from ..models import Description

StrategyChoice = str | type[Strategy] | Strategy
EDIT = "multi_bd_edit"
EDITING = (EDIT, "dmax")  # strategies whose unmasked tokens may change until their block is sealed
BLOCK = "bd_size"  # size of a block that is divided into sub-blocks; for checkpoints only
SUB_BLOCKS = (8, 4, 2, 1)  # sub-block sizes of fast_dllm_v2; the first proper divisor is used


def name_of(choice: StrategyChoice | None) -> str | None:
    """Return the name of a strategy in this package, or the class name of any other strategy."""
    if choice is None or isinstance(choice, str):
        return choice
    cls = choice if isinstance(choice, type) else type(choice)
    return strategies.name_of(cls) or cls.__name__


def mode_of(strategy: str | None) -> str:
    """Return `edit` for a strategy that may change unmasked tokens, else `naive`."""
    return "edit" if strategy in EDITING else "naive"


def chosen(config: EngineConfig, default: str | None = None) -> StrategyChoice | None:
    """Return the strategy that `config` requests, or `default`, with aliases and modes resolved.

    None if there is no request and no default. Raises Refused for a sampling mode that the strategy does not support.
    """
    choice, mode = config.decoding_strategy, config.sampling_mode
    if choice is None and mode in (None, mode_of(default)):
        return default
    choice = "multi_bd" if choice is None else choice
    name = strategies.ALIASES.get(choice, choice) if isinstance(choice, str) else name_of(choice)
    if name == "multi_bd" and mode == "edit" and not isinstance(choice, Strategy):
        return EDIT
    if mode not in (None, mode_of(name)):
        message = f"{mode!r} does not go with {short(choice)}: 'edit' needs multi_bd or dmax, and dmax needs 'edit'"
        raise Refused("sampling_mode", "conflict", message)
    return name if isinstance(choice, str) else choice


def trained_further(training: str | None, config: EngineConfig) -> str | None:
    """Return the training method of a network once an adapter is applied to it.

    An adapter for a bidirectional network is assumed to train block-wise attention with the prompt
    seen in full, unless `config` requests the original network's strategy.
    """
    unchanged = training != BIDIRECTIONAL or name_of(chosen(config)) == TRAININGS[BIDIRECTIONAL][0]
    return training if unchanged else PROMPT_IN_FULL


def strategy_for(config: EngineConfig, model: "Description") -> Strategy:
    """Return the strategy that decodes a model, with the options of `config` and else those that the checkpoint states.

    Raises Refused for a strategy or options that are unknown, out of range, or contradict the model.
    """
    choice = chosen(config, model.decoding_strategy)
    if choice is None:
        message = f"{model.name} does not name its decoding strategy: give one of {', '.join(strategies.available())}"
        raise Refused("decoding_strategy", "missing", message)
    strategy = choice if isinstance(choice, Strategy) else _with_options(choice, config, model)
    if refusal := refusal_of_model(strategy, model.training, model.spec):
        message = f"{name_of(strategy)!r} does not go with the model {model.name}: {refusal.message}"
        raise Refused("decoding_strategy", refusal.code, message)
    return strategy


def _with_options(choice: str | type[Strategy], config: EngineConfig, model: "Description") -> Strategy:
    name = name_of(choice)
    if config.decoding_strategy is None:
        _check_name(model.name, name, "decoding_strategy")
    _check_stated(model)
    given, own = rules.with_values(dict(config.strategy_options)), rules.with_values(model.options)
    base = base_of(choice, own | given)
    known = options_of(base)
    for option, value in given.items():
        if option not in known:
            raise unknown(option, value, base)
    stated = {option: value for option, value in (own | _block_sizes(name, base, model, given)).items() if option in known}
    canvas = stated.get("canvas_length")
    if canvas is not None and given.get("canvas_length", canvas) != canvas:
        message = f"{short(given['canvas_length'])} does not go with {model.name}, whose canvas has {canvas}"
        raise Refused("canvas_length", "conflict", message)
    try:
        return with_options(base, stated | given)
    except Refused as error:
        with_options(base, given)  # raises first if the given options alone are wrong
        pairs = ", ".join(f"{option}={short(value)}" for option, value in stated.items())
        raise Refused("model", "conflict", f"{model.name} states {pairs}: {error}") from error


def unknown(name: str, value: object, strategy: Strategy) -> Refused:
    """Return the error for an option that a strategy does not have, with a hint at what may be meant."""
    own = options_of(strategy)
    hint = _location(name, value, "rule" in own) or foreign(name) or did_you_mean(name, [*own, *ENGINE_FIELDS])
    return Refused(name, "unknown_field", unknown_option(f"strategy {name_of(strategy)!r}", name, value, own, hint))


def _location(name: str, value: object, takes_rules: bool) -> str:
    """Return a hint at where an option of this name belongs; empty if it is unknown."""
    here = ELSEWHERE.get(name, name)
    if here in (field.name for field in fields(SamplingParams)):
        return f"it is set for each request, as SamplingParams({here}={short(value)})"
    able, owners = (plugins.owners().get(name) for plugins in (rules.PLUGINS, strategies.PLUGINS))
    if able and not takes_rules:
        return f"it is an option of rules such as {able[0]}, which this strategy does not take"
    if able:
        return f"it is an option of rule {' or '.join(able)}: give rule={able[0]!r} as well"
    return f"it is an option of {', '.join(owners)}" if owners else ""


def base_of(choice: StrategyChoice, options: Json) -> Strategy:
    """Return the strategy with default options. Rules in `options` are set, because their fields are options as well."""
    strategy = strategies.PLUGINS.value(choice)
    own = {field.name for field in fields(strategy)}
    for name in rules.HOLDERS:
        if name not in options or name not in options_of(strategy):
            continue
        try:
            strategy = with_options(strategy, {name: options[name]})
        except Refused:  # the rule contradicts a default, but may fit the given options
            others = {option: value for option, value in options.items() if option in own}
            strategy = with_options(strategy, others | {name: options[name]})
    return strategy


def _block_sizes(name: str | None, base: Strategy, model: "Description", given: Json) -> Json:
    """Return block sizes that follow from `bd_size`, the width of block attention, unless set.

    fast_dllm_v2 divides `bd_size` into sub-blocks (by default of 8); others use it as block size.
    """
    whole = model.options.get(BLOCK)
    if whole is None or "block_size" in model.options or {"block_size", "buffer_size"} <= set(given):
        return {}
    if name != "fast_dllm_v2":
        return {"block_size": whole}
    option, other = ("buffer_size", "block_size") if "buffer_size" in given else ("block_size", "buffer_size")
    part = next((size for size in SUB_BLOCKS if whole % size == 0 and whole > size), whole)
    if option in given:
        part = options_of(with_options(base, {option: given[option]}))[option]
    if whole % part:
        message = f"{part} does not divide the bd_size={whole} of {model.name}: give one that does, or both sizes"
        raise Refused(option, "conflict", message)
    return {option: part, other: whole // part}


def refusal_of_model(strategy: Strategy, training: str | None, spec: Spec) -> Refusal | None:
    """Return why a strategy cannot decode a network with this training method; None if it can."""
    return refusal_of_training(strategies.name_of(type(strategy)), training) or strategy.refusal(spec, probe(spec))


def _check_name(model: str, declared: object, option: str) -> None:
    """Raise Refused unless `declared` is the name of a known strategy (or rule).

    Only the caller may give a dotted path: it could import a module from the checkpoint folder.
    """
    plugins = strategies.PLUGINS if option == "decoding_strategy" else rules.PLUGINS
    if not (isinstance(declared, str) and plugins.is_known(declared)):
        message = (
            f"{model} asks for {short(declared)}, and a checkpoint may only ask for one of {', '.join(plugins.available())}: "
            f"if you trust another one, give {option} yourself"
        )
        raise Refused(option, "unknown_name", message)


def _check_stated(model: "Description") -> None:
    """Raise Refused for options of a checkpoint that no strategy or rule has. Values are checked later."""
    known = {*rules.PLUGINS.owners(), *strategies.PLUGINS.owners()}
    for option, value in model.options.items():
        stated = f"{model.name} states {option}={short(value)}"
        if option == BLOCK:
            if type(value) is not int or value <= 0:
                raise Refused("model", "invalid_value", f"{stated}, which must be an integer above 0")
        elif option not in known:
            where = f"the options of family {model.family.name}" if option in model.family.options else "its config.json"
            raise Refused("model", "unknown_field", f"{stated}, which no strategy knows: take it out of {where}")
        elif option in rules.HOLDERS:
            _check_name(model.name, value, option)


def embedded_facts() -> dict[str, Json]:
    """Return the `dlstep` section of each embedded model's config.json, by the model's name."""
    texts = {name: (tiny.path(name) / "config.json").read_text("utf-8") for name in tiny.names()}
    return {name: json.loads(text)["dlstep"] for name, text in texts.items()}


def embedded_models_for(config: EngineConfig) -> list[str]:
    """Return embedded models for the strategy in `config`, those made for it first.

    All of them if `config` names no strategy. Raises Refused for an unknown strategy.
    """
    models, choice = embedded_facts(), chosen(config)
    if choice is None:
        return list(models)
    strategy = strategies.PLUGINS.value(choice)
    name = strategies.name_of(type(strategy))
    made = [model for model, facts in models.items() if facts["decoding_strategy"] == name]
    specs = {m: Spec(facts.get("mask_token_id"), (2,), 1000, facts["head_shift"]) for m, facts in models.items()}
    able = [m for m, facts in models.items() if not refusal_of_model(strategy, facts["training"], specs[m])]
    return made + [model for model in able if model not in made]

"""Entries of a comparison: a strategy with or without a rule, and the values of options to try."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from typing import Any

from .. import rules, strategies, tiny
from ..core import Options, Rule, SamplingParams, Strategy, init, options_of
from ..core.checks import short
from ..core.options import StrategyOptions
from ..engine.loader import LoadedEngine
from ..llm import LLM
from .options import grid_of, refused

CARRIERS = ("multi_bd", "dual_cache")  # strategies to run rules with: one on a grid of blocks, one on a canvas
KNOB = "accept_threshold"  # the option to vary in a class that has it, but no `SWEEP`
SHARES = (0.5, 0.7, 0.8, 0.9, 0.95)  # values to try for an option in (0, 1] if its class has no `SWEEP`
FACTORS = (0.25, 0.5, 1, 2, 4)  # multiples of the default to try for any other option
SENTENCE_ENDS = (". ", ".")  # in the stories of the embedded models


@dataclass(frozen=True, slots=True)
class EvalEntry:
    """The names of a strategy, its rule and a quantization (empty for none), and an `engine` that decodes with them.

    The engine answers every problem with every combination of the values in `varied`. `given_options`
    are the engine's options from the command line, empty if the rule was a Python value.
    """

    strategy: str
    rule: str
    engine: LoadedEngine
    varied: Mapping[str, Any]
    given_options: Mapping[str, Any]
    quantization: str = ""

    @property
    def grid(self) -> tuple[StrategyOptions, ...]:
        """The option sets to compare."""
        return grid_of(self.varied or None)


def sweep_of(value: Options) -> dict[str, tuple[Any, ...]]:
    """Return the option to vary and its values: `SWEEP`, or values derived from a numeric default, if any."""
    if value.SWEEP is not None:
        return dict([value.SWEEP])
    own = [field.name for field in fields(value)]
    for name in sorted(own, key=lambda name: name != KNOB):
        default = attrgetter(name)(value)
        if type(default) in (int, float) and default:
            steps = SHARES if type(default) is float and 0 < default <= 1 else [type(default)(default * f) for f in FACTORS]
            return {name: tuple(dict.fromkeys(step for step in steps if _is_allowed(value, name, step)))}
    return {}


def _is_allowed(value: Options, name: str, step: object) -> bool:
    try:
        return replace(value, **{name: step}) is not None
    except ValueError:
        return False


def name_of(value: str | Rule | Strategy) -> str:
    """Return the name of a rule or a strategy; for an instance, the name of its class."""
    if isinstance(value, str):
        return value
    plugins = rules.PLUGINS if isinstance(value, Rule) else strategies.PLUGINS
    return plugins.name_of(type(value)) or type(value).__name__


def entries(
    named: Sequence[str | Rule] | None = None,
    carriers: Sequence[str] | None = None,
    *,
    grid: Mapping[str, Any] | None = None,
    quantizations: Sequence[str | None] = (None,),
    **engine: Any,
) -> tuple[list[EvalEntry], list[str]]:
    """Return an entry for each compatible pair of a rule and a strategy, and why other pairs are left out.

    A strategy that accepts no rule is an entry by itself. `named` are names or instances of rules
    (None: all rules), `carriers` are names of strategies. `grid` maps options to values (None:
    `sweep_of` of each entry). There is a separate entry for each of the `quantizations`. `engine`
    are options of `LLM`; without a model, the embedded models decode, and `fitted` changes defaults
    that only suit large models. Raises ValueError for a duplicate and for a rule that no strategy accepts.
    """
    by_name: dict[str, str | Rule | None] = {name_of(rule): rule for rule in (rules.available() if named is None else named)}
    if named is not None and len(by_name) < len(named):
        raise ValueError(f"a rule is given twice in {short([*map(name_of, named)])}: list it once, or give each its own class")
    for rule in named or ():
        rules.PLUGINS.value(rule)  # raises for an unknown name, before a model is loaded
    requested = tuple(carriers or (CARRIERS if engine.get("model") is None else (None,)))
    if len(set(requested)) < len(requested):
        raise ValueError(f"a strategy is given twice in {short(requested)}: list it once")
    found: list[EvalEntry] = []
    left_out: list[tuple[str, str]] = []  # rule and reason
    if len(set(quantizations)) < len(quantizations):
        raise ValueError(f"a quantization is given twice in {short(quantizations)}: list it once")
    quantized = [{} if how is None else {"quantization": how} for how in quantizations]
    given = [{"decoding_strategy": name, **engine, **how} for how in quantized for name in requested]
    for options, llm in [(options, LLM(**options)) for options in given]:
        holds_rule = isinstance(options_of(llm.state.strategy).get("rule"), Rule)
        for rule, value in (by_name if holds_rule else {"": None}).items():
            try:
                found.append(entry_of(llm, rule, value, grid, options))
            except ValueError as error:
                pair = " on ".join(filter(None, (rule, name_of(llm.state.strategy))))
                left_out.append((rule, f"{pair}: {error}"))
    _check_entries(found, left_out, () if named is None else by_name)
    return found, [reason for _, reason in left_out]


def _check_entries(found: Sequence[EvalEntry], left_out: Sequence[tuple[str, str]], named: Iterable[str]) -> None:
    """Raise ValueError if a named rule has no entry, two entries have the same name, or there is no entry."""
    compared = {entry.rule for entry in found}
    if (alone := next((rule for rule in named if rule not in compared), None)) is not None:
        reason = next((reason for rule, reason in left_out if rule == alone), "they accept no rule")
        raise ValueError(f"rule {short(alone)} fits none of the strategies: {reason}")
    pairs = [(entry.strategy, entry.rule, entry.quantization) for entry in found]
    if (twice := next((pair for pair in pairs if pairs.count(pair) > 1), None)) is not None:
        raise ValueError(f"two strategies are called {short(twice[0])}: rename the class of one of them")
    if not found:
        raise ValueError(f"nothing is left to compare: {left_out[-1][1]}")


def entry_of(
    llm: LLM, name: str, rule: str | Rule | None, grid: Mapping[str, Any] | None, given_options: Mapping[str, Any]
) -> EvalEntry:
    """Return the entry of a strategy and its rule, if any. Raises ValueError if they are incompatible."""
    strategy, config, changed = llm.state.strategy, llm.state.config, dict[str, Any]()
    swept: Options = strategy
    if rule is not None:
        plain = rules.PLUGINS.value(rule)
        embedded = given_options.get("model") is None or given_options["model"] in tiny.names()
        swept = fitted(plain, options_of(strategy).get("block_size")) if embedded else plain
        # Rules that read the whole answer cannot use a cache, so the comparison disables it for every rule.
        changed = {"cache": "none"} if "cache" in options_of(strategy) else {}
        strategy = replace(strategy, rule=swept, **changed)  # pyright: ignore[reportCallIssue]
        before = options_of(plain)
        changed |= {option: value for option, value in options_of(swept).items() if value != before[option]}
    varied = sweep_of(swept) if grid is None else grid
    engine = replace(llm.engine, first=init(config, strategy))
    quantization = given_options.get("quantization") or ""
    by_name = rule is None or isinstance(rule, str)
    changed |= {"rule": rule} if rule is not None else {}
    entry = EvalEntry(
        name_of(llm.state.strategy), name, engine, varied, {**given_options, **changed} if by_name else {}, quantization
    )
    for options in entry.grid:
        if reason := refused(config, strategy, SamplingParams(max_tokens=1, strategy_options=options)):
            raise ValueError(reason)
    return entry


def fitted(rule: Rule, block_size: Any) -> Rule:
    """Return the rule with defaults that suit an embedded model (`block_size` None: no blocks).

    Delimiters of other tokenizers become sentence ends, and the size of parts becomes the block
    size. Options that differ from their defaults are kept.
    """
    from ..tiny.tokenizer import VOCABULARY

    ends = tuple(VOCABULARY.index(end) for end in SENTENCE_ENDS)
    suited: dict[str, Any] = {"delimiters": ends} | ({"part_size": block_size} if block_size else {})
    own, usual = options_of(rule), options_of(rules.PLUGINS.value(type(rule)))
    changed = {name: option for name, option in suited.items() if name in own and own[name] == usual[name]}
    return replace(rule, **changed) if changed else rule

"""Entries of a comparison: strategies, each with a rule if it has one, over values of some of its options."""

from collections.abc import Iterable, Mapping, Sequence as Items
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from typing import Any

from .. import rules, strategies, tiny
from ..core import Options, Rule, SamplingParams, Strategy, init, options_of
from ..core.checks import short
from ..core.options import StrategyOptions
from ..engine.loader import Engine
from ..llm import LLM
from .options import grid_of, refused

CARRIERS = ("multi_bd", "dual_cache")  # one on a grid of blocks, one on a canvas
KNOB = "accept_threshold"  # the option to vary if a class has it and no `SWEEP`
SHARES = (0.5, 0.7, 0.8, 0.9, 0.95)  # values of an option in (0, 1] whose class has no `SWEEP`
FACTORS = (0.25, 0.5, 1, 2, 4)  # multiples of the default, for any other option
SENTENCE_ENDS = (". ", ".")  # in the stories of the embedded models


@dataclass(frozen=True, slots=True)
class Entry:
    """A strategy and its rule by name (empty for none), and an `engine` that decodes with them.

    Every combination of the values in `varied` answers every problem. `told` are the engine's
    options as given on a command line, empty if some were Python values.
    """

    strategy: str
    rule: str
    engine: Engine
    varied: Mapping[str, Any]
    told: Mapping[str, Any]

    @property
    def grid(self) -> tuple[StrategyOptions, ...]:
        """The sets of options."""
        return grid_of(self.varied or None)


def sweep_of(value: Options) -> dict[str, tuple[Any, ...]]:
    """Return the option to vary of a rule or strategy, with its values: its `SWEEP`, or else steps around its first number.

    The result is empty if it has no number.
    """
    if value.SWEEP is not None:
        return dict([value.SWEEP])
    own = [field.name for field in fields(value)]
    for name in sorted(own, key=lambda name: name != KNOB):
        given = attrgetter(name)(value)
        if type(given) in (int, float) and given:
            steps = SHARES if type(given) is float and 0 < given <= 1 else [type(given)(given * each) for each in FACTORS]
            return {name: tuple(dict.fromkeys(step for step in steps if _takes(value, name, step)))}
    return {}


def _takes(value: Options, name: str, step: object) -> bool:
    try:
        return replace(value, **{name: step}) is not None
    except ValueError:
        return False


def name_of(value: str | Rule | Strategy) -> str:
    """Return the name of a rule or a strategy; for a value, the name of its class."""
    if isinstance(value, str):
        return value
    shelf = rules.SHELF if isinstance(value, Rule) else strategies.SHELF
    return shelf.name_of(type(value)) or type(value).__name__


def entries(
    named: Items[str | Rule] | None = None,
    carriers: Items[str] | None = None,
    *,
    grid: Mapping[str, Any] | None = None,
    **engine: Any,
) -> tuple[list[Entry], list[str]]:
    """Return every compatible pair of a rule and a strategy, strategies without rules, and why
    other pairs are left out.

    `named` are rules by name or value, None: all. `grid` lists values of options, None: the
    `sweep_of` of each entry. `engine` are options of an `LLM`; without a model, the embedded models
    decode, and `fitted` changes defaults that only suit large models. Raises ValueError for a
    duplicate, and for a rule that no strategy accepts.
    """
    given: dict[str, str | Rule | None] = {name_of(rule): rule for rule in (rules.available() if named is None else named)}
    if named is not None and len(given) < len(named):
        raise ValueError(f"a rule is given twice in {short([*map(name_of, named)])}: compare it once, or give it its own class")
    asked = tuple(carriers or (CARRIERS if engine.get("model") is None else (None,)))
    if len(set(asked)) < len(asked):
        raise ValueError(f"a strategy is given twice in {short(asked)}: compare it once")
    found: list[Entry] = []
    left_out: list[tuple[str, str]] = []  # rule, and why
    for name, llm in [(name, LLM(decoding_strategy=name, **engine)) for name in asked]:
        holds_rule = isinstance(options_of(llm.state.strategy).get("rule"), Rule)
        for rule, value in (given if holds_rule else {"": None}).items():
            try:
                found.append(entry_of(llm, rule, value, grid, {"decoding_strategy": name, **engine}))
            except ValueError as error:
                pair = " on ".join(filter(None, (rule, name_of(llm.state.strategy))))
                left_out.append((rule, f"{pair}: {error}"))
    _check_entries(found, left_out, () if named is None else given)
    return found, [why for _, why in left_out]


def _check_entries(found: Items[Entry], left_out: Items[tuple[str, str]], named: Iterable[str]) -> None:
    """Raise ValueError if a named rule has no entry, if two entries have one name, or if there is none."""
    compared = {entry.rule for entry in found}
    if (alone := next((rule for rule in named if rule not in compared), None)) is not None:
        why = next((why for rule, why in left_out if rule == alone), "they hold none")
        raise ValueError(f"rule {short(alone)} goes with none of the strategies: {why}")
    pairs = [(entry.strategy, entry.rule) for entry in found]
    if (twice := next((pair for pair in pairs if pairs.count(pair) > 1), None)) is not None:
        raise ValueError(f"two strategies are called {short(twice[0])}: give the class of one another name")
    if not found:
        raise ValueError(f"nothing is left to compare: {left_out[-1][1]}")


def entry_of(llm: LLM, name: str, rule: str | Rule | None, grid: Mapping[str, Any] | None, told: Mapping[str, Any]) -> Entry:
    """Return the entry of an LLM's strategy with a rule, None: without one. Raises ValueError if they are not compatible."""
    strategy, config, changed = llm.state.strategy, llm.state.config, dict[str, Any]()
    swept: Options = strategy
    if rule is not None:
        given = rules.SHELF.value(rule)
        embedded = told.get("model") is None or told["model"] in tiny.names()
        swept = fitted(given, options_of(strategy).get("block_size")) if embedded else given
        # A rule that reads the whole answer cannot use a cache, and all rules are compared under the same conditions.
        changed = {"cache": "none"} if "cache" in options_of(strategy) else {}
        strategy = replace(strategy, rule=swept, **changed)  # pyright: ignore[reportCallIssue]
        before = options_of(given)
        changed |= {option: value for option, value in options_of(swept).items() if value != before[option]}
    varied = sweep_of(swept) if grid is None else grid
    first = init(config, strategy)
    by_name = rule is None or isinstance(rule, str)
    told = {**told, **({"rule": rule} if rule is not None else {}), **changed} if by_name else {}
    entry = Entry(name_of(llm.state.strategy), name, replace(llm.engine, first=first), varied, told)
    for options in entry.grid:
        if why := refused(config, strategy, SamplingParams(max_tokens=1, strategy_options=options)):
            raise ValueError(why)
    return entry


def fitted(rule: Rule, block_size: Any) -> Rule:
    """Return the rule with defaults for an embedded model with blocks of `block_size` (None: no blocks).

    Delimiters of another tokenizer become ends of sentences, and parts of an answer get the block size. Options that do not
    have their default value are not changed.
    """
    from ..tiny.tokenizer import VOCABULARY

    ends = tuple(VOCABULARY.index(end) for end in SENTENCE_ENDS)
    suited: dict[str, Any] = {"delimiters": ends} | ({"part_size": block_size} if block_size else {})
    given, usual = options_of(rule), options_of(rules.SHELF.value(type(rule)))
    changed = {name: option for name, option in suited.items() if name in given and given[name] == usual[name]}
    return replace(rule, **changed) if changed else rule

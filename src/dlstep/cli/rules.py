"""`dlstep rules`: list decoding rules, or explain one."""

import re
from dataclasses import KW_ONLY, dataclass
from typing import NamedTuple

from rich.console import Console
from rich.text import Text

from .. import rules, strategies
from ..core import Rule, needs_canvas
from ..core.options import options_of
from ..engine.option_rows import paragraphs
from ..strategies._canvas import Canvas
from .options import Namespace, json_text
from .strategies import flat, print_entry, print_options

EXAMPLES = "dlstep rules\ndlstep rules quota\ndlstep rules --json"


@dataclass(frozen=True)
class RulesCommand:
    """List decoding rules: which positions to unmask in a forward pass, the source, and compatible strategies."""

    name: str | None = None
    """A rule, whose options are explained."""
    _: KW_ONLY
    json: bool = False
    """Print a JSON list, and nothing else, on stdout."""


COMMAND = RulesCommand


class RuleRow(NamedTuple):
    """A listed rule; `carriers` are the built-in strategies that accept it."""

    name: str
    summary: str
    source: str
    carriers: tuple[str, ...]
    options: dict[str, object]


def rule_rows() -> list[RuleRow]:
    """Return all available rules."""
    rows: list[RuleRow] = []
    for name in rules.available():
        value = rules.PLUGINS.value(name)
        texts = paragraphs(value)
        source = re.search(r"Sources?: (.*)", " ".join(" ".join(texts).split()))
        rows.append(RuleRow(name, texts[0].splitlines()[0], source[1] if source else "", carriers(value), flat(value)))
    return rows


def carriers(rule: Rule) -> tuple[str, ...]:
    """Return the built-in strategies that accept the rule. Some rules need a canvas."""
    values = {name: strategies.PLUGINS.value(name) for name in strategies.own()}
    holders = {name: value for name, value in values.items() if "rule" in options_of(value)}
    return tuple(name for name, value in holders.items() if isinstance(value, Canvas) or not needs_canvas(rule))


def run(options: Namespace) -> int:
    """Print the list, or a rule."""
    if options.name is not None:
        return print_options(rules.PLUGINS, options)
    rows = rule_rows()
    if options.json:
        print(json_text([row._asdict() for row in rows]))
        return 0
    for row in rows:
        print_entry(row.name, f"for {', '.join(row.carriers)}", [row.summary, row.source], row.options)
    Console().print(Text("Use: dlstep generate PROMPT --decoding_strategy STRATEGY --rule NAME --OPTION VALUE", "dim"))
    return 0

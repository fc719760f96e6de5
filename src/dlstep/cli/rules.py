"""`dlstep rules`: list decoding rules, or explain one."""

import re
from dataclasses import KW_ONLY, dataclass

from .. import rules, strategies
from ..core import Json, Rule, needs_canvas, options_of
from ..engine.option_rows import paragraphs
from ..strategies._canvas import Canvas
from .options import Namespace
from .strategies import flat, print_rows

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


def rule_row(name: str) -> Json:
    """Return the facts of a rule; `carriers` are the built-in strategies that accept it."""
    value = rules.PLUGINS.value(name)
    texts = paragraphs(value)
    found = re.search(r"Sources?: (.*)", " ".join(" ".join(texts).split()))
    summary, source = texts[0].splitlines()[0], found[1] if found else ""
    return {"name": name, "summary": summary, "source": source, "carriers": carriers(value), "options": flat(value)}


def carriers(rule: Rule) -> tuple[str, ...]:
    """Return the built-in strategies that accept the rule. Some rules need a canvas."""
    values = {name: strategies.PLUGINS.value(name) for name in strategies.own()}
    holders = {name: value for name, value in values.items() if "rule" in options_of(value)}
    return tuple(name for name, value in holders.items() if isinstance(value, Canvas) or not needs_canvas(rule))


def run(options: Namespace) -> int:
    """Print the list, or a rule."""
    return print_rows(rules.PLUGINS, options, rule_row, "--decoding_strategy STRATEGY --rule NAME")

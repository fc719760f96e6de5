"""`dlstep laws`: the laws of the engine, held against one's own strategy or rule."""

from dataclasses import replace
from importlib.util import find_spec
from inspect import getdoc
from textwrap import indent
from typing import TYPE_CHECKING

from jsonargparse import ArgumentParser, Namespace
from rich.console import Console
from rich.status import Status

from .. import rules, strategies
from ..core import DlstepError, Rule, Spec, Strategy, options_of
from .json_text import json_text
from .options import new_parser

if TYPE_CHECKING:
    from ..testing.laws import Law

EXAMPLES = """
    dlstep laws my_strategy.py
    dlstep laws my_rule.py --examples 1000
    dlstep laws factor --only [progress,transparency]
"""
CARRIERS = ("multi_bd", "dual_cache")


def parser() -> ArgumentParser:
    """The options of `dlstep laws`."""
    options = new_parser(
        "dlstep laws NAME [options]",
        "Hold a strategy or a rule to the laws of the engine, on random requests, budgets and aborts. Needs no model.",
        EXAMPLES,
    )
    options.add_argument("name", type=str, help="A .py file, dotted path or name of a strategy or of a rule.")
    options.add_argument("--examples", type=int, default=100, help="Random cases for each law.")
    options.add_argument("--seed", type=int, default=0, help="Seed of the cases.")
    options.add_argument("--only", type=list[str] | str | None, default=None, help="Only these laws; null: all.")
    options.add_argument("--json", action="store_true", help="Print a JSON list of rows, and nothing else, on stdout.")
    return options


def run(options: Namespace) -> int:
    """Try every law; 0 if all hold, else 1."""
    if find_spec("hypothesis") is None:
        raise ValueError("dlstep laws needs hypothesis: pip install hypothesis")
    if options.examples < 1:
        raise ValueError(f"--examples must be at least 1, got {options.examples}")
    from ..testing.laws import LAWS, progress

    # What does not progress never ends, and no other law can tell more of it.
    known = {law.__name__: law for law in sorted(LAWS, key=lambda law: law is not progress)}
    only = [options.only] if isinstance(options.only, str) else options.only
    for name in only or []:
        if name not in known:
            raise ValueError(f"law {name!r} is unknown: choose from {', '.join(known)}")
    chosen = [name for name in known if only is None or name in only]
    console = Console(stderr=options.json)
    rows: list[dict[str, str]] = []
    for title, value in subjects(options.name):
        console.print(title, markup=False, highlight=False, soft_wrap=True)
        for name in chosen:
            summary = (getdoc(known[name]) or "").splitlines()[0]
            with Status(f"{name}: {summary}", console=Console(stderr=True)):
                failure = broken(known[name], value, options.examples, options.seed)
            console.print(f"  {'broken' if failure else 'holds '}  {name}", markup=False, highlight=False)
            if failure:
                console.print(indent(f"{summary}\n{failure}", " " * 10), markup=False, highlight=False, soft_wrap=True)
            rows.append({"subject": title, "law": name, "failure": failure})
            if failure and known[name] is progress:
                console.print("  the other laws are not tried: they would not end", markup=False, highlight=False)
                break
    if options.json:
        print(json_text(rows))
    return 1 if any(row["failure"] for row in rows) else 0


def subjects(name: str) -> list[tuple[str, Strategy]]:
    """The strategy of this name, or the rule of this name on each carrier that it goes with. Raises ValueError for neither."""
    try:
        return [(name, strategies.SHELF.value(name))]
    except ValueError as error:
        no_strategy = error
    try:
        rule = rules.SHELF.value(name)
    except ValueError as error:
        if "is unknown" not in str(error):
            raise error if "RULE" in str(no_strategy) else no_strategy from None
        known = f"strategies are {', '.join(strategies.SHELF.available())}; rules are {', '.join(rules.SHELF.available())}"
        raise ValueError(f"no strategy, rule, .py file or module is called {name!r}: {known}") from None
    found = [(f"{name} on {carrier}", carried(carrier, rule)) for carrier in CARRIERS]
    spec = Spec(mask_id=0, eos_ids=(1,), vocab_size=50)
    able = [(title, value) for title, value in found if not value.unfit(spec)]
    if not able:
        raise ValueError(f"rule {name} goes with none of {', '.join(CARRIERS)}: {found[0][1].unfit(spec)}")
    return able


def carried(carrier: str, rule: Rule) -> Strategy:
    """A strategy that holds `rule`."""
    base = strategies.SHELF.value(carrier)
    equal = {"cache": "none"} if "cache" in options_of(base) else {}
    return replace(base, rule=rule, **equal)  # pyright: ignore[reportCallIssue]


def broken(law: "Law", value: Strategy, examples: int, seed: int) -> str:
    """How `law` fails on strategies like `value`, with the smallest case that was found; empty if it holds."""
    from hypothesis import HealthCheck, given, seed as seeded, settings
    from hypothesis.strategies import DataObject, data as any_data

    @seeded(seed)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        report_multiple_bugs=False,
        suppress_health_check=(HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much),
    )
    @given(data=any_data())
    def tried(data: DataObject) -> None:
        law(value, data)

    try:
        tried()
    except (AssertionError, DlstepError) as error:
        return "\n".join([str(error) or "its assertion failed", *getattr(error, "__notes__", ())])
    return ""

"""The options, rules and example prompts of `/v1/options`, derived from dataclasses."""

from contextlib import suppress
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from ... import rules, tiny
from ...core import Options, Refusal, Request, SamplingParams, State, Strategy, options_of, with_options
from ...core.lifecycle import probe, refusal_by
from ...engine.option_rows import OptionRow, option_rows, paragraphs, parts_of
from ...rules import HOLDERS
from ...text.chat import template_of
from ...views.frames import name_of
from ..messages import Facts, description_of
from ..shapes import Choices, Example, OptionCard, OptionKind, RuleCard, StrategyCard

KINDS: dict[Any, OptionKind] = {bool: "boolean", int: "integer", float: "number", str: "text"}
OTHERS = (False, True, *range(1, 9), 16, 32, 64, 0.25, 0.5, 0.75, (1,), (0, 1))  # values that options are tried with
EXAMPLES = 4
PLAIN_EXAMPLES = (
    "Write a short poem about the sea.",
    "List three reasons to learn to cook, then three not to.",
    "def fibonacci(n):",
)


def choices_of(facts: Facts) -> Choices:
    """Return the body of `/v1/options`. Takes about a second."""
    config, strategy = facts.first.config, facts.first.strategy
    chats = template_of(facts.tokenizer, facts.chat_template) is not None
    held = options_of(strategy).get("rule")
    cards = [_rule(facts.first, name) for name in rules.own()] if held is not None else []
    own = [row for row in option_rows(strategy) if row.name not in HOLDERS]
    return Choices(
        model=facts.model,
        description=description_of(facts),
        chat=chats,
        max_model_len=config.max_model_len,
        mask=config.spec.mask_id,
        eos=list(config.spec.eos_ids),
        strategy=_part(facts.first, strategy, strategy, own),
        rule=name_of(held) if isinstance(held, Options) else None,
        rules=[card for card in cards if card is not None],
        examples=examples(embedded=tiny.is_embedded(facts.folder), chats=chats),
    )


def examples(*, embedded: bool, chats: bool) -> list[Example]:
    """Return example prompts: stories for the embedded models, else plain questions."""
    if embedded:
        stories = tiny.problems(EXAMPLES)
        return [Example(name=f"{story.prompt.split()[0]}'s story", prompt=story.prompt) for story in stories]
    if chats:
        return [Example(name=text, messages=[{"role": "user", "content": text}]) for text in PLAIN_EXAMPLES]
    return [Example(name=text, prompt=text) for text in PLAIN_EXAMPLES]


def _rule(first: State, name: str) -> RuleCard | None:
    """Return the card of a rule; None if the strategy does not accept it."""
    strategy, rule = first.strategy, rules.PLUGINS.value(name)
    held = options_of(strategy)["rule"]
    try:
        value = strategy if type(held) is type(rule) else with_options(strategy, {"rule": rule})
    except ValueError:
        return None
    spec = first.config.spec
    if value.refusal(spec, probe(spec)):
        return None
    reason = _refusal(first, value)
    rows = [
        row for part in parts_of(held if value is strategy else rule) for row in option_rows(part) if row.name not in HOLDERS
    ]
    return RuleCard(**_part(first, value, rule, rows), per_request=not reason, why=reason.message if reason else "")


def _part(first: State, value: Strategy, part: Options, rows: list[OptionRow]) -> StrategyCard:
    """Return the card of a strategy or rule (`part` of the strategy `value`), with its options."""
    known = options_of(value)
    doc = " ".join(paragraphs(part)[0].split())
    options = [_option(first, value, row, known[row.name]) for row in rows]
    return StrategyCard(name=name_of(part), doc=doc, options=options)


def _option(first: State, value: Strategy, row: OptionRow, now: Any) -> OptionCard:
    """Return the card of an option: its kind, range and current value."""
    optional = NoneType in get_args(row.hint)
    hint = next(part for part in get_args(row.hint) if part is not NoneType) if optional else row.hint
    limits = {bound: limit for bound, limit in row.limits if abs(limit) < float("inf")}
    choices = list(get_args(hint)) if get_origin(hint) is Literal else []
    return OptionCard(
        name=row.name,
        kind="choice" if choices else "integers" if get_origin(hint) is tuple else KINDS.get(hint, "text"),
        optional=optional,
        default=list(now) if isinstance(now, tuple) else now,
        least=limits.get("at least", limits.get("more than")),
        most=limits.get("at most", limits.get("less than")),
        open_least="more than" in limits,
        open_most="less than" in limits,
        choices=choices,
        doc=row.help,
        per_request=_changeable(first, value, row.name, [other for other in (*choices, *OTHERS) if other != now]),
    )


def _changeable(first: State, value: Strategy, name: str, others: list[object]) -> bool:
    """Return whether a request may change an option: whether the core accepts another value, or none fits the option."""
    reasons: list[Refusal | None] = []
    for other in others:
        with suppress(ValueError):  # not a value of this option, or excluded by the other options
            reasons.append(_refusal(first, with_options(value, {name: other})))
    return None in reasons or not reasons


def _refusal(first: State, value: Strategy) -> Refusal | None:
    """Return why a request cannot be decoded with strategy `value`; None if it can."""
    longest = Request(0, (0,), SamplingParams(max_tokens=first.config.max_model_len - 1))
    return refusal_by(value, first.config, first.strategy, longest)

"""Decoding rules against one another: accuracy and speed on the same problems, each rule over one of its own options."""

import json
import re
from collections.abc import Iterator, Sequence as Items
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from pathlib import Path
from typing import Any

from .. import rules, strategies, tiny
from ..core import Rule, SamplingParams, Strategy, init, options_of
from ..core.checks import short
from ..evaluate.metrics import Answers
from ..llm import LLM

CARRIERS = ("multi_bd", "dual_cache")  # one on a grid of blocks, one on a canvas
SHARES = (0.5, 0.7, 0.8, 0.9, 0.95)  # of an option up to 1, where its class says nothing else
FACTORS = (0.25, 0.5, 1, 2, 4)  # of another option's default
SENTENCE_ENDS = (". ", ".")  # in the stories of the embedded models
LARGEST_FILE = 1 << 26  # bytes
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Question:
    """A prompt, and the answer that an output must end with: its last number, if the answer is one, or else its last words."""

    prompt: str
    answer: str

    def is_right(self, text: str) -> bool:
        """Whether `text` ends with the answer."""
        expected = self.answer.strip().replace(",", "")
        if _NUMBER.fullmatch(expected):
            found = _NUMBER.findall(text.replace(",", ""))
            return bool(found) and float(found[-1]) == float(expected)
        return text.strip().rstrip(".").endswith(self.answer.strip().rstrip("."))


@dataclass(frozen=True, slots=True)
class Entry:
    """A rule on a carrier, and the option that it is compared over; without a name there is nothing to vary."""

    rule: str
    strategy: str
    value: Strategy
    option: str
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Point:
    """A rule with `option` at `value`: `right` is the share of right answers, `forwards` the mean number of an answer's.

    `tokens_per_forward` is a ratio of sums.
    """

    rule: str
    strategy: str
    model: str
    option: str
    value: Any
    problems: int
    right: float
    tokens_per_forward: float
    forwards: float


def story_questions(count: int, seed: int) -> list[Question]:
    """Held-out problems of the kind that the embedded models were made for."""
    return [Question(problem.prompt, str(problem.answer)) for problem in tiny.problems(count, seed)]


def read_questions(path: Path) -> list[Question]:
    """Questions of a JSON list, or of lines of JSON objects, with the fields `prompt` (or `question`) and `answer`.

    Of an answer with `####` only what is behind it counts. Raises ValueError naming the file and the entry that is none.
    """
    if not path.is_file():
        raise ValueError(f"no file of problems at {short(str(path))}: give JSON lines with a prompt and an answer")
    if path.stat().st_size > LARGEST_FILE:
        raise ValueError(f"{path} has more than {LARGEST_FILE} bytes: give fewer problems")
    try:
        text = path.read_text(encoding="utf-8").strip()
        lines = [line for line in text.splitlines() if line.strip()]
        entries = json.loads(text) if text.startswith("[") else [json.loads(line) for line in lines]
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} holds no JSON: {short(str(error))}") from error
    found: list[Question] = []
    for number, entry in enumerate(entries, 1):
        prompt = entry.get("prompt", entry.get("question")) if isinstance(entry, dict) else None
        answer = entry.get("answer") if isinstance(entry, dict) else None
        if not isinstance(prompt, str) or not isinstance(answer, str | int | float) or not str(answer).strip():
            raise ValueError(f"{path}, entry {number}: needs a text `prompt` and an `answer`, got {short(entry)}")
        found.append(Question(prompt, str(answer).rpartition("####")[2].strip()))
    if not found:
        raise ValueError(f"{path} holds no problem")
    return found


def sweep_of(rule: Rule) -> tuple[str, tuple[Any, ...]]:
    """The option that a rule is compared over, and its values: what its class says, or else steps around its first number."""
    if rule.SWEEP is not None:
        return rule.SWEEP
    for field in fields(rule):
        given = attrgetter(field.name)(rule)
        if type(given) in (int, float) and given:
            steps = SHARES if type(given) is float and 0 < given <= 1 else [type(given)(given * each) for each in FACTORS]
            return field.name, tuple(dict.fromkeys(step for step in steps if _takes(rule, field.name, step)))
    return "", (None,)


def _takes(rule: Rule, name: str, value: object) -> bool:
    try:
        replace(rule, **{name: value})
    except ValueError:
        return False
    return True


def entry_of(rule: str | Rule, strategy: Strategy) -> Entry:
    """A rule on a carrier. Raises ValueError for a strategy that holds no rule, or one that the rule does not go with."""
    name = strategies.SHELF.name_of(type(strategy)) or type(strategy).__name__
    if not isinstance(options_of(strategy).get("rule"), Rule):
        raise ValueError(f"strategy {name} holds no rule to be compared: choose from {', '.join(CARRIERS)}, d2f")
    given = rules.SHELF.value(rule)
    # A rule that looks at the whole answer reads nothing from stores, and rules are compared on equal terms.
    equal = {"cache": "none"} if "cache" in options_of(strategy) else {}
    value = replace(strategy, rule=given, **equal)  # pyright: ignore[reportCallIssue]
    return Entry(name_of(rule), name, value, *sweep_of(given))


def name_of(rule: str | Rule) -> str:
    """The name that a rule is given by; of a value, the name of its class."""
    return rule if isinstance(rule, str) else rules.SHELF.name_of(type(rule)) or type(rule).__name__


def entries(
    named: Items[str | Rule], carriers: Items[str] | None = None, model: str | None = None, device: str | None = None
) -> list[tuple[LLM, Entry]]:
    """Every rule on every carrier that it goes with, each with the model that it decodes.

    Without a model, these are the embedded ones; for them, defaults that suit large models only are changed (`fitted`).
    Raises ValueError for a rule that is given twice or goes with none of the carriers.
    """
    names = [name_of(rule) for rule in named]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(f"rule {short(twice)} is given twice: compare it once, or give one of the two its own class")
    asked = carriers or (CARRIERS if model is None else (None,))
    bases = [LLM(model, decoding_strategy=name, device=device) for name in asked]
    found: list[tuple[LLM, Entry]] = []
    for name, rule in zip(names, named, strict=True):
        reasons: list[str] = []
        given = rules.SHELF.value(rule)
        for base in bases:
            strategy = base.state.strategy
            suited = fitted(given, options_of(strategy).get("block_size")) if model is None or model in tiny.names() else given
            entry = replace(entry_of(suited, strategy), rule=name)
            try:
                first = init(base.state.config, entry.value)
            except ValueError as error:
                reasons.append(str(error))
            else:  # the network is loaded once for all rules
                found.append((LLM.of(replace(base.engine, first=first)), entry))
        if len(reasons) == len(bases):
            raise ValueError(f"rule {short(name)} goes with none of the strategies: {reasons[0]}")
    return found


def fitted(rule: Rule, block_size: Any) -> Rule:
    """The rule for an embedded model with blocks of `block_size`, None if it has none; only options at defaults are changed.

    Delimiters of another tokenizer become ends of sentences, and parts of an answer get the size of the blocks.
    """
    from ..tiny.tokenizer import VOCABULARY

    ends = tuple(VOCABULARY.index(end) for end in SENTENCE_ENDS)
    suited: dict[str, Any] = {"delimiters": ends} | ({"part_size": block_size} if block_size else {})
    given, usual = options_of(rule), options_of(rules.SHELF.value(type(rule)))
    changed = {name: option for name, option in suited.items() if name in given and given[name] == usual[name]}
    return replace(rule, **changed) if changed else rule


def measured(llm: LLM, entry: Entry, questions: Items[Question], max_tokens: int) -> Iterator[Point]:
    """The points of one line: all questions with all values of the option are decoded together."""
    grid = [{entry.option: value} if entry.option else {} for value in entry.values]
    params = [SamplingParams(max_tokens=max_tokens, strategy_options=tuple(options.items())) for options in grid]
    prompts = [question.prompt for question in questions] * len(params)
    outputs = llm.generate(prompts, [each for each in params for _ in questions], progress=False)
    for index, value in enumerate(entry.values):
        own = outputs[index * len(questions) : (index + 1) * len(questions)]
        if refused := next((output for output in own if output.finish_reason in ("rejected", "error")), None):
            raise ValueError(f"{entry.rule} on {entry.strategy}: {refused.error}")
        sums = Answers.total(
            Answers.counted(
                score=float(question.is_right(output.text)),
                tokens=len(output.token_ids),
                forwards=output.nfe,
                steps=output.steps,
            )
            for question, output in zip(questions, own, strict=True)
        )
        yield Point(
            entry.rule, entry.strategy, llm.engine.name, entry.option, value, sums.count,
            sums.accuracy, sums.tokens_per_forward, sums.forwards_per_answer,
        )  # fmt: skip

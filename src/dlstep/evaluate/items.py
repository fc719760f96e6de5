"""The requests of an evaluation, and the two tasks of this package: embedded stories and a file of questions."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from .. import tiny
from ..core import Json, SamplingParams, short
from ..engine.json_lines import Line, digest_of, parsed
from ..engine.loader import LoadedEngine
from ..text.chat import render, with_template
from .options import EvalOptions

SHELLS = 500  # problems of the embedded task
Key = tuple[str, int, str]  # task, number of the problem, options as JSON
_STRICT = re.compile(r"#### (\-?[0-9\.\,]+)")  # the first number after `#### ` counts
_FLEXIBLE = re.compile(r"(-?[$0-9.,]{2,})|(-?[0-9]+)")  # the last number counts, also in a word
_ONE_NUMBER = re.compile(r"-?(?:\d+(?:\.\d*)?|\.\d+)", re.ASCII)
LONGEST_FOUND = 200  # characters
Mapped = TypeVar("Mapped")


class OwnProblem(NamedTuple):
    """A problem of one of this package's tasks, and the expected answer."""

    prompt: str
    gold: str


class Item(NamedTuple):
    """A request: the problem `number` of a task, asked with some options of the strategy.

    `special` is False if the prompt contains its special tokens, as a rendered conversation does.
    `problem` is a digest of the problem, by which runs are compared.
    """

    task: str
    number: int
    prompt: str
    params: SamplingParams
    special: bool = True
    problem: str = ""
    gold: str = ""

    @property
    def key(self) -> Key:
        """The key of the item, unique in a run."""
        return self.task, self.number, options_text(dict(self.params.strategy_options))


def options_text(options: Json) -> str:
    """Return options as JSON; equal options give equal texts."""
    return json.dumps(options, sort_keys=True, default=repr)


def read_problems(options: EvalOptions) -> dict[str, list[OwnProblem]]:
    """Return the problems of this package's tasks. Raises ValueError if a file cannot be read."""
    found: dict[str, list[OwnProblem]] = {}
    for task in options.tasks:
        if task == "shells":
            stories = tiny.problems(options.dataset_limit or SHELLS, options.problem_seed)
            found[task] = [OwnProblem(story.prompt, str(story.answer)) for story in stories]
        elif task == "questions":
            found[task] = mapped_entries(Path(str(options.questions)), question)[: options.dataset_limit]
    return found


def read_entries(path: Path) -> list[Json]:
    """Return the entries of a JSON list or of JSON lines. Raises ValueError if there are none."""
    if not path.is_file():
        raise ValueError(f"there is no file of problems at {short(str(path))}")
    text = path.read_bytes().lstrip()
    if text.startswith(b"["):
        entries = parsed(text, path)
    else:
        lines = enumerate(text.splitlines(), 1)
        entries = [parsed(line, f"{path}, line {number}") for number, line in lines if line.strip()]
    if not isinstance(entries, list) or not entries or not all(isinstance(entry, dict) for entry in entries):
        raise ValueError(f"{path} must hold problems: a JSON list, or a JSON object on each line")
    return entries


def mapped_entries(path: Path, mapped: Callable[[Json], Mapped]) -> list[Mapped]:
    """Return `mapped(entry)` for each entry of a file; `mapped` raises KeyError with the name of an invalid field.

    Raises ValueError with the number of an invalid entry.
    """
    found: list[Mapped] = []
    for number, entry in enumerate(read_entries(path), 1):
        try:
            found.append(mapped(entry))
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            place = f"{path.name}, entry {number}"
            raise ValueError(f"{place} is not a problem of this task, look at {error}: {short(entry)}") from error
    return found


def question(entry: Json) -> OwnProblem:
    """Return an entry as a problem of the task `questions`. Raises KeyError with the name of an invalid field."""
    prompt, answer = entry.get("prompt", entry.get("question")), entry.get("answer")
    gold = str(answer).rpartition("####")[2].strip()  # of an answer as in GSM8K, the text after the last mark
    if not isinstance(prompt, str) or not prompt.strip():
        raise KeyError("prompt")
    if type(answer) not in (str, int, float) or not gold.rstrip("."):
        raise KeyError("answer")
    return OwnProblem(prompt, gold)


def evaluation_items(engine: LoadedEngine, options: EvalOptions, problems: Mapping[str, Sequence[OwnProblem]]) -> list[Item]:
    """Return all requests: for each task all problems with the first options, then the next."""
    return [
        Item(task, number, prompt_of(engine, problem) if options.chat else problem.prompt, options.params(task, chosen),
             not options.chat, digest_of(repr(tuple(problem)).encode()), problem.gold)
        for task, of_task in problems.items() for chosen in options.grid for number, problem in enumerate(of_task)
    ]  # fmt: skip


def prompt_of(engine: LoadedEngine, problem: OwnProblem) -> str:
    """Return a conversation with the problem as a user's turn. Raises ValueError if there is no chat template."""
    tokenizer, template = with_template(engine.tokenizer, engine.chat_template)
    return render(tokenizer, template, [{"role": "user", "content": problem.prompt}])


def scored(item: Item, row: Line) -> Line:
    """Return the line of scores of an answer to one of this package's tasks.

    Numbers are extracted and compared by the two rules of lm_eval's gsm8k; without an expected
    number, the end of the text counts.
    """
    text, gold = row["answer"], item.gold
    key = {name: row[name] for name in ("task", "document", "options")} | {"problem": item.problem, "gold": gold}
    if not _ONE_NUMBER.fullmatch(gold.replace(",", "")):
        found = text.strip().rstrip(".")[-len(gold.rstrip(".")) :]
        scores = {"ending": float(found == gold.rstrip("."))}
    else:
        marked = _STRICT.search(text)
        found = ([match[0].strip() for match in _FLEXIBLE.finditer(text)] or [""])[-1]
        scores = {"flexible-extract": float(bool(found) and plain_number(found) == plain_number(gold))}
        if item.task != "shells":
            scores["strict-match"] = float(marked is not None and plain_number(marked[1]) == plain_number(gold))
    note = "" if found else "no answer"
    return key | {"found": found[:LONGEST_FOUND], "note": note, "scores": scores, "score": next(iter(scores.values()))}


def plain_number(text: str) -> str:
    """Return a number without what lm_eval ignores: `,`, `$`, a last dot."""
    return text.replace(",", "").replace("$", "").removesuffix(".").lower()

"""Problems of the tasks: embedded ones, JSON files of `--data`, and a file of questions."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from hashlib import blake2b
from pathlib import Path
from random import Random
from typing import Any

from .. import tiny
from ..core.checks import short
from ..engine.json_lines import is_a, parsed

LARGEST_FILE = 1 << 26  # bytes
SHELLS = 500  # problems of the embedded task
TRAINING = "GSM8K_train.json"
SHOT_SEED = 1234  # lm_eval's default
_CALL = re.compile(r"^check\((\w+)\)\s*$", re.MULTILINE)
_DEFINED = re.compile(r"^\s*def\s+(\w+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Document:
    """One problem. `gold` is its answer or a program with the answer, `tests` check code.

    `code` is the beginning of a program that an answer continues, `entry` the function that the
    answer must define. `examples` are worked examples for the prompt; their `gold` is a whole
    answer.
    """

    number: int
    question: str
    gold: str
    tests: tuple[str, ...] = ()
    code: str = ""
    entry: str = ""
    examples: "tuple[Document, ...]" = ()


def text_of(entry: Mapping[str, Any], name: str) -> str:
    """Return a field that must hold text. Raises KeyError if it does not."""
    value = entry[name]
    if not isinstance(value, str) or not value.strip():
        raise KeyError(name)
    return value


def texts_of(entry: Mapping[str, Any], name: str, default: Any = None) -> tuple[str, ...]:
    """Return a list of texts, not empty without a default. Raises KeyError for another value."""
    value = entry.get(name, default)
    if not is_a(value, [str]) or (not value and default is None):
        raise KeyError(name)
    return tuple(value)


def with_answer(entry: Mapping[str, Any], number: int) -> Document:
    """Return a question with its expected answer."""
    return Document(number, text_of(entry, "question"), text_of(entry, "ground_truth_answer"))


def with_code(entry: Mapping[str, Any], number: int) -> Document:
    """Return a function to complete, with the tests that call it."""
    question, tests = text_of(entry, "question"), texts_of(entry, "test_list")
    _, _, code = question.partition("You need to complete this code:\n")
    code = code.rstrip("\n") + "\n" if code else ""
    called = _CALL.findall(tests[-1])
    if not code or not called:
        raise KeyError("test_list" if code else "question")
    return Document(number, question, "", tests, code, called[-1])


def with_asserts(entry: Mapping[str, Any], number: int) -> Document:
    """Return the description of a function, with the asserts that the function must pass."""
    tests, gold = texts_of(entry, "test_list"), text_of(entry, "code")
    imports = texts_of(entry, "test_imports", [])
    named = [name for name in _DEFINED.findall(gold) if any(f"{name}(" in test for test in tests)]
    if not named:
        raise KeyError("test_list")
    return Document(number, text_of(entry, "prompt"), gold, (*imports, *tests), entry=named[-1])


def with_prompt(entry: Mapping[str, Any], number: int) -> Document:
    """Return a prompt of the user; of an answer with `####`, the text after the last one counts."""
    question = text_of(entry, "prompt" if "prompt" in entry else "question")
    gold = str(entry["answer"]).rpartition("####")[2].strip()
    if not is_a(entry["answer"], (str, float)) or not gold.rstrip("."):
        raise KeyError("answer")
    return Document(number, question, gold)


# By task: the file in the folder of `--data` (empty: another source), and how an entry is read.
SOURCES: dict[str, tuple[str, Callable[[Mapping[str, Any], int], Document]]] = {
    "shells": ("", with_answer),
    "gsm8k": ("GSM8K.json", with_answer),
    "math500": ("MATH500.json", with_answer),
    "humaneval": ("HumanEval.json", with_code),
    "mbpp": ("MBPP_sanitized.json", with_asserts),
    "questions": ("", with_prompt),
}


def documents_of(
    task: str, data: Path | None, limit: int | None, *, seed: int = 0, questions: Path | None = None
) -> list[Document]:
    """Return the first `limit` problems of a task (None: all); `seed` draws embedded ones.

    Raises ValueError that names the file and the invalid entry.
    """
    if task == "shells":
        stories = tiny.problems(SHELLS if limit is None else limit, seed)
        return [Document(number, story.prompt, str(story.answer)) for number, story in enumerate(stories)]
    name, read = SOURCES[task]
    if name and data is None:
        raise ValueError(f"task {task} reads {name}: give --data, the folder with it")
    path = data / name if name and data is not None else questions
    assert path is not None, "the options have checked that the task has its file"
    if name and not path.is_file():
        raise ValueError(f"task {task} reads {name}, but --data {short(str(data))} has no such file")
    documents: list[Document] = []
    for number, entry in enumerate(entries_of(path)[:limit]):
        try:
            documents.append(read(entry, number))
        except (KeyError, TypeError) as error:
            raise ValueError(
                f"{path.name}, entry {number + 1} is not a problem of {task}, look at {error}: {short(entry)}"
            ) from error
    return documents


def entries_of(path: Path) -> list[Mapping[str, Any]]:
    """Return the entries of a JSON list or of JSON lines. Raises ValueError if there are none."""
    if not path.is_file():
        raise ValueError(f"there is no file of problems at {short(str(path))}")
    if path.stat().st_size > LARGEST_FILE:
        raise ValueError(f"{path} has more than {LARGEST_FILE} bytes: give fewer problems")
    text = path.read_bytes().lstrip()
    if text.startswith(b"["):
        entries = parsed(text, path)
    else:
        lines = enumerate(text.splitlines(), 1)
        entries = [parsed(line, f"{path}, line {number}") for number, line in lines if line.strip()]
    if not is_a(entries, [dict]) or not entries:
        raise ValueError(f"{path} must hold problems: a JSON list, or a JSON object on each line")
    return entries


def digest(documents: list[Document]) -> str:
    """Return a digest of the problems."""
    return blake2b(repr(documents).encode(), digest_size=8).hexdigest()


@cache
def worked(prompts: str, task: str) -> tuple[Document, ...]:
    """Return the embedded worked examples of a task: this package's or those of lm_eval's task."""
    listed = json.loads(Path(__file__).with_name("worked.json").read_text(encoding="utf-8"))
    examples = listed[prompts].get(task, listed["dlstep"]["shells"] if task == "shells" else ())
    values = [{"question": "", **example, "tests": tuple(example.get("tests", ()))} for example in examples]
    return tuple([Document(number, **value) for number, value in enumerate(values)])


def with_examples(documents: list[Document], task: str, prompts: str, shots: int, data: Path | None) -> list[Document]:
    """Return the documents with `shots` examples each. Raises ValueError for fewer."""
    if not shots:
        return documents
    if (prompts, task) == ("lm_eval", "gsm8k"):
        return drawn(documents, shots, data)
    return [replace(document, examples=worked(prompts, task)[:shots]) for document in documents]


def drawn(documents: list[Document], shots: int, data: Path | None) -> list[Document]:
    """Return the documents with examples drawn from the training split in lm_eval's order.

    Raises ValueError for a folder without the file of this split or with too few examples in it.
    """
    if data is None or not (path := data / TRAINING).is_file():
        raise ValueError(
            f"--prompts lm_eval draws {shots} worked examples from {TRAINING}, but --data {short(str(data))} has no such file: "
            "put the training split of GSM8K there (question and answer), or choose --shots 0"
        )
    entries = entries_of(path)
    try:
        split = [Document(number, text_of(each, "question"), text_of(each, "answer")) for number, each in enumerate(entries)]
    except KeyError as error:
        raise ValueError(f"{TRAINING} must have a question and an answer in each entry, look at {error}") from error
    if shots > len(split):
        raise ValueError(f"EvalOptions.shots must be at most {len(split)}, the examples of {TRAINING}, got {shots}")
    source, last = Random(SHOT_SEED), max(document.number for document in documents)
    samples = [tuple(source.sample(split, shots)) for _ in range(last + 1)]
    return [replace(document, examples=samples[document.number]) for document in documents]

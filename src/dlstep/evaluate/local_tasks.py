"""Data sets of lm-eval's tasks, read from JSON files in a local folder; the folder `tasks` names them.

lm_eval calls the functions with the task's metadata, in which `data` is the folder:
`dlstep-lm-eval run --tasks local_gsm8k --include_path .../dlstep/evaluate/tasks --metadata '{"data": "FOLDER"}'`.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from datasets import Dataset  # pyright: ignore[reportMissingImports]

from ..core import Json, short
from .items import mapped_entries

CALL = re.compile(r"^check\((\w+)\)\s*$", re.MULTILINE)
CODE = "You need to complete this code:\n"
Entry = Json


def read(data: str | None, name: str, mapped: Callable[[Entry], Json]) -> Dataset:
    """Return the entries of a file as lm_eval's documents. Raises ValueError for a missing file or an invalid entry."""
    if data is None or not (path := Path(data) / name).is_file():
        raise ValueError(f"this task reads {name}, but --data {short(data)} has no such file")
    return Dataset.from_list(mapped_entries(path, mapped))


def gsm8k(data: str | None = None, **metadata: Any) -> dict[str, Dataset]:
    """Return GSM8K. Without a file of the training split, there are no worked examples to draw."""
    test = read(data, "GSM8K.json", lambda entry: {"question": entry["question"], "answer": entry["ground_truth_answer"]})
    train = "GSM8K_train.json"
    if data is None or not (Path(data) / train).is_file():
        return {"test": test, "train": test.select([])}
    return {"test": test, "train": read(data, train, lambda entry: {name: entry[name] for name in ("question", "answer")})}


def math500(data: str | None = None, **metadata: Any) -> dict[str, Dataset]:
    """Return MATH-500, each expected answer in a box, as lm_eval finds it in a worked solution."""

    def mapped(entry: Entry) -> Json:
        gold = entry["ground_truth_answer"]
        return {"problem": entry["question"], "solution": f"\\boxed{{{gold}}}", "answer": gold}

    return {"test": read(data, "MATH500.json", mapped)}


def humaneval(data: str | None = None, **metadata: Any) -> dict[str, Dataset]:
    """Return HumanEval: the code to complete, and the tests without the call that starts them."""

    def mapped(entry: Entry) -> Json:
        tests = entry["test_list"][-1]
        prompt, called = entry["question"].partition(CODE)[2], CALL.findall(tests)
        if not prompt or not called:
            raise KeyError("test_list" if prompt else "question")
        return {"prompt": prompt.rstrip("\n") + "\n", "test": CALL.sub("", tests), "entry_point": called[-1]}

    return {"test": read(data, "HumanEval.json", mapped)}


def mbpp(data: str | None = None, **metadata: Any) -> dict[str, Dataset]:
    """Return the sanitized MBPP."""

    def mapped(entry: Entry) -> Json:
        own = {name: entry[name] for name in ("code", "test_list", "test_imports")}
        if len(own["test_list"]) < 3:
            raise KeyError("test_list")
        return {"text": entry["prompt"], **own}

    return {"test": read(data, "MBPP_sanitized.json", mapped)}


def mbpp_target(document: Entry) -> str:
    """Return the solution for a worked example, as lm_eval's task does; otherwise all tests after their imports."""
    return f"{document['code']}\n[DONE]" if "is_fewshot" in document else tests_of(document)


def mbpp_instruct_target(document: Entry) -> str:
    """Return the same as `mbpp_target`, but end a worked example like a turn of a conversation."""
    return f"{document['code']}\n```" if "is_fewshot" in document else tests_of(document)


def tests_of(document: Entry) -> str:
    """Return the program that tests an answer."""
    return "\n".join([*document["test_imports"], *document["test_list"]])

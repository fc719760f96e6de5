"""Scores of answers by the published rules of lm_eval 0.4. `docs/evaluation.md` has the rules and the few differences.

An answer gets one score for each reading of its task; the first reading is the one that figures are made of.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from .documents import Document
from .jail import Jail
from .maths import Maths
from .programs import harness_program, program_of

LONGEST_FOUND = 200  # characters
INVALID = "[invalid]"  # lm_eval's word for an answer in which nothing was found
READINGS = {
    "shells": ("flexible-extract",),
    "gsm8k": ("flexible-extract", "strict-match"),
    "questions": ("flexible-extract", "strict-match"),
    "math500": ("math_verify", "exact_match"),
    "humaneval": ("any-form", "lm_eval"),
    "mbpp": ("any-form", "lm_eval"),
}
_STRICT = re.compile(r"#### (\-?[0-9\.\,]+)")
_FLEXIBLE = re.compile(r"(-?[$0-9.,]{2,})|(-?[0-9]+)")
_ONE_NUMBER = re.compile(r"-?(?:\d+(?:\.\d*)?|\.\d+)", re.ASCII)
_LAST_STOP = re.compile(r"\.$")


@dataclass(frozen=True, slots=True)
class Mark:
    """The scores of an answer by reading, 0 or 1, the answer that was found in the text, and why it has no score, if so."""

    scores: Mapping[str, float] = field(default_factory=dict)
    found: str = ""
    note: str = ""

    @property
    def score(self) -> float:
        """The score by the first reading; 0 for an answer that was rejected or failed."""
        return next(iter(self.scores.values()), 0.0)


def strict_match(text: str) -> str:
    """The first number behind `#### `."""
    found = _STRICT.search(text)
    return found[1].strip() if found else INVALID


def flexible_extract(text: str) -> str:
    """The last number of a text, digits of words included."""
    last = ""
    for found in _FLEXIBLE.finditer(text):
        last = found[0]
    return last.strip() or INVALID


def plain_number(text: str) -> str:
    """A number without what lm_eval's `exact_match` ignores: commas, dollars, all before `#### `, a full stop at the end."""
    return _LAST_STOP.sub("", text.replace(",", "").replace("$", "").rpartition("#### ")[2]).lower()


def number_mark(task: str, document: Document, text: str) -> Mark:
    """Right if the number that is read is the expected one, digit by digit."""
    found = {"flexible-extract": flexible_extract(text), "strict-match": strict_match(text)}
    gold = plain_number(document.gold)
    scores = {reading: float(plain_number(found[reading]) == gold) for reading in READINGS[task]}
    number = found["flexible-extract"]
    return Mark(scores, "", "no number") if number == INVALID else Mark(scores, number[:LONGEST_FOUND])


def ending_mark(document: Document, text: str) -> Mark:
    """Right if the number is the expected one, or where no number is expected, if the text ends with the answer."""
    if _ONE_NUMBER.fullmatch(document.gold.replace(",", "")):
        return number_mark("questions", document, text)
    expected, said = document.gold.rstrip("."), text.strip().rstrip(".")
    return Mark({"ending": float(said.endswith(expected))}, said[-len(expected) :][-LONGEST_FOUND:])


def maths_mark(document: Document, text: str, maths: Maths) -> Mark:
    """Right if the text means the expected answer, by math-verify and by the rule of Minerva."""
    verdicts = {reading: maths.equal(reading, document.gold, text) for reading in READINGS["math500"]}
    scores = {reading: float(equal) for reading, (equal, _, _) in verdicts.items()}
    _, read, note = verdicts["math_verify"]
    return Mark(scores, read[:LONGEST_FOUND], note or verdicts["exact_match"][2] or ("" if read else "no answer"))


def code_mark(task: str, document: Document, text: str, jail: Jail | None, *, chat: bool = False) -> Mark:
    """Right if a program passes every test in a jail: the one that lm_eval would run, or in any form the one that is meant.

    `chat` chooses lm_eval's instruct task. Without a jail nothing is run and nothing is right.
    """
    program = program_of(task, document, text)
    if jail is None:
        return Mark(dict.fromkeys(READINGS[task], 0.0), program, "not run")
    theirs = harness_program(task, document, text, chat=chat)
    verdicts = {theirs: jail.run([theirs, *document.tests])}
    if verdicts[theirs] != "passed" and program not in verdicts:
        verdicts[program] = jail.run([program, *document.tests])
    counted = theirs if verdicts[theirs] == "passed" else program
    scores = {"any-form": float(verdicts[counted] == "passed"), "lm_eval": float(verdicts[theirs] == "passed")}
    return Mark(scores, counted, verdicts[counted])

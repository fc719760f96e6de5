"""Scores of answers by the published rules of lm_eval 0.4. `docs/evaluation.md` lists the rules and the few differences.

An answer gets one score for each reading of its task; the score by the first reading is its accuracy.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from .documents import Document
from .jail import Jail
from .maths import Maths
from .programs import harness_program, program_of

LONGEST_FOUND = 200  # characters
INVALID = "[invalid]"  # what lm_eval extracts from a text without a match
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
    """The scores of an answer by reading, 0 or 1, the answer that was found in the text, and a note if something failed."""

    scores: Mapping[str, float] = field(default_factory=dict)
    found: str = ""
    note: str = ""

    @property
    def score(self) -> float:
        """The score by the first reading; 0 for an answer that was rejected or failed."""
        return next(iter(self.scores.values()), 0.0)


def strict_match(text: str) -> str:
    """Return the first number after `#### `."""
    found = _STRICT.search(text)
    return found[1].strip() if found else INVALID


def flexible_extract(text: str) -> str:
    """Return the last number in a text; digits that are part of a word also count."""
    last = ""
    for found in _FLEXIBLE.finditer(text):
        last = found[0]
    return last.strip() or INVALID


def plain_number(text: str) -> str:
    """Return a number without what lm_eval's `exact_match` ignores: commas, `$`, text up to `#### `, a final full stop."""
    return _LAST_STOP.sub("", text.replace(",", "").replace("$", "").rpartition("#### ")[2]).lower()


def number_mark(task: str, document: Document, text: str) -> Mark:
    """Score an answer as right if its number equals the expected one, character by character."""
    found = {"flexible-extract": flexible_extract(text), "strict-match": strict_match(text)}
    gold = plain_number(document.gold)
    scores = {reading: float(plain_number(found[reading]) == gold) for reading in READINGS[task]}
    number = found["flexible-extract"]
    return Mark(scores, "", "no number") if number == INVALID else Mark(scores, number[:LONGEST_FOUND])


def ending_mark(document: Document, text: str) -> Mark:
    """Score an answer by its number; if the expected answer is not a number, by whether the text ends with it."""
    if _ONE_NUMBER.fullmatch(document.gold.replace(",", "")):
        return number_mark("questions", document, text)
    expected, said = document.gold.rstrip("."), text.strip().rstrip(".")
    return Mark({"ending": float(said.endswith(expected))}, said[-len(expected) :][-LONGEST_FOUND:])


def maths_mark(document: Document, text: str, maths: Maths) -> Mark:
    """Score an answer by math-verify and by Minerva's rule."""
    verdicts = {reading: maths.equal(reading, document.gold, text) for reading in READINGS["math500"]}
    scores = {reading: float(equal) for reading, (equal, _, _) in verdicts.items()}
    _, read, note = verdicts["math_verify"]
    return Mark(scores, read[:LONGEST_FOUND], note or verdicts["exact_match"][2] or ("" if read else "no answer"))


def code_mark(task: str, document: Document, text: str, jail: Jail | None, *, chat: bool = False) -> Mark:
    """Score an answer as right if a program passes every test in a jail: the one that lm_eval runs, or the intended one.

    `chat` selects lm_eval's instruct task. Without a jail, no program is run and every score is 0.
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

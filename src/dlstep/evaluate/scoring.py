"""Scores of answers: what is taken as the answer of a text, and whether it is right. `docs/evaluation.md` has the rules."""

import re
from dataclasses import dataclass
from fractions import Fraction

from .documents import Document
from .jail import Jail
from .maths import Maths
from .programs import program_of

LONGEST_NUMBER = 100  # characters
LONGEST_FOUND = 200
_SIGNS = str.maketrans({"\u2212": "-", "\u2013": "-", "\u00a0": " ", "\u202f": " ", "\u2009": " "})
_FRACTION = re.compile(r"(-?)\s*\\[dt]?frac\s*\{\s*(-?\d+)\s*\}\s*\{\s*(\d+)\s*\}", re.ASCII)
_SHORT_FRACTION = re.compile(r"\\[dt]?frac\s*(\d)\s*(\d)", re.ASCII)
_NUMBER = re.compile(
    r"(?<![\w.])(?:-?\$?|\$-)(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?(?:\s?/\s?\d+(?![\d.]))?|(?<!\w)-?\.\d+", re.ASCII
)
_BOX, _BRACE = re.compile(r"\\f?box(?:ed)?\s*\{"), re.compile(r"(?<!\\)[{}]")
_ONE_NUMBER = re.compile(r"-?(?:\d+(?:\.\d*)?|\.\d+)", re.ASCII)
_DIGITS = re.compile(r"\d+", re.ASCII)
_MARKED = re.compile(r"####\s*(.*)")


@dataclass(frozen=True, slots=True)
class Mark:
    """A score from 0 to 1, the answer that was found in the text, and how a program ended or why nothing was compared."""

    score: float
    found: str
    note: str = ""


def last_box(text: str) -> str | None:
    r"""The content of the last `\boxed{...}` of a text, nested braces included; None where there is none that closes."""
    starts = {found.end() for found in _BOX.finditer(text)}
    opened: list[int] = []
    last: tuple[int, int] | None = None
    for found in _BRACE.finditer(text):
        place = found.start()
        if text[place] == "{":
            opened.append(place + 1)
        elif opened:
            start = opened.pop()
            if start in starts and (last is None or start > last[0]):
                last = start, place
    return None if last is None else text[last[0] : last[1]].strip()


def numbers_in(text: str) -> list[Fraction]:
    """The numbers of a text from left to right, as humans and LaTeX write them."""
    plain = text.translate(_SIGNS).replace("{,}", ",").replace("\\$", "$").replace("\\!", "").replace("\\,", "")
    plain = _SHORT_FRACTION.sub(r"\1/\2", _FRACTION.sub(lambda found: f" {found[1]}{found[2]}/{found[3]} ", plain))
    found: list[Fraction] = []
    for written in _NUMBER.findall(plain):
        digits = re.sub(r"[,$\s]", "", written)
        if len(digits) <= LONGEST_NUMBER:
            over, _, under = digits.partition("/")
            found += [Fraction(over) / int(under or 1)] if int(under or 1) else []
    return found


def final_number(text: str) -> Fraction | None:
    r"""The number that a text gives as its answer: in the last `\boxed{}`, else behind the last `####`, else its last one."""
    box = last_box(text)
    if box is not None:
        return (numbers_in(box) or [None])[-1]
    marked = _MARKED.findall(text)
    found = numbers_in(marked[-1])[:1] if marked else numbers_in(text)[-1:]
    return found[0] if found else None


def shown(number: Fraction | None) -> str:
    """A number as text; empty where there is none."""
    if number is None:
        return ""
    tenths = float(number)
    return str(number) if number.denominator == 1 or Fraction(repr(tenths)) != number else repr(tenths)


def number_mark(document: Document, text: str) -> Mark:
    """Right if the final number equals the expected one."""
    found, expected = final_number(text), final_number(document.gold)
    return Mark(float(found is not None and found == expected), shown(found), "" if found is not None else "no number")


def digits_mark(document: Document, text: str) -> Mark:
    """Right if the last digits of the text are the expected ones, as `dlstep.tiny.score` says."""
    found = _DIGITS.findall(text)
    return Mark(float(found[-1] == document.gold), found[-1][:LONGEST_FOUND]) if found else Mark(0.0, "", "no number")


def ending_mark(document: Document, text: str) -> Mark:
    """Right if the final number equals the expected one, or where no number is expected, if the text ends with the answer."""
    if _ONE_NUMBER.fullmatch(document.gold.replace(",", "")):
        return number_mark(document, text)
    expected, said = document.gold.rstrip("."), text.strip().rstrip(".")
    return Mark(float(said.endswith(expected)), said[-len(expected) :][-LONGEST_FOUND:])


def maths_mark(document: Document, text: str, maths: Maths) -> Mark:
    r"""Right if the last `\boxed{}`, or the last formula or number without one, means the same as the expected answer."""
    box = last_box(text)
    found = text[-2000:] if box is None else box
    if box is not None and alike(box) == alike(document.gold):
        return Mark(1.0, box[:LONGEST_FOUND])
    if not found.strip():
        return Mark(0.0, "", "no answer")
    equal, read, note = maths.equal(document.gold, found, boxed=box is not None)
    return Mark(float(equal), (read if box is None else box)[:LONGEST_FOUND], note)


def alike(formula: str) -> str:
    """A formula without what changes only how it looks."""
    plain = re.sub(r"\\(?:left|right|!|,|;|:|quad|qquad|displaystyle)(?![a-zA-Z])", "", formula)
    plain = re.sub(
        r"\\(?:text|mbox|textbf|mathrm)\s*\{([^{}]*)\}", r"\1", plain.replace("dfrac", "frac").replace("tfrac", "frac")
    )
    return re.sub(r"[\s$]|(?<=\d)\{,\}|\.$", "", plain).rstrip(".")


def code_mark(task: str, document: Document, text: str, jail: Jail | None) -> Mark:
    """Right if the program passes every test in a jail; without one nothing is run and nothing is right."""
    program = program_of(task, document, text)
    if jail is None:
        return Mark(0.0, program, "not run")
    verdict = jail.run([program, *document.tests])
    return Mark(float(verdict == "passed"), program, verdict)

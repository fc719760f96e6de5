"""Scores of answers by the rules of lm_eval 0.4; `docs/evaluation.md` lists the differences.

An answer gets one score for each reading of its task; the score by the first reading is its
accuracy. A program is extracted from an answer as lm_eval does it, and for every usual form of an
answer.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from textwrap import dedent

from .documents import Document
from .jail import Jail
from .maths import equal

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
_STRICT = re.compile(r"#### (\-?[0-9\.\,]+)")  # the first number after `#### ` counts
_FLEXIBLE = re.compile(r"(-?[$0-9.,]{2,})|(-?[0-9]+)")  # the last number counts, also in a word
_ONE_NUMBER = re.compile(r"-?(?:\d+(?:\.\d*)?|\.\d+)", re.ASCII)
_LAST_STOP = re.compile(r"\.$")


@dataclass(frozen=True, slots=True)
class Mark:
    """The scores of an answer by reading, 0 or 1, the answer that was found, and a failure note."""

    scores: Mapping[str, float] = field(default_factory=dict)
    found: str = ""
    note: str = ""

    @property
    def score(self) -> float:
        """The score by the first reading; 0 for an answer that was rejected or failed."""
        return next(iter(self.scores.values()), 0.0)


def plain_number(text: str) -> str:
    """Return a number without what lm_eval ignores: `,`, `$`, text up to `####`, a last dot."""
    return _LAST_STOP.sub("", text.replace(",", "").replace("$", "").rpartition("#### ")[2]).lower()


def number_mark(task: str, document: Document, text: str) -> Mark:
    """Score an answer as right if its number equals the expected one, character by character."""
    numbers, marked = [found[0].strip() for found in _FLEXIBLE.finditer(text)], _STRICT.search(text)
    found = {"flexible-extract": (numbers or [INVALID])[-1], "strict-match": marked[1].strip() if marked else INVALID}
    gold = plain_number(document.gold)
    scores = {reading: float(plain_number(found[reading]) == gold) for reading in READINGS[task]}
    number = found["flexible-extract"]
    return Mark(scores, "", "no number") if number == INVALID else Mark(scores, number[:LONGEST_FOUND])


def ending_mark(document: Document, text: str) -> Mark:
    """Score an answer by its number, or without an expected number by how the text ends."""
    if _ONE_NUMBER.fullmatch(document.gold.replace(",", "")):
        return number_mark("questions", document, text)
    expected, answer = document.gold.rstrip("."), text.strip().rstrip(".")
    return Mark({"ending": float(answer.endswith(expected))}, answer[-len(expected) :][-LONGEST_FOUND:])


def maths_mark(document: Document, text: str) -> Mark:
    """Score an answer by math-verify and by Minerva's rule."""
    verdicts = {reading: equal(reading, document.gold, text) for reading in READINGS["math500"]}
    scores = {reading: float(verdict[0]) for reading, verdict in verdicts.items()}
    _, read, note = verdicts["math_verify"]
    return Mark(scores, read[:LONGEST_FOUND], note or verdicts["exact_match"][2] or ("" if read else "no answer"))


def code_mark(task: str, document: Document, text: str, jail: Jail | None, *, chat: bool = False) -> Mark:
    """Score an answer by running lm_eval's program and the intended one against every test.

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


_FENCE = re.compile(r"([ \t]*)(`{3,}|~{3,})[ \t]*(\w*)[^\n]*")
_QUOTES = re.compile(r"'''|\"\"\"")
_BOUND = re.compile(r"^(?:async\s+def|def|class|import)\s+(\w+)|^from\s+\S+\s+import\s+(.+)|^(\w+)\s*(?::[^=\n]*)?=(?!=)", re.M)
_WORD = re.compile(r"\w+")
PYTHON = ("", "python", "py", "python3")


def harness_program(task: str, document: Document, text: str, *, chat: bool) -> str:
    """Return the program that lm_eval runs for humaneval and mbpp (`chat`: instruct variants)."""
    if task == "humaneval":
        return document.code + (text.partition("```")[0] if chat else text)
    if not chat:
        return text
    first, fence, _ = f"```{text}"[3:].partition("```")  # the prompt has opened a block
    return re.sub(r"^\w*\n?", "", first, count=1).removesuffix("\n") if fence else ""


def program_of(task: str, document: Document, text: str) -> str:
    """Return the program that an answer intends, in any form.

    Of the blocks between fences, the last that defines the function counts, or else the first
    block. Blocks that define names used in it precede it. For `humaneval`, an answer that defines
    the function follows the given beginning and may use its helpers and imports; any other answer
    is the body of the function.
    """
    blocks = blocks_of(text, document)
    fitting = [block for block in blocks if defines(block, document.entry)]
    main = (fitting or blocks[:1] or [text])[-1]
    used, own = set(_WORD.findall(main)), bound_by(main)
    helpers = [block for block in blocks if block not in fitting and block != main and (bound_by(block) - own) & used]
    if task != "humaneval":
        return "\n".join([*helpers, main])
    beginning = document.code.rstrip("\n") + "\n"
    if fitting or defines(main, document.entry):
        return "\n".join([f"{beginning}\n", *helpers, main])
    return "\n".join([*helpers, beginning + as_body(main)])


def defines(code: str, name: str) -> bool:
    """Return whether code defines a function of this name at its outermost level."""
    return bool(name) and re.search(rf"^(?:async )?def {re.escape(name)}\b", code, re.MULTILINE) is not None


def bound_by(code: str) -> set[str]:
    """Return the names of functions, classes, imports and assignments at the outermost level."""
    return {name for found in _BOUND.findall(code) for name in _WORD.findall(",".join(found))}


def blocks_of(text: str, document: Document) -> list[str]:
    """Return the blocks of Python in a text, without their indentation.

    A fence inside a docstring is ignored. Text before the first fence is also a block if it defines
    the function or continues a body, because the prompt may have opened the block. The last block
    need not be closed.
    """
    blocks: list[str] = []
    opened = ("", "", "python")  # indentation, fence and language of the open block
    lines: list[str] = []
    begun = False
    for line, fence in chain(fenced(text), ((None, None),)):
        closes = fence is not None and _closes(fence, *opened[:2])
        if line is not None and not closes and (fence is None or opened[1]):
            lines.append(line)
            continue
        if (block := block_in(lines, opened, document, begun=begun, alone=line is None)) is not None:
            blocks.append(block)
        # A first fence without a language ends a block that the prompt opened.
        continues = not begun and fence is not None and not fence[3] and bool(blocks)
        opened = ("", "", "") if closes or continues or fence is None else (fence[1], fence[2], fence[3].lower())
        lines, begun = [], True
    return blocks


def _closes(fence: re.Match[str], indent: str, mark: str) -> bool:
    """Return whether a fence ends the block that was opened by `mark` behind `indent`."""
    return bool(mark) and not fence[3] and fence[2].startswith(mark) and len(fence[1]) <= len(indent)


def fenced(text: str) -> Iterator[tuple[str, re.Match[str] | None]]:
    """Yield each line with the match of its fence; None outside fences and inside docstrings."""
    quote = ""
    for line in text.splitlines():
        fence = None if quote else _FENCE.fullmatch(line)
        yield line, fence
        for found in [] if fence else _QUOTES.findall(line):
            quote = "" if found == quote else quote or found


def block_in(lines: Sequence[str], opened: tuple[str, str, str], document: Document, *, begun: bool, alone: bool) -> str | None:
    """Return the code between two fences, None for others; `begun` is false before the first."""
    _, mark, language = opened
    code = "\n".join(lines)
    if begun:
        return dedent(code) if mark and language in PYTHON else None
    if defines(dedent(code), document.entry):
        return dedent(code)
    continues = not alone and code.strip() != "" and code.lstrip("\n").startswith((" ", "\t"))
    return code if continues else None


def as_body(code: str) -> str:
    """Return code indented by four, even if only the first line lacks its indentation."""
    lines = code.splitlines()
    first = next((line for line in lines if line.strip()), "")
    indent = len(first) - len(first.lstrip(" "))
    if indent == 4 or not first:
        return code
    second = next((line for line in lines[lines.index(first) + 1 :] if line.strip()), "")
    # Only the first line lacks its indentation if the second is deeper without a reason.
    deeper = " " * (8 if first.rstrip().endswith(":") else 4)
    continued = first.rstrip().endswith(("(", "[", "{", ",", "\\"))
    if indent == 0 and second.startswith(deeper) and not continued:
        return code.replace(first, f"    {first}", 1)
    return "\n".join(" " * 4 + line[indent:] if line.strip() and not line[:indent].strip() else line for line in lines)

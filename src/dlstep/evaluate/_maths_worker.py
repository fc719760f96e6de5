"""The process that compares mathematical answers, by the two metrics of lm_eval's minerva_math500.

Its parent process kills it if a comparison takes too long. The time limits of lm_eval only interrupt Python code, not a single
operation such as a huge power.
"""

import logging
import os
import re
from contextlib import suppress
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

MEMORY = 2 << 30  # bytes
LONGEST = 200  # characters of what was read
FINAL = re.compile(r"Final Answer: The final answer is(.*?). I hope it is correct.")
# The normal form of an answer: appendix D of arXiv 2206.14858, with the corrections of lm_eval 0.4.13.
SUBSTITUTIONS = (
    ("an ", ""), ("a ", ""), (".$", "$"), ("\\$", ""), (r"\ ", ""), (" ", ""), ("mbox", "text"), (",\\text{and}", ","),
    ("\\text{and}", ","), ("\\text{m}", "\\text{}"),
)  # fmt: skip
REMOVED = (
    "square", "ways", "integers", "dollars", "mph", "inches", "ft", "hours", "km", "units", "\\ldots", "sue", "points", "feet",
    "minutes", "digits", "cents", "degrees", "cm", "gm", "pounds", "meters", "meals", "edges", "students", "childrentickets",
    "multiples", "\\text{s}", "\\text{.}", "\\text{\ns}", "\\text{}^2", "\\text{}^3", "\\text{\n}", "\\text{}", r"\mathrm{th}",
    r"^\circ", r"^{\circ}", r"\;", r",\!", "{,}", '"', "\\dots",
)  # fmt: skip
REWRITTEN = (
    (r"(.*?)(\$)(.*?)(\$)(.*)", "$\\3$"),
    (r"(\\text\{)(.*?)(\})", "\\2"),
    (r"(\\textbf\{)(.*?)(\})", "\\2"),
    (r"(\\overline\{)(.*?)(\})", "\\2"),
    (r"(\\boxed\{)(.*)(\})", "\\2"),
    (r"(frac)([^{])(.)", "frac{\\2}{\\3}"),
    (r"(sqrt)(\[[^\]]*\])(\w)", "\\1\\2{\\3}"),
    (r"(sqrt)(?!\[)([^{])", "sqrt{\\2}"),
)


def normal(answer: str) -> str:
    """Return the normal form of an answer: equal answers often have equal normal forms."""
    answer = answer.split("=")[-1]
    for word in filter(str.isalpha, REMOVED):
        answer = re.sub(rf"(?<!\\)\b{word}\b", "", answer)
    for before, after in SUBSTITUTIONS:
        answer = answer.replace(before, after)
    for removed in REMOVED:
        if removed.isalpha():  # not inside a command: `\left` ends with the unit `ft`
            parts = re.split(r"(\\[a-zA-Z]+)", answer)
            answer = "".join(part if number % 2 else part.replace(removed, "") for number, part in enumerate(parts))
        else:
            answer = answer.replace(removed, "")
    for pattern, written in REWRITTEN:
        answer = re.sub(pattern, written, answer)
    answer = answer.replace("$", "")
    return answer.replace(",", "") if re.fullmatch(r"-?\d{1,3}(,\d{3})+", answer) else answer


def exact_match(gold: str, text: str) -> tuple[bool, str]:
    """Return whether the answer in the sentence that Minerva's prompts ask for is the expected one, and this answer."""
    found = FINAL.search(f"{text}I hope it is correct.")
    if found is None:
        return False, ""
    read, expected = normal(found[1].strip()), normal(gold)
    if read and read == expected:
        return True, read
    from sympy import simplify
    from sympy.parsing.latex import parse_latex

    try:
        formulas: Any = parse_latex(read), parse_latex(expected)
        return bool(simplify(formulas[0] - formulas[1]) == 0), read
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - the boundary to sympy, which may raise any exception: lm_eval scores 0 then, too
        return False, read


def math_verify(gold: str, text: str) -> tuple[bool, str]:
    """Return whether math-verify extracts the expected answer from the text, and what it extracts."""
    from math_verify import parse, verify

    no_limit: Any = None  # see above
    expected, read = (parse(each, parsing_timeout=no_limit) for each in (f"\\boxed{{{gold}}}", text))
    return bool(read) and bool(verify(expected, read, timeout_seconds=no_limit)), str(read[-1]) if read else ""


RULES = {"exact_match": exact_match, "math_verify": math_verify}


def compared(job: dict[str, str]) -> dict[str, object]:
    """Return whether the text of a job contains its expected answer, and what was extracted from the text."""
    equal, read = RULES[job["rule"]](job["gold"], job["text"])
    return {"equal": equal, "read": read[:LONGEST]}


def _limit_memory() -> None:
    """Limit the memory of this process, so that a huge formula raises an error. Windows only has the time limit."""
    if find_spec("resource") is not None:
        import resource

        statm = Path("/proc/self/statm")  # this process also uses the memory of what the parent's script imported
        begun = int(statm.read_text().split()[0]) * resource.getpagesize() if statm.exists() else 0
        resource.setrlimit(resource.RLIMIT_AS, (begun + MEMORY, begun + MEMORY))


def answer_jobs(connection: Connection) -> None:
    """Answer every job until the connection closes, and discard what libraries print."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for file in (1, 2):
        os.dup2(nowhere, file)
    logging.disable(logging.CRITICAL)
    _limit_memory()
    with suppress(EOFError):
        while True:
            connection.send(compared(connection.recv()))

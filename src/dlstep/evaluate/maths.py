"""Comparison of mathematical answers by the two metrics of lm_eval's minerva_math500.

An answer can hang the libraries or exhaust memory, so a separate process compares answers and is
killed if a comparison takes too long. The time limits of lm_eval only interrupt Python code, not a
single operation such as a huge power.
"""

import re
from typing import Any

from ..text.limited_worker import LimitedWorker, NotStartedError

LONGEST = 10_000  # characters at the end of an answer that are read
MEMORY = 2 << 30  # bytes
LONGEST_READ = 200  # characters of what was read
FINAL = re.compile(r"Final Answer: The final answer is(.*?). I hope it is correct.")
# The normal form of an answer: appendix D of arXiv 2206.14858, with the corrections of lm_eval
# 0.4.13.
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
    (r"(.*?)(\$)(.*?)(\$)(.*)", "$\\3$"), (r"(\\text\{)(.*?)(\})", "\\2"), (r"(\\textbf\{)(.*?)(\})", "\\2"),
    (r"(\\overline\{)(.*?)(\})", "\\2"), (r"(\\boxed\{)(.*)(\})", "\\2"), (r"(frac)([^{])(.)", "frac{\\2}{\\3}"),
    (r"(sqrt)(\[[^\]]*\])(\w)", "\\1\\2{\\3}"), (r"(sqrt)(?!\[)([^{])", "sqrt{\\2}"),
)  # fmt: skip


# The worker starts with the first comparison, and ends with this process at the latest.
WORKER = LimitedWorker(10.0, MEMORY, f"{__name__}:load")


def equal(rule: str, gold: str, text: str) -> tuple[bool, str, str]:
    """Return whether a text contains the answer, what was extracted, and a note on failure.

    `rule` is a metric of lm_eval's minerva_math500: `math_verify` or `exact_match`. Raises
    ValueError if the process does not start.
    """
    try:
        found = WORKER.ask(f"{__name__}:compare", rule, gold, text[-LONGEST:])
    except NotStartedError:
        raise
    except ValueError as error:
        return False, "", f"not compared: {error}"
    return found["equal"], found["read"], ""


def load() -> dict[str, Any]:
    """Load the libraries of all metrics, as the first job of the worker."""
    for rule in RULES:
        compare(rule, "1", "Final Answer: The final answer is 2. ")
    return {}


def compare(rule: str, gold: str, text: str) -> dict[str, Any]:
    """Compare an answer by a metric, as a job of the worker."""
    equal, read = RULES[rule](gold, text)
    return {"equal": equal, "read": read[:LONGEST_READ]}


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
    """Return whether the answer in the sentence of Minerva's prompts is right, and the answer."""
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
    except Exception:  # noqa: BLE001 - sympy may raise any exception: lm_eval scores 0 then, too
        return False, read


def math_verify(gold: str, text: str) -> tuple[bool, str]:
    """Return whether math-verify extracts the expected answer, and what it extracts."""
    from math_verify import parse, verify

    no_limit: Any = None  # this process is killed instead
    expected, read = (parse(each, parsing_timeout=no_limit) for each in (f"\\boxed{{{gold}}}", text))
    return bool(read) and bool(verify(expected, read, timeout_seconds=no_limit)), str(read[-1]) if read else ""


RULES = {"exact_match": exact_match, "math_verify": math_verify}

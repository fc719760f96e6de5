"""Right programs for the tasks of code, and the usual forms of an answer that they come in."""

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from textwrap import indent

from dlstep.evaluate.documents import Document

Wrap = Callable[[str], str]


@cache
def solutions() -> dict[int, str]:
    """A body for each function of HumanEval by number, written for these tests."""
    text = Path(__file__).with_name("humaneval_solutions.txt").read_text(encoding="utf-8")
    found = re.findall(r"^## (\d+)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return {int(number): body for number, body in found}


def whole(document: Document, task: str) -> str:
    """A right program: for humaneval the given beginning with a body."""
    return document.gold.replace("\r\n", "\n") + "\n" if task == "mbpp" else document.code + solutions()[document.number]


def with_docstring(program: str, entry: str) -> str:
    """A program whose function begins with a docstring that has fences of its own."""
    head = re.compile(rf"^(def {entry}\b.*?:[ \t]*\n)([ \t]+)", re.MULTILINE | re.DOTALL)
    noted = r'\1\2r"""Notes.\n\2```\n\2run()\n\2```\n\n```python\nprint(1)\n```\n\2"""\n\2'
    return head.sub(noted, program, count=1)


def with_helper(program: str, entry: str) -> str:
    """A function that calls a helper, which stands in a block of its own before it."""
    renamed = re.sub(rf"(?<![.\w]){entry}\b", f"{entry}_inner", program)
    return f"First a helper:\n```python\n{renamed}```\nNow the function:\n```python\n{calling(entry)}```\n"


def calling(entry: str) -> str:
    """A function that calls its helper."""
    return f"def {entry}(*given, **named):\n    return {entry}_inner(*given, **named)\n"


def helper_last(program: str, entry: str) -> str:
    """The same with the helper behind the function."""
    renamed = re.sub(rf"(?<![.\w]){entry}\b", f"{entry}_inner", program)
    return f"```python\n{calling(entry)}```\nIts helper is\n\n```py\n{renamed}```\n"


WHOLE: dict[str, Callable[[str, str], str]] = {
    "plain": lambda program, entry: program,
    "fenced": lambda program, entry: f"Here it is:\n\n```python\n{program}```\nIt loops once.",
    "fenced without a language": lambda program, entry: f"```\n{program}```",
    "fenced by tildes": lambda program, entry: f"Here:\n~~~python\n{program}~~~\nDone.",
    "fenced and indented": lambda program, entry: (
        "1. Do this:\n\n" + indent(f"```python\n{program}```", "   ") + "\n\n2. Enjoy."
    ),
    "fenced in Windows lines": lambda program, entry: f"```python\n{program}```\n".replace("\n", "\r\n"),
    "indented": lambda program, entry: indent(program, "    "),
    "not closed": lambda program, entry: f"```python\n{program}",
    "closed only": lambda program, entry: f"{program}```\nThis is right because of arithmetic.",
    "with a helper of its own": with_helper,
    "with a helper behind it": helper_last,
    "with an example": lambda program, entry: (
        f"```python\n{program}```\nTry it:\n```python\nprint({entry}(2))\n```\n```bash\nls\n```"
    ),
    "with a wrong try": lambda program, entry: f"```python\ndef {entry}(*_):\n    return 0\n```\nNo:\n```python\n{program}```",
    "with fences in its docstring": with_docstring,
    "fenced, with fences in its docstring": lambda program, entry: (
        f"So:\n```python\n{with_docstring(program, entry)}```\nDone."
    ),
}
BODY: dict[str, Wrap] = {
    "body": lambda body: body,
    "body with a blank line": lambda body: f"\n{body}",
    "body and a closing fence": lambda body: f"{body}```",
    "body, a closing fence and words": lambda body: f"{body}```\n\nThis works:\n\n```python\nprint(1)\n```\n",
    "body between fences": lambda body: f"```python\n{body}```",
    "body that lost its first blanks": lambda body: body.lstrip(" "),
    "body at the margin": lambda body: re.sub("^    ", "", body, flags=re.MULTILINE),
    "body with tildes": lambda body: f"~~~\n{body}~~~\n",
    "body with fences in a docstring": lambda body: f'    """Notes.\n    ```\n    run()\n    ```\n    """\n{body}',
}

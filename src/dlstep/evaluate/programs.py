"""Programs out of answers: code in fences, or text that goes on with the beginning of a program."""

import re

from .documents import Document

_FENCED = re.compile(r"^[ \t]*```[ \t]*(\w*)[^\n]*\n(.*?)(?:^[ \t]*```|\Z)", re.MULTILINE | re.DOTALL)


def blocks_of(text: str) -> list[str]:
    """The blocks of code in a text, those of other languages left out; the last one need not be closed."""
    return [body for language, body in _FENCED.findall(text) if language.lower() in ("", "python", "py", "python3")]


def defines(code: str, name: str) -> bool:
    """Whether code has a function of this name at its outermost level."""
    return bool(name) and re.search(rf"^(?:async )?def {re.escape(name)}\b", code, re.MULTILINE) is not None


def code_of(text: str, entry: str) -> str:
    """The code of an answer: the last block that defines the function, else the last block, else all of the text."""
    blocks = blocks_of(text)
    fitting = [block for block in blocks if defines(block, entry)]
    return (fitting or blocks or [text])[-1]


def program_of(task: str, document: Document, text: str) -> str:
    """The program that is tested.

    For `humaneval`, an answer that defines the function stands behind the beginning that was given, whose helpers and imports
    it may use; any other answer continues it.
    """
    code = code_of(text, document.entry)
    if task != "humaneval":
        return code
    beginning = document.code.rstrip("\n") + "\n"
    return f"{beginning}\n\n{code}" if defines(code, document.entry) else f"{beginning}{code}"

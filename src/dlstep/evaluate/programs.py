"""Programs out of answers: as lm_eval cuts them, and in every usual form of an answer."""

import re
from textwrap import dedent

from .documents import Document

_FENCE = re.compile(r"([ \t]*)(`{3,}|~{3,})[ \t]*(\w*)[^\n]*")
_QUOTES = re.compile(r"'''|\"\"\"")
_BOUND = re.compile(r"^(?:async\s+def|def|class|import)\s+(\w+)|^from\s+\S+\s+import\s+(.+)|^(\w+)\s*(?::[^=\n]*)?=(?!=)", re.M)
_WORD = re.compile(r"\w+")
PYTHON = ("", "python", "py", "python3")


def harness_program(task: str, document: Document, text: str, *, chat: bool) -> str:
    """The program that lm_eval runs, of its tasks humaneval and mbpp, or with `chat` of their instruct forms."""
    if task == "humaneval":
        return document.code + (text.partition("```")[0] if chat else text)
    if not chat:
        return text
    first, fence, _ = f"```{text}"[3:].partition("```")  # the prompt has opened a block
    return re.sub(r"^\w*\n?", "", first, count=1).removesuffix("\n") if fence else ""


def program_of(task: str, document: Document, text: str) -> str:
    """The program that an answer means, whatever its form.

    Of blocks between fences, the last that defines the function counts, else the first one; blocks that define names which it
    uses stand before it. For `humaneval` the given beginning stands before an answer that defines the function, whose helpers
    and imports it may use; any other answer is the body of the function.
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
    """Whether code has a function of this name at its outermost level."""
    return bool(name) and re.search(rf"^(?:async )?def {re.escape(name)}\b", code, re.MULTILINE) is not None


def bound_by(code: str) -> set[str]:
    """The names that code binds at its outermost level: functions, classes, imports and assignments."""
    return {name for found in _BOUND.findall(code) for name in _WORD.findall(",".join(found))}


def blocks_of(text: str, document: Document) -> list[str]:
    """The blocks of Python in a text, without their indentation.

    A fence inside a docstring opens and closes nothing. What comes before the first fence is a block, too, if it defines the
    function, or goes on with a body: then a prompt has opened it. The last block need not be closed.
    """
    blocks: list[str] = []
    opened = ("", "", "python")  # indentation, fence and language of the block that is open; before any fence, maybe one
    lines: list[str] = []
    quote, begun = "", False
    for line in [*text.splitlines(), None]:
        fence = None if line is None or quote else _FENCE.fullmatch(line)
        indent, mark, language = opened
        closes = fence is not None and mark and not fence[3] and fence[2].startswith(mark) and len(fence[1]) <= len(indent)
        if line is None or closes or (fence is not None and not mark):
            code = dedent("\n".join(lines)) if indent or begun else "\n".join(lines)
            if (begun and mark and language in PYTHON) or (not begun and is_code(code, document, alone=line is None)):
                blocks.append(code if mark or not defines(dedent(code), document.entry) else dedent(code))
            continues = not begun and fence is not None and not fence[3] and bool(blocks)
            opened = ("", "", "") if closes or continues or fence is None else (fence[1], fence[2], fence[3].lower())
            lines, begun = [], True
            continue
        lines.append(line)
        for found in _QUOTES.findall(line):
            quote = "" if found == quote else quote or found
    return blocks


def is_code(text: str, document: Document, *, alone: bool) -> bool:
    """Whether text before any fence is code: it defines the function or, unless it is all of the answer, begins indented."""
    return defines(dedent(text), document.entry) or (
        not alone and text.strip() != "" and text.lstrip("\n").startswith((" ", "\t"))
    )


def as_body(code: str) -> str:
    """Code as the body of a function: indented by four, also where its first line alone has lost its indentation."""
    lines = code.splitlines()
    first = next((line for line in lines if line.strip()), "")
    given = len(first) - len(first.lstrip(" "))
    later = [line for line in lines[lines.index(first) + 1 :] if line.strip()] if first else []
    if given == 4 or not first:
        return code
    deeper = " " * (8 if first.rstrip().endswith(":") else 4)
    if given == 0 and later and later[0].startswith(deeper) and not first.rstrip().endswith(("(", "[", "{", ",", "\\")):
        return code.replace(first, f"    {first}", 1)
    return "\n".join(" " * 4 + line[given:] if line.strip() and not line[:given].strip() else line for line in lines)

"""The messages that docs/troubleshooting.md explains are messages of the sources."""

import ast
import re
from functools import cache

import pytest

from .blocks import ROOT, tokens_of

CODE = re.compile(r"`([^`]+)`")
FEWEST = 20  # letters of a message; less is the name of something
ANYTHING = "\0"


@cache
def messages():
    """Return the texts of the sources, one to a line, with a mark for each part that is put in."""
    found = []
    for path in sorted((ROOT / "src" / "dlstep").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value.replace("\n", " "))
            elif isinstance(node, ast.JoinedStr):
                parts = (part.value if isinstance(part, ast.Constant) else ANYTHING for part in node.values)
                found.append("".join(str(part) for part in parts).replace("\n", " "))
    return "\n".join(found)


def quoted():
    """Return the messages in the first column of the tables."""
    found = []
    first = False
    for token in tokens_of(ROOT / "docs" / "troubleshooting.md"):
        if token.type == "tr_open":
            first = True
        elif token.type == "inline" and first:
            first = False
            found += [code for code in CODE.findall(token.content) if len(re.sub(r"\W", "", code)) >= FEWEST]
    return found


@pytest.mark.parametrize("message", quoted())
def test_a_message_is_one_of_the_sources(message):
    parts = [re.escape(part) for part in message.strip(". ").split("...")]
    assert re.search("[^\n]*?".join(parts), messages()), "no text of the sources reads like this"

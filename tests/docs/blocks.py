"""Code blocks of the README and of the pages of docs/, as Markdown has them."""

import re
from dataclasses import dataclass, replace
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
MARKDOWN = MarkdownIt("commonmark").enable("table")
SAVED = re.compile(r"\b[Ss]ave (?:this|it) as\s+`([\w.]+)`:\s*$")
NOTE = re.compile(r"<!--\s*(not run|slow):\s*(\S.*?)\s*-->\s*", re.DOTALL)
# Directives of MyST that hold code; all others, such as `{toctree}`, lay out a page.
CODE_DIRECTIVES = ("{code", "{code-block}", "{code-cell}", "{sourcecode}", "{literalinclude}")


@dataclass(frozen=True, slots=True)
class Block:
    """A code block of a page.

    `file` is the name under which the text above says to save it, `printed` the block `text` right behind it, and `note`
    the comment right above: `not run` or `slow`.
    """

    page: str
    line: int
    language: str
    text: str
    file: str | None = None
    printed: str | None = None
    note: str = ""

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


def page_name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name


def tokens_of(path: Path) -> list[Token]:
    return MARKDOWN.parse(path.read_text())


def blocks_of(path: Path) -> list[Block]:
    """Return the code blocks of a page in their order; a block `text` right behind another one belongs to that one."""
    found: list[Block] = []
    tokens = tokens_of(path)
    for index, token in enumerate(tokens):
        language = token.info.strip()
        if token.type not in ("fence", "code_block") or (language.startswith("{") and not language.startswith(CODE_DIRECTIVES)):
            continue
        before = tokens[max(index - 3, 0) : index]
        if language == "text" and before and before[-1].type == "fence" and found and found[-1].printed is None:
            found.append(replace(found.pop(), printed=token.content))
            continue
        note = NOTE.fullmatch(before[-1].content) if before and before[-1].type == "html_block" else None
        paragraph = [one for one in before if one.type == "inline"] if before and before[-1].type == "paragraph_close" else []
        file = SAVED.search(paragraph[-1].content) if paragraph else None
        line = (token.map or [0])[0] + 1
        kind, name = language if token.type == "fence" else "indented", file[1] if file else None
        found.append(Block(page_name(path), line, kind, token.content, name, note=note[1] if note else ""))
    return found


def lines(text: str) -> list[str]:
    """Return the lines without blanks at their ends, empty lines around them, and measured times and rates."""
    return (
        "\n".join(re.sub(r" +[\d.]+ (tok/)?s$", r" # \1s", line.rstrip()) for line in text.splitlines())
        .strip("\n")
        .splitlines()
    )


def is_printed(printed: str, output: str) -> bool:
    """Return whether an output is the one that a page shows; a line of three dots there stands for any lines."""
    pattern = "".join("(?:.*\n)*?" if line == "..." else f"{re.escape(line)}\n" for line in lines(printed))
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in lines(output))) is not None

"""Every relative link and anchor of the README, the pages, the notebooks and the other Markdown files leads somewhere."""

import json
import re
from functools import cache
from itertools import pairwise
from urllib.parse import unquote

import pytest

from .blocks import MARKDOWN, PAGES, ROOT, page_name

FILES = [*PAGES, ROOT / "CHANGELOG.md", *sorted((ROOT / "notebooks").glob("*.ipynb"))]
HTML = re.compile(r"""<(?:a|img|source|video)\b[^>]*?\b(?:href|src|srcset|poster)=["']([^"'\s]+)""")
ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)  # https:, mailto:, data:
MOVED = re.compile(r"[^\w\- ]")


@cache
def text_of(path):
    text = path.read_text()
    if path.suffix != ".ipynb":
        return text
    return "\n\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown")


@cache
def anchors(path):
    """Return the anchors of a page: its headings, as a code host and MyST write them, and `id`s of its HTML."""
    found = set(re.findall(r"""\bid=["']([^"']+)""", text_of(path)))
    tokens = MARKDOWN.parse(text_of(path))
    for opening, inline in pairwise(tokens):
        if opening.type == "heading_open":
            shown = "".join(child.content for child in inline.children or [] if child.type in ("text", "code_inline"))
            slug = MOVED.sub("", shown.strip().lower()).replace(" ", "-")
            number = 0
            while (name := f"{slug}-{number}" if number else slug) in found:
                number += 1
            found.add(name)
    return found


def links(path):
    found = []
    for token in MARKDOWN.parse(text_of(path)):
        for each in [token, *(token.children or [])]:
            if each.type in ("link_open", "image"):
                found.append(str(each.attrs.get("href") or each.attrs.get("src")))
            elif each.type in ("html_inline", "html_block"):
                found += HTML.findall(each.content)
    return [link for link in found if not ELSEWHERE.match(link)]


def fault(path, link):
    """Return what is wrong with a link; None if it leads somewhere."""
    file, _, anchor = unquote(link).partition("#")
    target = (path.parent / file).resolve() if file else path
    if not target.exists():
        return "there is no such file"
    if not target.is_relative_to(ROOT):
        return "it leaves the repository"
    if anchor and target.suffix == ".md" and anchor not in anchors(target):
        return f"its headings are {', '.join(sorted(anchors(target)))}"
    return None


@pytest.mark.parametrize("path", FILES, ids=page_name)
def test_relative_links_lead_somewhere(path):
    faults = {link: problem for link in links(path) if (problem := fault(path, link))}
    assert not faults

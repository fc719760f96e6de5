"""Self-contained pages: single HTML files with scripts, styles and data, which work offline.

The policy of a page lists the hashes of its scripts and styles, so it runs no others.
"""

import json
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import Any

from .observations import Picture

FOLDER = Path(__file__).parents[1] / "serve" / "page"
# import { a, b } from "./x.js";  or  import * as a from "./x.js";
IMPORT = re.compile(r'^import (?:\{([^}]*)\}|\* as (\w+)) from "\./([\w-]+\.js)";\n', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async )?(?:function\*? |class |const )(\w+))", re.MULTILINE)
ENTRY = "app.js"
LINKED = re.compile(r'<link rel="stylesheet"[^>]*>\n|<script type="module"[^>]*></script>\n')
# The page fetches nothing; icons, pictures and saved files are data URLs or blobs.
POLICY = "default-src 'none'; script-src {script}; style-src {style}; img-src data: blob:; base-uri 'none'; form-action 'none'"


def page_of(recording: dict[str, Any], pictures: Iterable[Picture] = ()) -> str:
    """Return the HTML of the live page with a recording, which opens without a server.

    Args:
        recording: What `recording` returned, or the page saved.
        pictures: Pictures of observations, to show below the decode.

    Raises:
        ValueError: JSON cannot represent the recording.
    """
    script, style = f"\n{bundle(ENTRY)}", f"\n{source('shared.css')}{source('style.css')}"
    html = LINKED.sub("", (FOLDER / "index.html").read_text("utf-8"))
    head, body = html.split('<meta charset="utf-8">\n')
    body, end = body.split("</body>")
    for picture in pictures:  # in a box that scrolls horizontally, also by keyboard
        label, data = escape(picture.title), b64encode(picture._repr_svg_().encode()).decode()
        image = f'<img src="data:image/svg+xml;base64,{data}" alt="{label}">'
        body += f'<div class="picture card" role="region" tabindex="0" aria-label="{label}">{image}</div>\n'
    top = "\n".join((f'{head}<meta charset="utf-8">', *head_of([script], style), body))
    data = f'<script type="application/json" id="recording">{data_text(recording)}</script>'
    return f"{top}{data}\n{_module(script)}</body>{end}"


def head_of(scripts: list[str], style: str) -> tuple[str, ...]:
    """Return the head's elements: the policy for these scripts and the style, and the style."""
    policy = POLICY.format(script=" ".join(map(_hash, scripts)) or "'none'", style=_hash(style))
    return (
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="referrer" content="no-referrer">',
        f"<style>{style}</style>",
    )


def data_text(data: object) -> str:
    """Return data as JSON without `<`. It is ASCII: old JavaScript treats U+2028 as a line end."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _module(script: str) -> str:
    return f'<script type="module">{script}</script>\n'


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def bundle(entry: str) -> str:
    """Return a JavaScript module and its imports as one script, which needs no server.

    Each module becomes a function that returns its exports, in dependency order. The sources use
    only the two forms of import that `IMPORT` matches.
    """
    return "".join(_wrapped(name) for name in _in_order(entry, []))


def _in_order(name: str, seen: list[str]) -> Iterator[str]:
    """Yield the names of a module and its transitive imports, dependencies first."""
    if name in seen:
        return
    seen.append(name)
    for _, _, imported in IMPORT.findall(source(name)):
        yield from _in_order(imported, seen)
    yield name


def source(name: str) -> str:
    """Return the text of a file of the page."""
    return (FOLDER / name).read_text("utf-8")


def _wrapped(name: str) -> str:
    text = source(name)
    exports = EXPORT.findall(text)
    body = EXPORT.sub("", IMPORT.sub(lambda match: f"const {_names(match)} = {_variable(match[3])};\n", text))
    return f"const {_variable(name)} = (() => {{\n{body}return {{ {', '.join(exports)} }};\n}})();\n"


def _names(match: re.Match[str]) -> str:
    """Return the left side of the assignment that replaces an import."""
    return match[2] or f"{{{match[1].replace(' as ', ': ')}}}"


def _variable(name: str) -> str:
    return f"module_{name.removesuffix('.js').replace('-', '_')}"

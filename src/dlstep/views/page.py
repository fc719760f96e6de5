"""The live page as one file: its modules, its style and a recording in it, so that it opens from a disk or a mail.

No network is reached and nothing but these very scripts and styles runs: a policy in the page names their hashes. Modules are
wrapped in functions, in the order of their imports, which the sources write in two forms only (`IMPORT`).
"""

import json
import re
from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "page"
ENTRY = "app.js"
# import { a, b } from "./x.js";  or  import * as a from "./x.js";
IMPORT = re.compile(r'^import (?:\{([^}]*)\}|\* as (\w+)) from "\./([\w-]+\.js)";\n', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async )?(?:function\*? |class |const )(\w+))", re.MULTILINE)
LINKED = re.compile(r'<link rel="stylesheet"[^>]*>\n|<script type="module"[^>]*></script>\n')
# Nothing is fetched; an icon and saved files are data.
POLICY = (
    "default-src 'none'; script-src '{script}'; style-src '{style}'; img-src data: blob:; base-uri 'none'; form-action 'none'"
)


def page_of(recording: dict[str, Any]) -> str:
    """The HTML of the live page with a recording in it. Raises ValueError for a recording that JSON cannot hold."""
    # No tag can begin in the data, and what JavaScript once took for line ends is escaped by `ensure_ascii`.
    data = json.dumps(recording, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    script, style = f"\n{bundle()}", f"\n{(FOLDER / 'style.css').read_text('utf-8')}"
    policy = POLICY.format(script=_hash(script), style=_hash(style))
    parts = (
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="referrer" content="no-referrer">',
        f"<style>{style}</style>",
    )
    html = LINKED.sub("", (FOLDER / "index.html").read_text("utf-8"))
    head, body = html.split('<meta charset="utf-8">\n')
    placed = f'<script type="application/json" id="recording">{data}</script>\n<script type="module">{script}</script>\n'
    return "\n".join((f'{head}<meta charset="utf-8">', *parts, body.replace("</body>", f"{placed}</body>")))


def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


def bundle() -> str:
    """All modules as one script, each a function that gives its exports."""
    return "".join(_wrapped(name) for name in _in_order(ENTRY, []))


def _in_order(name: str, found: list[str]) -> Iterator[str]:
    """The names of a module's imports, all the way down, each in front of those that need it."""
    if name in found:
        return
    found.append(name)
    for _, _, needed in IMPORT.findall(_source(name)):
        yield from _in_order(needed, found)
    yield name


def _source(name: str) -> str:
    return (FOLDER / name).read_text("utf-8")


def _wrapped(name: str) -> str:
    source = _source(name)
    exports = EXPORT.findall(source)
    body = EXPORT.sub("", IMPORT.sub(lambda found: f"const {_given(found)} = {_variable(found[3])};\n", source))
    return f"const {_variable(name)} = (() => {{\n{body}return {{ {', '.join(exports)} }};\n}})();\n"


def _given(found: re.Match[str]) -> str:
    """The names on the left of an assignment that does what the import does."""
    return found[2] or f"{{{found[1].replace(' as ', ': ')}}}"


def _variable(name: str) -> str:
    return f"module_{name.removesuffix('.js').replace('-', '_')}"

"""Self-contained pages: single HTML files with scripts, styles and data, which work offline.

The content security policy of a page has the hashes of its script and style, so browsers run no others.
"""

import json
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).with_name("web")
LINKED = """<link rel="stylesheet" href="page/shared.css">
<link rel="stylesheet" href="page/style.css">
<script type="module" src="page/app.js"></script>
"""
# The page fetches nothing; icons, pictures and saved files are data URLs or blobs.
HEAD = """<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src {script}; style-src {style}; \
img-src data: blob:; base-uri 'none'; form-action 'none'">
<meta name="referrer" content="no-referrer">
"""
SHARED = ("compare.js", "dom.js", "scale.js", "shown.js", "state.js", "text.js", "time.js")  # the modules of the view of steps


def page_of(recording: dict[str, Any]) -> str:
    """Return the HTML of the live page with a recording, which opens without a server.

    Args:
        recording: What `recording` returned, or the page saved.

    Raises:
        ValueError: JSON cannot represent the recording.
    """
    script, style = script_of("app.js"), source("shared.css") + source("style.css")
    # Without `<`, and in ASCII: old JavaScript treats U+2028 as a line end.
    data = json.dumps(recording, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    head = HEAD.format(script=_hash(script), style=_hash(style)) + f"<style>{style}</style>\n"
    end = f'<script type="application/json" id="recording">{data}</script>\n<script type="module">{script}</script>\n</body>'
    return source("index.html").replace(LINKED, head).replace("</body>", end)


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def script_of(entry: str) -> str:
    """Return the script of a page (`app.js`) or of a view of steps (`steps.js`), which needs no server.

    It is the text of the modules without their imports, the entry last. They share a scope, so no name is defined twice.
    """
    others = SHARED if entry == "steps.js" else [path.name for path in sorted(FOLDER.glob("*.js"))]
    modules = [name for name in others if name not in ("app.js", "steps.js")]
    lines = [line for name in (*modules, entry) for line in source(name).splitlines(keepends=True)]
    return "".join(line.removeprefix("export ") for line in lines if not line.startswith("import "))


def source(name: str) -> str:
    """Return the text of a file of the page."""
    return (FOLDER / name).read_text("utf-8")

"""JavaScript modules of the live page as one script, which needs no server.

Each module becomes a function, in dependency order. The sources use only the two forms of import that `IMPORT` matches.
"""

import re
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "serve" / "page"
# import { a, b } from "./x.js";  or  import * as a from "./x.js";
IMPORT = re.compile(r'^import (?:\{([^}]*)\}|\* as (\w+)) from "\./([\w-]+\.js)";\n', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async )?(?:function\*? |class |const )(\w+))", re.MULTILINE)


def bundle(entry: str) -> str:
    """Return a module and its imports as one script of functions that return their exports."""
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

"""The process that does untrusted work. It does not import this package, so that it starts fast.

It exits if a job exceeds its time or memory limit. Chat templates are programs from untrusted
checkpoints, so they run in Jinja's sandbox. Their language is that of transformers 5.17:
`ImmutableSandboxedEnvironment` with `raise_exception`, `strftime_now`, `tojson`, `break`, `continue`
and `generation`. Regexes, choices and JSON schemas come from clients, and even a short one may take
minutes.
"""

import faulthandler
import json
import os
import pickle
import sys
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from itertools import count
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, ClassVar

from jinja2 import Template, TemplateError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.meta import find_undeclared_variables
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

LONGEST = 1 << 26  # bytes of an answer
LONGEST_ERROR = 1000  # characters


class SafeNamespace(Namespace):
    """Variables that a loop may change. Their names must not start with an underscore."""

    def __init__(*args: Any, **values: Any) -> None:  # so that `namespace(self=...)` works, too
        Namespace.__init__(args[0])
        for name, value in dict(*args[1:], **values).items():
            args[0][name] = value

    def __setitem__(self, name: str, value: Any) -> None:
        if not isinstance(name, str) or name.startswith("_"):
            raise SecurityError(f"a namespace takes no name that begins with an underscore, got {name!r}")
        super().__setitem__(name, value)


class Generation(Extension):
    """The tag `{% generation %}`, which marks assistant text for training. It renders its body."""

    tags: ClassVar[set[str]] = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node:
        """Return the body, as a scope."""
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


def raise_exception(message: str) -> None:
    """Raise TemplateError. Templates call this to reject messages."""
    raise TemplateError(message)


def tojson(value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False) -> str:
    """Return a value as JSON. Jinja's built-in filter would escape HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


@lru_cache(maxsize=8)
def compiled(template: str) -> Template:
    """Return the compiled template."""
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, Generation])
    environment.filters["tojson"] = tojson
    environment.globals |= {
        "dict": lambda *args, **values: dict(*args, **values),  # noqa: PLW0108 - without the methods of the class
        "namespace": SafeNamespace,
        "raise_exception": raise_exception,
        "strftime_now": lambda form: datetime.now().strftime(form),
    }
    return environment.from_string(template)


def render(template: str, variables: dict[str, Any]) -> dict[str, Any]:
    """Return the rendered text."""
    return {"text": compiled(template).render(variables)}


@lru_cache(maxsize=8)
def variables_of(template: str) -> dict[str, Any]:
    """Return the names of the variables that a template reads."""
    environment = compiled(template).environment
    return {"names": sorted(find_undeclared_variables(environment.parse(template)))}


JOBS: dict[str, Any] = {"nothing": dict, "template": render, "variables": variables_of}


def answer(kind: str, arguments: tuple[Any, ...]) -> bytes:
    """Return the result of a job, or the reason why it failed, as a line of JSON. Bytes follow a line with their length."""
    try:
        job = JOBS.get(kind) or resolve_name(kind)
        result = job(*arguments)
        binary = result if isinstance(result, bytes) else b""
        line = json.dumps({"bytes": len(binary)} if binary else result).encode() + b"\n" + binary
        if len(line) < LONGEST:
            return line
        error = f"it makes more than {LONGEST} bytes"
    except MemoryError:  # ends this process, so that the parent reports the limit
        raise
    except Exception as raised:  # noqa: BLE001 - a template may raise any exception
        named = isinstance(raised, TemplateError | ValueError)
        error = f"{'' if named else f'{type(raised).__name__}: '}{raised}"[:LONGEST_ERROR]
    return json.dumps({"error": error}).encode() + b"\n"


def limit_memory(more: int) -> None:
    """Limit the memory of this process to `more` bytes beyond those in use. Has no effect except on Linux."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        import resource

        most = int(statm.read_text().split()[0]) * resource.getpagesize() + more
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def main() -> None:
    """Answer pickled jobs from the parent process until it closes the pipe."""
    with open(os.devnull, "w") as nowhere, os.fdopen(os.dup(1), "wb") as answers, suppress(EOFError):
        os.dup2(nowhere.fileno(), 1)  # what libraries print must not look like an answer
        for number in count():
            seconds, kind, arguments = pickle.load(sys.stdin.buffer)
            # A C thread ends this process, even inside a long operation that holds the GIL.
            faulthandler.dump_traceback_later(seconds, exit=True, file=nowhere)
            line = answer(kind, arguments)
            faulthandler.cancel_dump_traceback_later()
            if number == 0:  # the first job only loads what the others need
                limit_memory(int(sys.argv[1]))
            answers.write(line)
            answers.flush()


if __name__ == "__main__":
    main()

"""Readers for files written by others: sizes are bounded, and each failure becomes a ValueError that names the file."""

import json
import re
from collections import Counter
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError

LARGEST_JSON = 64 << 20  # bytes
MOST_VALUES = 4_000_000  # of one file: each takes about 64 bytes of memory. The tokenizer.json of Gemma has 1.8 million.
LONGEST_MESSAGE = 700  # letters
Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")
# Errors that libraries raise for contents they do not expect. A missing file is not among them.
BROKEN = (
    ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RuntimeError, AssertionError, ImportError,
    SafetensorError, StrictDataclassError, re.error,
)  # fmt: skip


class RefuseErrors:
    """A context in which an error of a library becomes a ValueError that begins with `what`.

    Libraries written in Rust raise `Exception` itself, and a panic raises a separate class; both count as errors. Running
    out of memory, interrupts and missing files pass through.
    """

    def __init__(self, what: str) -> None:
        self.what = what

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /) -> None:
        """Raise ValueError for an error of a library."""
        del trace
        if kind is None or error is None:
            return
        if kind is Exception or kind.__name__ == "PanicException" or issubclass(kind, BROKEN):
            raise ValueError(f"{self.what}: {describe_error(error)}") from error


def describe_error(error: BaseException) -> str:
    """Return an error's message on one line, after the error's class if the message alone would be unclear."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    # After its first line, the message of a torch error lists stack frames.
    lines = str(error).strip().splitlines()[: 1 if isinstance(error, RuntimeError) else None]
    text = " ".join(" ".join(lines).split())
    return (
        text
        if isinstance(error, ValueError | SafetensorError | StrictDataclassError | re.error) and text
        else f"{type(error).__name__} {text}".strip()
    )


def read_json(path: Path) -> Any:
    """Return the value that a JSON file holds.

    Raises ValueError for a file that is not JSON, is too large or nested too deeply, or has an object that states a
    name twice: another reader could use the other value.
    """
    if (size := path.stat().st_size) > LARGEST_JSON:
        raise ValueError(f"{path} has {size} bytes, and at most {LARGEST_JSON} are read: check that it is the right file")
    with RefuseErrors(f"{path} is no JSON"):
        return parse_json(path.read_text(encoding="utf-8"))


def parse_json(text: str) -> Any:
    """Return the value of a JSON text. Raises ValueError for too many values, and if an object states a name twice."""
    if (values := sum(map(text.count, ",[{"))) > MOST_VALUES:
        raise ValueError(f"it has about {values} values, and at most {MOST_VALUES} are read: check that it is the right file")
    return json.loads(text, object_pairs_hook=_named_once)


def _named_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the pairs as a dict. Raises ValueError for a name that occurs twice."""
    values = dict(pairs)
    if len(values) < len(pairs):
        ((name, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"it states {name[:80]!r} twice in one object: keep one of them")
    return values


def brief(message: str) -> str:
    """Return the message, without its middle if it is long because it repeats the content of a file."""
    kept = LONGEST_MESSAGE // 2 - 3
    return message if len(message) <= LONGEST_MESSAGE else f"{message[:kept]} ... {message[-kept:]}"


def briefly(function: Callable[Parameters, Returned]) -> Callable[Parameters, Returned]:
    """Make a function that reads a folder raise brief messages only."""

    @wraps(function)
    def wrapped(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Returned:
        try:
            return function(*args, **kwargs)
        except (ValueError, FileNotFoundError) as error:
            if len(message := str(error)) <= LONGEST_MESSAGE:
                raise
            raise (FileNotFoundError if isinstance(error, FileNotFoundError) else ValueError)(brief(message)) from error

    return wrapped


def read_object(path: Path) -> dict[str, Any]:
    """Return the object that a JSON file holds. Raises ValueError for any other value, and as `read_json` does."""
    value = read_json(path)
    if not isinstance(value, dict):
        raise ValueError(f"{path} must hold a JSON object, got {type(value).__name__}")
    return value

"""Values of any type, to be thrown at arguments: by name, because some of them raise when they are looked at."""

import array
import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import json
import pickle
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from dlstep import SamplingParams
from dlstep.core.trace import from_json, to_json


@dataclasses.dataclass(frozen=True)
class Settings(SamplingParams):
    """A subclass of a value class with a field of its own."""

    own: object = None


class Level(enum.IntEnum):
    ONE = 1


class Word(enum.StrEnum):
    ONE = "one"


def deep(depth: int) -> list[Any]:
    """Lists within lists."""
    nested: list[Any] = []
    for _ in range(depth):
        nested = [nested]
    return nested


def array_of(part: object) -> Any:
    """An array of one object."""
    found = np.empty(1, dtype=object)
    found[0] = part
    return found


def circular() -> list[Any]:
    """A list that holds itself."""
    found: list[Any] = [1]
    found.append(found)
    return found


_NUMBERS = (
    0, 1, 2, -1, 5, 2**31 - 1, 2**31, 2**32, 2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, 10**30, 10**400,
    0.0, -0.0, 0.5, 1.0, 1.5, 1e-40, 1e-31, 1e-30, 1e30, 3.5e38, 1.8e308, 5e-324, float("inf"), float("-inf"), float("nan"),
)  # fmt: skip
_TEXTS = ("", "x", "How many", "\0", "a\0b", "\ud800", "a\udfffb", "\U0001f600", "naive", "dual", "A", "1", "x" * 5000, "\n")
_DTYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
    "longdouble", "complex64", "complex128", "datetime64[ns]", "datetime64[D]", "timedelta64[ns]", "object", "U3", "S3",
)  # fmt: skip
_TORCH = (
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32,
    torch.float64, torch.complex64,
)  # fmt: skip

_VALUES = (
    None, True, False, b"x", b"\xff\x00", bytearray(b"x"), [], (), set(), frozenset({1}), {}, {"prompt": "x"}, {1: 2}, [5],
    (5, 6), [1.5, 2.5], ["x"], [b"x"], [None], [True, False], [2**63, 5], [-1], ["\ud800"], [""], [np.int64(5), np.int32(6)],
    [torch.tensor(5), torch.tensor([5, 6])], [np.arange(3), np.arange(4)], [[5], [6, 7]], [{}], [5, "x"], [[[5]]],
    [{"role": "user", "content": "x"}], collections.deque([1]), collections.UserList([5]), collections.UserString("x"),
    range(3), array.array("q", [5, 6]), decimal.Decimal("0.5"), fractions.Fraction(1, 2), 1j, datetime.datetime(2020, 1, 1),
    Level.ONE, Word.ONE, Settings(), SamplingParams, ..., np.array([]), np.arange(6).reshape(2, 3),
    np.arange(8).reshape(2, 2, 2), np.zeros(2, dtype=[("a", "i4"), ("b", "f4")]),
    np.ma.masked_array([1, 2], mask=[True, False]), torch.tensor([5, 6]), torch.arange(6).reshape(2, 3),
    torch.empty(2, device="meta"), torch.eye(2).to_sparse(), torch.nn.Parameter(torch.ones(2)), torch.int64,
)  # fmt: skip

Make = Callable[[], Any]
ODD: dict[str, Make] = {
    "memoryview": lambda: memoryview(b"x"),
    "deep list": lambda: deep(2000),
    "circular list": circular,
    "named tuple": lambda: collections.namedtuple("Pair", "a b")(1, 2),
    "generator": lambda: (part for part in (5, 6)),
    "iterator": lambda: iter([5]),
    "function": lambda: deep,
    "module": lambda: np,
    "array of objects": lambda: array_of(object()),
}
ODD |= {" ".join(f"{type(value).__name__} {value!r}".split()): partial(deepcopy, value) for value in _VALUES}
ODD |= {f"number {number!r}" if abs(number) < 10**40 else f"number {hash(number)}": lambda n=number: n for number in _NUMBERS}
ODD |= {f"text {text[:20]!r}": lambda t=text: t for text in _TEXTS}
ODD |= {f"numpy {name}": lambda d=name: np.array([1, 2]).astype(d)[0] for name in _DTYPES}
ODD |= {f"0-D numpy {name}": lambda d=name: np.array(1).astype(d) for name in _DTYPES}
ODD |= {f"1-D numpy {name}": lambda d=name: np.array([1, 2]).astype(d) for name in _DTYPES}
ODD |= {f"0-D {dtype}": lambda d=dtype: torch.tensor(1).to(d) for dtype in _TORCH}
ODD |= {f"1-D {dtype}": lambda d=dtype: torch.tensor([1, 2]).to(d) for dtype in _TORCH}

_NAMED = st.sampled_from(sorted(ODD))
_PLAIN = st.integers() | st.floats() | st.text(st.characters(exclude_categories=()), max_size=5) | st.binary(max_size=3)
_LEAVES = st.tuples(st.just("named"), _NAMED) | st.tuples(st.just("plain"), _PLAIN)
_KINDS: dict[str, Callable[[list[Any]], Any]] = {"list": list, "tuple": tuple, "dict": lambda parts: dict(enumerate(parts))}
Recipe = tuple[str, Any]
# How a value is made, which Hypothesis can show whatever the value is.
recipes: st.SearchStrategy[Recipe] = st.recursive(
    _LEAVES, lambda parts: st.tuples(st.sampled_from(sorted(_KINDS)), st.lists(parts, max_size=3)), max_leaves=4
)


def made(recipe: Recipe) -> Any:
    """The value of a recipe."""
    kind, what = recipe
    if kind == "named":
        return ODD[what]()
    return what if kind == "plain" else _KINDS[kind]([made(part) for part in what])


def check_sentence(error: ValueError, *names: str) -> None:
    """The error is one short sentence that names the field or argument in one of these ways."""
    text = str(error)
    assert len(text) < 600 and "\n" not in text, text
    assert any(name in text for name in names), text
    text.encode()


def check_value(value: Any) -> None:
    """A value that was taken hashes, compares, pickles, and is strict JSON that is read again."""
    assert value == value and hash(value) == hash(value)
    assert pickle.loads(pickle.dumps(value)) == value
    text = json.dumps(to_json(value), allow_nan=False, ensure_ascii=False)
    assert from_json(json.loads(text.encode())) == value


def plain_only(value: Any) -> Iterator[Any]:
    """All parts of a value that are none of Python's own."""
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from plain_only(vars(value)[field.name] if hasattr(value, "__dict__") else getattr(value, field.name))
    elif type(value) is tuple:
        for part in value:
            yield from plain_only(part)
    elif type(value) not in (int, float, bool, str, bytes, type(None)):
        yield value

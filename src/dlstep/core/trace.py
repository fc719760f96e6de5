"""Traces: a decode as its first state and its events, from which every later state can be computed.

This module also reads and writes core values as JSON. A dataclass is written as its class path, such as
`dlstep.core:SequenceState`, and its fields without defaults. Equal values have equal JSON text in every
process. Reading only creates core values, strategies, rules and their `Extra` state, and imports only this
package: import the module of a user-defined class before reading.

A trace file has JSON lines. The first line holds the first state and the number of events; every other
line holds an event. Each line has a checksum: the CRC-32 of the JSON of all values so far.
"""

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from functools import cache, reduce
from importlib import import_module
from importlib.util import find_spec
from itertools import accumulate
from operator import eq
from os import PathLike
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, cast
from zlib import crc32

from rpds import HashTrieMap, List

from .block import Extra
from .checks import Json, TableRow, check_ranges, short
from .constraint import LazyMasks
from .errors import ReplayDiverged
from .lifecycle import Event, Rebuild, apply
from .options import Options
from .plan import Plan, Samples
from .schedule import schedule
from .state import State

FORMAT = 8


@dataclass(frozen=True, slots=True)
class Trace:
    """A decode as a value: its first state and its events."""

    first: State
    """The first state."""
    events: tuple[Event, ...] = ()
    """The events since then, oldest first."""

    def extended(self, event: Event) -> "Trace":
        """Return the trace with one more event.

        Args:
            event: The event to append.
        """
        return Trace(self.first, (*self.events, event))

    def states(self) -> Iterator[State]:
        """Yield the first state, then the state after each event."""
        return accumulate(self.events, apply, initial=self.first)

    @property
    def state(self) -> State:
        """The last state."""
        return reduce(apply, self.events, self.first)

    def replay(self) -> State:
        """Plan every step again, compare each plan with the recorded one, and return the last state.

        The recorded samples are committed, so no device is needed.

        Raises:
            ReplayDiverged: For the first plan that differs, with its first field that differs.
        """
        state = self.first
        since = [state]  # the plan may come from any of these: requests may arrive or end after it was made
        for number, event in enumerate(self.events):
            # Newest first, so that a state with a request that failed later is not planned again.
            if isinstance(event, Samples) and all(schedule(earlier) != event.plan for earlier in reversed(since)):
                raise ReplayDiverged(f"event {number}, step {state.step}: {_difference(schedule(state), event.plan)}")
            if isinstance(event, Samples | Rebuild):
                since = []  # no later plan can come from an earlier state
            state = apply(state, event)
            since.append(state)
        return state

    def rows(self) -> list[TableRow]:
        """Return a row for each position of an answer that a forward pass changed; `docs/look_inside.md` lists the keys."""
        rows, states, pieces = list[TableRow](), self.states(), self.first.config.spec.pieces
        before = next(states)
        for event, after in zip(self.events, states, strict=True):
            for span in event.plan.spans if isinstance(event, Samples) else ():
                if (sequence := before.sequence(span.who.seq_id)) is None:
                    continue  # the request ended after the plan was made
                was, now = sequence.sampled_cells(), (after.find(span.who.id) or sequence).sampled_cells()
                remasked = dict.fromkeys(was.keys() - now.keys(), (None, 0.0))
                for position, (token, probability) in sorted((now | remasked).items() - was.items()):
                    text = pieces[token].decode(errors="replace") if pieces and token is not None else ""
                    row = {"step": before.step, "request": span.who.id, "offset": position - sequence.request.start}
                    rows.append(row | {"token_id": token, "text": text, "probability": probability})
            before = after
        return rows

    def save(self, path: str | PathLike[str]) -> None:
        """Write JSON lines: the first state, then one event per line. Replaces an old file.

        Args:
            path: Path of the file.
        """
        lines: list[Json] = [{"dlstep_trace": FORMAT, "events": len(self.events), "first": to_json(self.first)}]
        lines += [{"event": to_json(event)} for event in self.events]
        crc = 0
        for line in lines:
            line["crc"] = crc = crc32(_text(line.get("event", line.get("first"))).encode(), crc)
        content, path = "".join([_text(line) + "\n" for line in lines]), Path(path)
        if path.exists() and not path.is_file():  # a pipe or a terminal
            path.write_text(content, "utf-8")
            return
        path = path.resolve()  # replace the target of a link, not the link
        new = path.with_name(f"{path.name}.new")
        try:
            new.write_text(content, "utf-8")
            new.replace(path)  # at once, so that a complete file always exists
        finally:
            new.unlink(missing_ok=True)

    @staticmethod
    def load(path: str | PathLike[str]) -> "Trace":
        """Return the trace that `save` wrote.

        Args:
            path: Path of the file.

        Raises:
            ValueError: With file and line, if the file was changed.
        """
        values: list[Any] = []
        lines, crc, prefix = 1, 0, "not a line of a trace: "
        with Path(path).open("rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    data: Any = json.loads(line)
                    if number == 1:
                        if (found := data.get("dlstep_trace")) != FORMAT:
                            prefix = "" if type(found) is int else prefix
                            raise ValueError(
                                f"its format is {found}, this version reads format {FORMAT}: "
                                "load a trace with the version that wrote it"
                            )
                        lines = 1 + data.get("events")
                    value = data.get("event" if values else "first")
                    crc = crc32(_text(value).encode(), crc)
                    if data.get("crc") != crc:
                        raise ValueError("it is not as it was written, or lines before it are moved or lost")
                    values.append(from_json(value))
                except (ValueError, TypeError, NameError, AttributeError, RecursionError) as error:
                    raise ValueError(f"{path}, line {number}: {prefix}{error}") from error
        if len(values) != lines:
            raise ValueError(f"{path}: the file holds {len(values)} of {lines} lines: it was cut off or joined from several")
        trace = Trace(values[0], tuple(values[1:]))
        try:
            check_ranges(trace)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
        return trace


def _text(data: Any) -> str:
    return json.dumps(data, separators=(",", ":"))


def _difference(planned: Plan, recorded: Plan) -> str:
    """Return the first field in which two plans differ, with both values."""
    recorded = replace(recorded, cache_digest=planned.cache_digest)
    if planned == recorded:
        return "the KV cache is another one: an earlier event, or the first state, is not the one that was recorded"
    return _first_difference(planned, recorded, "plan")


def _first_difference(now: Any, then: Any, path: str) -> str:
    """Return the path of the first part in which two values differ, with both parts."""
    if is_dataclass(now) and type(now) is type(then):
        name = differing(now, then, field_names(now))[0]
        return _first_difference(getattr(now, name), getattr(then, name), f"{path}.{name}")
    if isinstance(now, tuple) and isinstance(then, tuple):
        one, two = cast(tuple[Any, ...], now), cast(tuple[Any, ...], then)
        if len(one) == len(two):
            index = next(index for index, sides in enumerate(zip(one, two, strict=True)) if not eq(*sides))
            return _first_difference(one[index], two[index], f"{path}[{index}]")
    return f"{path} is {short(cast(object, now))} now, {short(cast(object, then))} was recorded"


def field_names(value: Any) -> list[str]:
    """Return the names of a dataclass's fields."""
    return [field.name for field in fields(value) if field.compare]


def differing(old: Any, new: Any, names: Iterable[str]) -> list[str]:
    """Return the fields among `names` that differ."""
    # `!=` does not work: persistent maps define only equality.
    return [name for name in names if not eq(getattr(old, name), getattr(new, name))]


CORE = __name__.rpartition(".")[0]
_PARTS = tuple(f"{CORE.rpartition('.')[0]}.{name}" for name in ("strategies", "rules", "processors"))
# By tag, the types that are written as {tag: parts}, each with functions from a value to its parts and back.
_TAGGED: dict[str, tuple[type, Callable[[Any], Any], Callable[[Any], Any]]] = {
    "bytes": (bytes, bytes.hex, bytes.fromhex),
    "set": (frozenset, lambda parts: tuple(sorted(parts)), frozenset),
    "map": (HashTrieMap, lambda parts: tuple(sorted(parts.items())), HashTrieMap),
    "list": (List, tuple, List),
}


@cache
def _core_classes() -> dict[str, type]:
    """Return the value classes of the core by name."""
    modules = [vars(import_module(f"{CORE}.{module.name}")) for module in iter_modules(sys.modules[CORE].__path__)]
    classes = [cls for names in modules for cls in names.values() if isinstance(cls, type) and is_dataclass(cls)]
    return {cls.__name__: cls for cls in classes if cls.__module__.startswith(f"{CORE}.")}


@cache
def class_path(cls: type) -> str:
    """Return the path by which `from_json` finds a class."""
    return f"{CORE if _core_classes().get(cls.__name__) is cls else cls.__module__}:{cls.__qualname__}"


@cache
def _written(cls: type) -> tuple[tuple[str, Any], ...]:
    """Return names and defaults of the fields of a dataclass that are written: those that are compared."""
    return tuple((field.name, field.default) for field in fields(cls) if field.init and field.compare)


def to_json(value: Any) -> Any:
    """Return `value` as JSON data. Raises TypeError for a value of another type."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | LazyMasks):
        return [to_json(item) for item in cast(Iterable[Any], value)]
    for tag, (kind, parts_of, _) in _TAGGED.items():
        if isinstance(value, kind):
            return {tag: to_json(parts_of(value))}
    if not is_dataclass(value) or isinstance(value, type):
        raise TypeError(f"a {type(value).__name__} cannot be written: {value!r}")
    cls = type(value)
    data: Json = {"class": class_path(cls)}
    for name, default in _written(cls):
        field_value = getattr(value, name)
        if default is MISSING or (default is not field_value and default != field_value):
            data[name] = to_json(field_value)
    return data


def from_json(data: Any) -> Any:
    """Return the value that `to_json` wrote. Raises ValueError for an unknown class or field."""
    match data:
        case list():
            return tuple(from_json(item) for item in cast(list[Any], data))
        case {"class": str(name), **values}:
            cls = _class(name)
            unknown = sorted(values.keys() - dict(_written(cls)))
            if unknown:
                raise ValueError(f"{name} has no field {unknown[0]!r}: the data is of another version")
            value = cls(**{key: from_json(value) for key, value in values.items()})
            if name.startswith(f"{CORE}:"):  # most of these classes do not check their fields, because each step creates many
                check_ranges(value)
            return value
        case dict():
            names = list(cast(Json, data))
            if len(names) != 1 or names[0] not in _TAGGED:
                raise ValueError(f"data without a class: {sorted(names)}")
            return _TAGGED[names[0]][2](from_json(data[names[0]]))
        case _:
            return data


def _class(path: str) -> Any:
    module_name, _, class_name = path.partition(":")
    if module_name == CORE:
        if class_name not in _core_classes():
            raise ValueError(f"the core has no value class {class_name!r}")
        return _core_classes()[class_name]
    if module_name.rpartition(".")[0] in _PARTS and find_spec(module_name) is not None:
        import_module(module_name)
    if module_name not in sys.modules:
        raise ValueError(
            f"the data holds a {class_name} of module {module_name}: import that module before reading, or give its file to "
            "the command, like --rule FILE"
        )
    cls = vars(sys.modules[module_name]).get(class_name)
    if not (isinstance(cls, type) and is_dataclass(cls) and issubclass(cls, Options | Extra)):
        raise ValueError(f"module {module_name} has no strategy, rule, processor or `Extra` state named {class_name}")
    return cls

"""Traces: a decode as its first state and its events, from which every later state can be computed.

This module also reads and writes core values as JSON. A trace file has JSON lines; each line has a checksum for every
field, the CRC-32 of the field's JSON.

A dataclass is written as its class path, such as `dlstep.core:SequenceState`, and its fields without
defaults. Equal values have equal JSON text in every process. Reading only creates core values,
strategies, rules and their `Extra` state, and imports only this package: import the module of a
user-defined class before reading.

The first line holds the first state and the number of events; every other line holds an event, with
its number and, for samples, the resulting cache digest. Checksums are stored under the names of the
fields.
"""

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from importlib import import_module
from operator import attrgetter, eq
from os import PathLike
from pathlib import Path
from pkgutil import iter_modules
from secrets import token_hex
from typing import Any, cast
from zlib import crc32

from rpds import HashTrieMap, List

from .block import Extra
from .checks import short
from .errors import DlstepError, ReplayDiverged
from .lifecycle import Event, Rebuild, apply
from .options import Options
from .plan import EMPTY_CACHE, Plan, Samples
from .schedule import schedule
from .state import State

# Errors of `apply` for an edited file: valid checksums do not imply values of the right types.
INAPPLICABLE = (
    *(ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError),
    DlstepError,
)
LONGEST_REASON = 300  # characters


def applied(state: State, event: Event, number: int) -> State:
    """Return the state after `event`, which is at index `number` of a trace.

    Raises ReplayDiverged if `event` cannot be applied: an edited file may hold values of any type.
    """
    try:
        return apply(state, event)
    except INAPPLICABLE as error:
        raise _inapplicable(event, number, error) from error


def _inapplicable(event: Event, number: int, error: Exception) -> ReplayDiverged:
    """Return the error for an event that cannot be applied."""
    return ReplayDiverged(f"event {number} ({type(event).__name__}) cannot be applied: {reason_of(error)}")


def folded(state: State, events: Iterable[Event], first: int = 0) -> State:
    """Return the state after `events`, the first at index `first`. Raises ReplayDiverged."""
    for number, event in enumerate(events, first):
        state = applied(state, event, number)
    return state


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
        """Yield the first state, then the state after each event.

        Raises:
            ReplayDiverged: If an event cannot be applied.
        """
        state = self.first
        yield state
        for number, event in enumerate(self.events):
            state = applied(state, event, number)
            yield state

    @property
    def state(self) -> State:
        """The last state. Raises ReplayDiverged if an event cannot be applied."""
        return folded(self.first, self.events)

    def replay(self) -> State:
        """Plan every step again, compare each plan with the recorded one, and return the last state.

        The recorded samples are committed, so no device is needed.

        Raises:
            ReplayDiverged: With the event, and the first field that differs or the reason why the
                event cannot be applied.
        """
        state = self.first
        since = [state]  # the plan may come from any of these: requests may arrive or end after it was made
        last = None  # index of the last samples
        for number, event in enumerate(self.events):
            try:
                if isinstance(event, Samples):
                    # Newest first, so that a state with a request that failed later is not planned
                    # again.
                    if all(schedule(earlier) != event.plan for earlier in reversed(since)):
                        raise ReplayDiverged(
                            f"event {number}, step {state.step}: {difference(schedule(state), event.plan, last)}"
                        )
                    last = number
                if isinstance(event, Samples | Rebuild):
                    since = []  # no later plan can come from an earlier state
                state = apply(state, event)
            except ReplayDiverged:
                raise
            except INAPPLICABLE as error:
                raise _inapplicable(event, number, error) from error
            since.append(state)
        return state

    def save(self, path: str | PathLike[str]) -> None:
        """Write JSON lines: the first state, then one event per line. Replaces an old file.

        Args:
            path: Path of the file.
        """
        write(path, self.first, self.events)

    @staticmethod
    def load(path: str | PathLike[str]) -> "Trace":
        """Return the trace that `save` wrote.

        Args:
            path: Path of the file.

        Raises:
            ValueError: With file, line and field, if the file was changed.
        """
        first, events = read(path)
        if not isinstance(first, State) or not all(isinstance(event, Event) for event in events):
            raise ValueError(f"{path}: not a trace: its first value must be a state, and all others events")
        return Trace(first, events)


def reason_of(error: Exception) -> str:
    """Return an error message on one line, with the class unless the message is meant for users."""
    text = " ".join(str(error).split())[:LONGEST_REASON]
    return text if isinstance(error, ValueError | DlstepError) else f"{type(error).__name__}: {text}"


def difference(planned: Plan, recorded: Plan, last: int | None = None) -> str:
    """Return a message with the cause of a difference between two plans and the first such field.

    `last` is the index of the last samples before them; None if there are none.
    """
    effect = _effect(planned, recorded)
    if planned.cache_digest == recorded.cache_digest:
        return effect or "the plans are equal"
    if EMPTY_CACHE in (planned.cache_digest, recorded.cache_digest):
        reset, unreset = (
            ("the trace", "the recorded decode")
            if planned.cache_digest == EMPTY_CACHE
            else ("the recorded decode", "the trace")
        )
        cause = f"before this step {reset} resets the device, {unreset} does not: an event was lost or added"
    elif last is None:
        cause = "the first state is not the one that was recorded"
    else:
        cause = f"the samples of event {last}, or its plan, are not those that this step was recorded after"
    return f"{cause}; {effect}" if effect else cause


def _effect(planned: Plan, recorded: Plan) -> str | None:
    """Return the first field, except the cache digest, in which two plans differ; None if none."""
    for name in names_of(planned):
        now, then = attrgetter(name)(planned), attrgetter(name)(recorded)
        if name == "cache_digest" or now == then:
            continue
        if name == "spans":
            for index, (span, other) in enumerate(zip(now, then, strict=False)):
                for part in names_of(span):
                    one, two = attrgetter(part)(span), attrgetter(part)(other)
                    for field in differing(one, two, names_of(one)):
                        sides = _sides(attrgetter(field)(one), attrgetter(field)(two))
                        return f"span {index} of request {span.who.id}: {field} {sides}"
            return f"{len(now)} {'span' if len(now) == 1 else 'spans'} now, {len(then)} recorded"
        return f"{name} {_sides(now, then)}"
    return None


def _sides(now: object, then: object) -> str:
    """Describe two different values; for tuples of equal length, the first entry that differs."""
    if isinstance(now, tuple) and isinstance(then, tuple):
        one, two = cast(tuple[object, ...], now), cast(tuple[object, ...], then)
        if len(one) == len(two):
            index = next(index for index, sides in enumerate(zip(one, two, strict=True)) if sides[0] != sides[1])
            return f"entry {index} is {short(one[index])} now, {short(two[index])} was recorded"
    return f"is {short(cast(object, now))} now, {short(cast(object, then))} was recorded"


def names_of(value: Any) -> list[str]:
    """Return the names of a dataclass's fields."""
    return [field.name for field in fields(value) if field.compare]


def differing(old: Any, new: Any, names: Iterable[str]) -> list[str]:
    """Return the fields among `names` that differ."""
    # `!=` does not work: persistent maps define only equality.
    return [name for name in names if not eq(attrgetter(name)(old), attrgetter(name)(new))]


CORE = __name__.rpartition(".")[0]
_PARTS = tuple(f"{CORE.rpartition('.')[0]}.{name}" for name in ("strategies", "rules"))
_CLASS = "class"


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
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, tuple):
        return [to_json(item) for item in cast(tuple[Any, ...], value)]
    if isinstance(value, frozenset):
        return {"set": sorted(to_json(item) for item in cast(frozenset[Any], value))}
    if isinstance(value, HashTrieMap):
        entries = cast("HashTrieMap[Any, Any]", value)
        return {"map": [[to_json(key), to_json(entries[key])] for key in sorted(entries)]}
    if isinstance(value, List):
        return {"list": [to_json(item) for item in cast("List[Any]", value)]}
    if is_dataclass(value) and not isinstance(value, type):
        return _dataclass_json(value)
    raise TypeError(f"a {type(value).__name__} cannot be written: {value!r}")


def _dataclass_json(value: object) -> dict[str, Any]:
    cls = type(value)
    data: dict[str, Any] = {_CLASS: class_path(cls)}
    for name, default in _written(cls):
        field_value = attrgetter(name)(value)
        if default is MISSING or (default is not field_value and default != field_value):
            data[name] = to_json(field_value)
    return data


def from_json(data: Any) -> Any:
    """Return the value that `to_json` wrote. Raises ValueError for an unknown class or field."""
    match data:
        case list():
            return tuple(from_json(item) for item in cast(list[Any], data))
        case {"bytes": str(text)}:
            return bytes.fromhex(text)
        case {"set": items}:
            return frozenset(from_json(item) for item in items)
        case {"map": items}:
            return HashTrieMap({from_json(key): from_json(value) for key, value in items})
        case {"list": items}:
            return List([from_json(item) for item in items])
        case {"class": str(name), **values}:
            cls = _class(name)
            unknown = sorted(values.keys() - dict(_written(cls)))
            if unknown:
                raise ValueError(f"{name} has no field {unknown[0]!r}: the data is of another version")
            return cls(**{key: from_json(value) for key, value in values.items()})
        case dict():
            raise ValueError(f"data without a class: {sorted(cast(dict[str, Any], data))}")
        case _:
            return data


@cache
def _own_modules(package: str) -> frozenset[str]:
    """Return the module names of a subpackage of dlstep."""
    return frozenset(module.name for module in iter_modules(import_module(package).__path__))


def _class(path: str) -> Any:
    module_name, _, class_name = path.partition(":")
    if module_name == CORE:
        if class_name not in _core_classes():
            raise ValueError(f"the core has no value class {class_name!r}")
        return _core_classes()[class_name]
    package, _, name = module_name.rpartition(".")
    if package in _PARTS and name in _own_modules(package):
        import_module(module_name)
    if module_name not in sys.modules:
        raise ValueError(f"the data holds a {class_name} of module {module_name}: import that module before reading")
    cls = vars(sys.modules[module_name]).get(class_name)
    if not (isinstance(cls, type) and is_dataclass(cls) and issubclass(cls, Options | Extra)):
        raise ValueError(f"module {module_name} has no strategy, rule or `Extra` state named {class_name}")
    return cls


FORMAT = 5
DESCRIPTORS, STANDARD = ("/dev/fd", "/proc/self/fd"), ("/dev/stdout", "/dev/stderr")
LONGEST = 500  # characters of a message, which may quote the line
STATE_DEPTH, EVENT_DEPTH = 2, 6  # down to the fields of a configuration, and of the rows of a span


def _text(data: Any) -> str:
    return json.dumps(data, separators=(",", ":"))


def checks(data: Any, depth: int) -> Any:
    """Return checksums of `data`: one for each field down to `depth` nested values."""
    if depth and isinstance(data, dict):
        return {name: checks(part, depth - 1) for name, part in cast(dict[str, Any], data).items()}
    if depth and isinstance(data, list) and data and all(isinstance(part, dict) for part in cast(list[Any], data)):
        return [checks(part, depth - 1) for part in cast(list[Any], data)]
    return crc32(_text(data).encode())


def changed(now: Any, then: Any, path: str = "") -> str | None:
    """Return the path of the first difference of two checksum trees; None if equal.

    `now` is computed and determines the shape; `then`, from a file, may hold anything.
    """
    if isinstance(now, dict) and isinstance(then, dict):
        sums, others = cast(dict[str, Any], now), cast(dict[str, Any], then)
        for name in dict.fromkeys([*others, *sums]):
            if name not in sums or name not in others:
                return f"{path}{name}"
            difference = changed(sums[name], others[name], f"{path}{name}.")
            if difference is not None:
                return difference
        return None
    if isinstance(now, list) and isinstance(then, list) and len(cast(list[Any], now)) == len(cast(list[Any], then)):
        pairs = enumerate(zip(cast(list[Any], now), cast(list[Any], then), strict=True))
        differences = (changed(one, other, f"{path}{index}.") for index, (one, other) in pairs)
        return next((difference for difference in differences if difference is not None), None)
    return None if now == then else path.removesuffix(".")


def write(path: str | PathLike[str], first: Any, events: Iterable[Any]) -> None:
    """Write a trace to a new file, then replace the old one, so a complete file always exists."""
    given, listed = Path(path), list(events)
    state = to_json(first)
    lines: list[dict[str, Any]] = [{"dlstep_trace": FORMAT, "events": len(listed), "first": state}]
    lines[0]["checks"] = checks(state, STATE_DEPTH)
    for number, event in enumerate(listed):
        data = to_json(event)
        digest = {"cache_digest": event.cache_digest} if isinstance(event, Samples) else {}
        lines.append({"number": number, "event": data, **digest, "checks": checks(data, EVENT_DEPTH)})
    if _is_stream(given):
        with given.open("a", encoding="utf-8") as file:
            file.writelines(_text(line) + "\n" for line in lines)
        return
    path = given.resolve()  # replace the target of a link, not the link
    target = path.with_name(f".{path.name[:100]}.{token_hex(4)}")
    try:
        with target.open("x", encoding="utf-8") as file:
            file.writelines(_text(line) + "\n" for line in lines)
        target.replace(path)
    finally:
        target.unlink(missing_ok=True)


def _is_stream(path: Path) -> bool:
    """Return whether to append to a path: a pipe, a device or a descriptor of this process."""
    descriptor = path.absolute().parent in map(Path, DESCRIPTORS) or path.absolute() in map(Path, STANDARD)
    return descriptor or (path.exists() and not path.is_file() and not path.is_dir())


def read(path: str | PathLike[str]) -> tuple[Any, tuple[Any, ...]]:
    """Return the first value and the events of a trace.

    Raises ValueError with the file, the line and, if known, the field that is wrong.
    """
    first: Any = None
    events: list[Any] = []
    expected: Any = None
    with Path(path).open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                data: Any = json.loads(line)
                if number == 1:
                    if data.get("dlstep_trace") != FORMAT:
                        raise ValueError(_other_format(data.get("dlstep_trace")))
                    first, expected = _value(data, "first", STATE_DEPTH), data["events"]
                else:
                    if data["number"] != len(events):
                        raise ValueError(
                            f"event {short(data['number'])} is where event {len(events)} should be: lines are moved or lost"
                        )
                    events.append(_value(data, "event", EVENT_DEPTH))
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError, DlstepError) as error:
                raise ValueError(f"{path}, line {number}: not a line of a trace: {_words(error)}") from error
    if expected is None:
        raise ValueError(f"{path}: the file is empty, a trace has at least its first state")
    if len(events) != expected:
        raise ValueError(f"{path}: the file holds {len(events)} of {expected} events: it was cut off or joined from several")
    return first, tuple(events)


def _other_format(found: object) -> str:
    if type(found) is int:
        return f"it is a trace of format {found}, this version reads format {FORMAT}: load it with the version that wrote it"
    return f"it has no format number of a trace, dlstep_trace, which is {FORMAT}"


def _words(error: BaseException) -> str:
    words = f"{error} is missing" if isinstance(error, KeyError) else str(error)
    return words if len(words) <= LONGEST else f"{words[:LONGEST]}..."


def _value(data: Any, name: str, depth: int) -> Any:
    """Return the value of a line. Raises ValueError if a field does not match its checksum."""
    path = changed(checks(data[name], depth), data["checks"])
    if path is not None:
        raise ValueError(f"{_field_name(data[name], path)} is not as it was written")
    value = from_json(data[name])
    if isinstance(value, Samples) and value.cache_digest != data["cache_digest"]:
        raise ValueError(f"step {value.plan.step} leads to another cache digest than the one that was written")
    return value


def _field_name(data: Any, path: str) -> str:
    """Return the name of a field, with its step and request if it belongs to samples."""
    parts = path.split(".")
    step, request = "", ""
    match data:
        case {"plan": {"step": int(number), "spans": [*spans]}}:
            step = f"step {number}, "
            index = parts[1:2] if parts[0] == "rows" else parts[2:3]
            request = _id_of(spans[int(index[0])]) if index and index[0].isdigit() and int(index[0]) < len(spans) else ""
        case {"request": request_data}:
            request = _id_of(request_data)
        case {"id": int()}:
            request = _id_of(data)
        case _:
            pass
    return f"{step}{request}{path}"


def _id_of(data: Any) -> str:
    match data:
        case {"id": int(number)} | {"who": {"id": int(number)}}:
            return f"request {number}, "
        case _:
            return ""

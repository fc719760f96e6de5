"""Values of the core as plain JSON data and back: equal values, equal text, in every process.

Dataclasses carry their class as `module:name` and only the fields that differ from the defaults. Reading builds nothing but
dataclasses of modules of this package, or of modules the reader has imported.
"""

import sys
from dataclasses import MISSING, fields, is_dataclass
from importlib import import_module
from operator import attrgetter
from typing import Any, cast

from rpds import HashTrieMap, List

_PACKAGE = __name__.partition(".")[0]
_CLASS = "class"


def to_json(value: Any) -> Any:
    """`value` as JSON data. Raises TypeError for what is no value of the core."""
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
    if not is_dataclass(value) or isinstance(value, type):
        raise TypeError(f"a {type(value).__name__} cannot be written: {value!r}")
    cls = type(value)
    data: dict[str, Any] = {_CLASS: f"{cls.__module__}:{cls.__qualname__}"}
    for field in fields(value):
        given = attrgetter(field.name)(value)
        if field.default is MISSING or (field.default is not given and field.default != given):
            data[field.name] = to_json(given)
    return data


def from_json(data: Any) -> Any:
    """The value that `to_json` wrote. Raises ValueError for data that names an unknown class or field."""
    match data:
        case list():
            return tuple(from_json(item) for item in cast(list[Any], data))
        case {"bytes": text}:
            return bytes.fromhex(text)
        case {"set": items}:
            return frozenset(from_json(item) for item in items)
        case {"map": items}:
            return HashTrieMap({from_json(key): from_json(value) for key, value in items})
        case {"list": items}:
            return List([from_json(item) for item in items])
        case {"class": name, **values}:
            cls = _class(name)
            known = {field.name for field in fields(cls)}
            unknown = sorted(set(values) - known)
            if unknown:
                raise ValueError(f"{name} has no field {unknown[0]!r}: the data is of another version")
            return cls(**{key: from_json(value) for key, value in values.items()})
        case dict():
            raise ValueError(f"data without a class: {sorted(cast(dict[str, Any], data))}")
        case _:
            return data


def _class(name: str) -> Any:
    module_name, _, class_name = name.partition(":")
    if module_name != _PACKAGE and not module_name.startswith(f"{_PACKAGE}.") and module_name not in sys.modules:
        raise ValueError(f"the data holds a {class_name} of module {module_name}: import that module before reading")
    cls = vars(import_module(module_name)).get(class_name)
    if not isinstance(cls, type) or not is_dataclass(cls):
        raise ValueError(f"module {module_name} has no value class {class_name}")
    return cls

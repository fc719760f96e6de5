"""Core values to and from JSON data. Equal values have equal JSON text in every process.

A dataclass is written as its class path, such as `dlstep.core:SequenceState`, and its fields without
defaults. Reading only creates core values, strategies, rules and their `Extra` state, and imports
only this package: import the module of a user-defined class before reading.
"""

import sys
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from importlib import import_module
from operator import attrgetter
from pkgutil import iter_modules
from typing import Any, cast

from rpds import HashTrieMap, List

from .block import Extra
from .options import Options

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

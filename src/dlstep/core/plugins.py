"""Strategies and rules by name: modules of this package, entry points, and a user's files. Nothing is registered."""

import pkgutil
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, is_dataclass
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import module_from_spec, spec_from_file_location
from inspect import isabstract
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar, cast

from .checks import short
from .options import Options, by_default

Kind = TypeVar("Kind", bound=Options)
LONGEST_NAME = 200  # that messages quote in full


@dataclass(frozen=True, slots=True)
class Shelf(Generic[Kind]):
    """The classes of one kind that can be named.

    `word` is the kind in messages, `constant` the name that a module gives its class, `package` the path of the package with
    one module for each class; entry points are announced in the group of the same name.
    """

    word: str
    constant: str
    base: type[Kind]
    package: str
    aliases: Mapping[str, str] = field(default_factory=dict[str, str])

    def own(self) -> tuple[str, ...]:
        """Names in this package, found without importing any."""
        path = import_module(self.package).__path__
        return tuple(module.name for module in pkgutil.iter_modules(path) if not module.name.startswith("_"))

    def available(self) -> tuple[str, ...]:
        """Names in this package and those that installed packages announce, found without importing any."""
        return tuple(sorted({*self.own(), *self._announced()}))

    def is_known(self, name: str) -> bool:
        """Whether this name alone is enough, without a path to a module."""
        return self.aliases.get(name, name) in self.available()

    def load(self, name: str) -> type[Kind]:
        """The class with this name: a module here, an entry point, a dotted module path, `module:Class`, or a .py file.

        Raises ValueError for a name that leads nowhere; what the code of a module raises is raised as it is.
        """
        name = self.aliases.get(name, name)
        if name in self.own():
            return self._class(name, vars(import_module(f"{self.package}.{name}")), self.constant)
        if name in (announced := self._announced()):
            found = announced[name].load()
            return self._class(name, vars(found) if isinstance(found, ModuleType) else {self.constant: found}, self.constant)
        place, _, own_class = name.partition(":")
        if place.endswith(".py") or "/" in place or "\\" in place:
            module = self._file(name, Path(place))
        elif "." in place or own_class:
            module = self._module(name, place)
        else:
            raise ValueError(
                f"{self.word} {_quoted(name)} is unknown: choose from {', '.join(self.available())}, or give a dotted module "
                "path or the path of a .py file"
            )
        return self._class(name, vars(module), own_class or self.constant)

    def value(self, given: str | type[Kind] | Kind) -> Kind:
        """A value as it is, a class or a name with its default options. Raises ValueError for what cannot be made so."""
        if isinstance(given, self.base):
            return given
        cls = self.load(given) if isinstance(given, str) else given
        if not (isinstance(cls, type) and issubclass(cls, self.base)) or isabstract(cls):
            raise ValueError(f"a {self.word} must be a name, a class or a value, got {short(given)}")
        return by_default(cls)

    def name_of(self, cls: type) -> str | None:
        """The name in this package by which a class is found; None for one from elsewhere."""
        package, _, name = cls.__module__.rpartition(".")
        return name if package == self.package and name in self.own() and self.load(name) is cls else None

    def _announced(self) -> dict[str, EntryPoint]:
        return {point.name: point for point in entry_points(group=self.package)}

    def _class(self, name: str, found: Mapping[str, Any], constant: str) -> type[Kind]:
        """The class that a module calls `constant`. Raises ValueError if it is none, or none of this kind."""
        if constant not in found:
            others = [each for each in ("STRATEGY", "RULE") if each in found]
            more = f" (it has a {others[0]}, which is another kind)" if others and constant == self.constant else ""
            remedy = (
                f"let its last line be {constant} = YourClass" if constant == self.constant else f"it defines no {constant}"
            )
            raise ValueError(f"{self.word} {_quoted(name)} has no class{more}: {remedy}")
        cls: Any = found[constant]
        if not (isinstance(cls, type) and issubclass(cls, self.base) and is_dataclass(cls)) or isabstract(cls):
            kind = f"a dataclass that derives from dlstep.core.{self.base.__name__} and has all of its methods"
            raise ValueError(f"{self.word} {_quoted(name)}: {constant} must be {kind}, got {short(found[constant])}")
        return cast("type[Kind]", cls)

    def _module(self, name: str, path: str) -> ModuleType:
        """The module with this dotted path."""
        parts = path.split(".")
        parents = {".".join(parts[:count]) for count in range(1, len(parts) + 1)}
        try:
            if not all(map(str.isidentifier, parts)):
                raise ModuleNotFoundError(name=path)
            return import_module(path)
        except ModuleNotFoundError as error:
            if error.name not in parents and error.name != path:
                raise self._lacking(name, error) from error
            raise ValueError(
                f"{self.word} {_quoted(name)} is unknown: Python finds no module {short(error.name)}; give one of "
                f"{', '.join(self.available())}, the path of a .py file, or add the folder of your module to PYTHONPATH"
            ) from error

    def _file(self, name: str, path: Path) -> ModuleType:
        """The module in a file, under the name of the file, so that what it defines can be saved and read again."""
        if not path.exists():
            raise ValueError(f"{self.word} {_quoted(name)} is unknown: it must be the path of a .py file, and there is none")
        if not path.is_file() or path.suffix != ".py" or not path.stem.isidentifier():
            raise ValueError(
                f"{self.word} {_quoted(name)} is unknown: it must be the path of a .py file that is named like a Python module"
            )
        place = path.resolve()
        if (loaded := sys.modules.get(place.stem)) is not None:
            if (file := vars(loaded).get("__file__")) is not None and Path(file).resolve() == place:
                return loaded
            raise ValueError(
                f"{self.word} {_quoted(name)}: a module {place.stem!r} is loaded already, give the file another name"
            )
        spec = spec_from_file_location(place.stem, place)
        assert spec is not None and spec.loader is not None
        module = module_from_spec(spec)
        sys.modules[place.stem] = module  # dataclasses look their module up
        done = False
        try:
            with searched(place.parent):
                spec.loader.exec_module(module)
            done = True
        except ModuleNotFoundError as error:
            raise self._lacking(name, error) from error
        finally:
            if not done:
                del sys.modules[place.stem]
        return module

    def _lacking(self, name: str, error: ModuleNotFoundError) -> ValueError:
        needs = f"it needs the module {short(error.name)}, which Python does not find"
        return ValueError(f"{self.word} {_quoted(name)} cannot be imported: {needs}")


def _quoted(name: str) -> str:
    return repr(name) if len(name) <= LONGEST_NAME else short(name)


@contextmanager
def searched(folder: Path) -> Generator[None]:
    """Python looks for modules in `folder` first."""
    entry = str(folder)
    sys.path.insert(0, entry)
    try:
        yield
    finally:
        if entry in sys.path:
            sys.path.remove(entry)

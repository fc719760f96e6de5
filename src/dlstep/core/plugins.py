"""Lookup of strategies and rules by name: modules of this package, entry points and user files."""

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
LONGEST_NAME = 200  # characters of a name that messages quote in full


@dataclass(frozen=True, slots=True)
class PluginGroup(Generic[Kind]):
    """All classes of one kind (strategies or rules), found by name."""

    word: str
    """The kind, as messages call it."""
    constant: str
    """Module attribute that holds the class."""
    base: type[Kind]
    """Class from which all classes of this kind derive."""
    package: str
    """Package with one module per class; also the name of the entry point group."""
    aliases: Mapping[str, str] = field(default_factory=dict[str, str])
    """Other names of some classes."""

    def own(self) -> tuple[str, ...]:
        """Return the names in this package, without importing any module."""
        path = import_module(self.package).__path__
        return tuple(module.name for module in pkgutil.iter_modules(path) if not module.name.startswith("_"))

    def available(self) -> tuple[str, ...]:
        """Return the names in this package and of installed entry points, without importing any."""
        return tuple(sorted({*self.own(), *self._entry_points()}))

    def is_known(self, name: str) -> bool:
        """Return whether this name needs no path to a module.

        Args:
            name: A name or an alias.
        """
        return self.aliases.get(name, name) in self.available()

    def load(self, name: str) -> type[Kind]:
        """Return the class that a name stands for. Errors of its module's own code propagate unchanged.

        Args:
            name: A module of this package, an entry point, a dotted path, `module:Class`, or the
                path of a .py file.

        Raises:
            ValueError: For an unknown name, or a module without such a class.
        """
        name = self.aliases.get(name, name)
        if name in self.own():
            return self._class(name, vars(import_module(f"{self.package}.{name}")), self.constant)
        if name in (points := self._entry_points()):
            loaded = points[name].load()
            names = vars(loaded) if isinstance(loaded, ModuleType) else {self.constant: loaded}
            return self._class(name, names, self.constant)
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
        """Return a value as is, or an instance of a class with default options.

        Args:
            given: A value, a class, or a name as `load` takes it.

        Raises:
            ValueError: If it is none of these.
        """
        if isinstance(given, self.base):
            return given
        cls = self.load(given) if isinstance(given, str) else given
        if not (isinstance(cls, type) and issubclass(cls, self.base)) or isabstract(cls):
            raise ValueError(f"a {self.word} must be a name, a class or a value, got {short(given)}")
        return by_default(cls)

    def name_of(self, cls: type) -> str | None:
        """Return the name of a class in this package; None for a class from elsewhere.

        Args:
            cls: A class.
        """
        package, _, name = cls.__module__.rpartition(".")
        return name if package == self.package and name in self.own() and self.load(name) is cls else None

    def _entry_points(self) -> dict[str, EntryPoint]:
        return {point.name: point for point in entry_points(group=self.package)}

    def _class(self, name: str, names: Mapping[str, Any], constant: str) -> type[Kind]:
        """Return the class that a module calls `constant`. Raises ValueError if there is none."""
        if constant not in names:
            others = [other for other in ("STRATEGY", "RULE") if other in names]
            more = f" (it has a {others[0]}, which is another kind)" if others and constant == self.constant else ""
            remedy = (
                f"let its last line be {constant} = YourClass" if constant == self.constant else f"it defines no {constant}"
            )
            raise ValueError(f"{self.word} {_quoted(name)} has no class{more}: {remedy}")
        cls: Any = names[constant]
        if not (isinstance(cls, type) and issubclass(cls, self.base) and is_dataclass(cls)) or isabstract(cls):
            kind = f"a dataclass that derives from dlstep.core.{self.base.__name__} and has all of its methods"
            raise ValueError(f"{self.word} {_quoted(name)}: {constant} must be {kind}, got {short(names[constant])}")
        return cast("type[Kind]", cls)

    def _module(self, name: str, path: str) -> ModuleType:
        """Return the module with this dotted path."""
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
        """Return the module in a file, named after the file so that its values can be saved."""
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
        sys.modules[place.stem] = module  # dataclasses look up their module here
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
    """Make Python search `folder` for modules first."""
    entry = str(folder)
    sys.path.insert(0, entry)
    try:
        yield
    finally:
        if entry in sys.path:
            sys.path.remove(entry)

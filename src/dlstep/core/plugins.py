"""Lookup of strategies and rules by name: modules of this package, entry points and user files."""

import pkgutil
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, is_dataclass
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import module_from_spec, spec_from_file_location
from inspect import isabstract, signature
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Generic, TypeVar

from .checks import did_you_mean, short
from .faults import defined, of_import
from .options import Options, by_default

Kind = TypeVar("Kind", bound=Options)
LONGEST_NAME = 200  # characters; messages shorten longer names
DECORATOR = "@dataclass(frozen=True, slots=True)"


class ImportFailed(ValueError):
    """A failed import of the module of a strategy or rule. `__cause__` is the exception that the module raised."""


@dataclass(frozen=True, slots=True)
class PluginGroup(Generic[Kind]):
    """All classes of one kind (strategies or rules), found by name."""

    word: str
    """Name of the kind in messages."""
    constant: str
    """Module attribute that holds the class."""
    base: type[Kind]
    """Class from which all classes of this kind derive."""
    package: str
    """Package with one module per class; also the name of the entry point group."""
    other: tuple[str, str]
    """Option and package of the other kind, to recognise a name that is given as the wrong option."""
    aliases: Mapping[str, str] = field(default_factory=dict[str, str])
    """Other names of some classes."""

    def own(self) -> tuple[str, ...]:
        """Return the names in this package, without importing any module."""
        return _modules(self.package)

    def available(self) -> tuple[str, ...]:
        """Return the names in this package and those of installed entry points, without importing any module."""
        return tuple(sorted({*self.own(), *self._entry_points()}))

    def is_known(self, name: str) -> bool:
        """Return whether a name can be loaded without a path.

        Args:
            name: A name or an alias.
        """
        return self.aliases.get(name, name) in self.available()

    def load(self, name: str) -> type[Kind]:
        """Return the class that a name stands for.

        Args:
            name: A module of this package, an entry point, a dotted path, `module:Class`, or the
                path of a .py file.

        Raises:
            ValueError: For an unknown name, or a class that cannot be used.
            ImportFailed: For an error of the module's own code.
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
            raise ValueError(f"{self.word} {_quoted(name)} is unknown: {self._meant(name)}")
        return self._class(name, vars(module), own_class or self.constant)

    def _meant(self, name: str) -> str:
        """Return what to give instead of an unknown name."""
        option, package = self.other
        if name in _modules(package):
            return f"did you mean {option}={name!r}?"
        if near := did_you_mean(name, self.available()):
            return f"{near} `dlstep {self.package.rpartition('.')[2]}` lists all of them"
        return f"choose from {', '.join(self.available())}, or give a dotted module path or the path of a .py file"

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
        if not (isinstance(cls, type) and issubclass(cls, self.base)) or cls is self.base:
            raise ValueError(f"a {self.word} must be a name, a class or a value, got {short(given)}")
        if flaw := _flaw(cls):
            raise ValueError(f"{self.word} {flaw}")
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
        if not (isinstance(cls, type) and issubclass(cls, self.base)):
            kind = f"a dataclass that derives from dlstep.core.{self.base.__name__}"
            hint = f": write {constant} = {type(cls).__name__}, without brackets" if isinstance(cls, self.base) else ""
            raise ValueError(f"{self.word} {_quoted(name)}: {constant} must be {kind}, got {short(names[constant])}{hint}")
        if flaw := _flaw(cls):
            raise ValueError(f"{self.word} {_quoted(name)}: {flaw}")
        return cls

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
        except (Exception, SystemExit) as error:  # the user's module may raise anything
            raise self._failed(name, error) from error

    def _file(self, name: str, path: Path) -> ModuleType:
        """Return the module in a file. It is named after the file, so that values of its classes can be saved."""
        if not path.exists():
            raise ValueError(f"{self.word} {_quoted(name)} is unknown: there is no such file; give the path of a .py file")
        if not path.is_file() or path.suffix != ".py" or not path.stem.isidentifier():
            raise ValueError(
                f"{self.word} {_quoted(name)} cannot be loaded: give the path of a .py file whose name is a Python "
                "identifier, such as my_rule.py"
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
        except (Exception, SystemExit) as error:  # the user's module may raise anything
            raise self._failed(name, error) from error
        finally:
            if not done:
                del sys.modules[place.stem]
        return module

    def _lacking(self, name: str, error: ModuleNotFoundError) -> ValueError:
        needs = f"it needs the module {short(error.name)}, which Python does not find"
        return ValueError(f"{self.word} {_quoted(name)} cannot be imported: {needs}")

    def _failed(self, name: str, error: BaseException) -> ImportFailed:
        frozen = f": write {DECORATOR} above the class" if "non-frozen dataclass" in str(error) else ""
        return ImportFailed(f"{self.word} {_quoted(name)} cannot be imported: {of_import(error)}{frozen}")


def _modules(package: str) -> tuple[str, ...]:
    """Return the names of the public modules of a package, without importing them."""
    path = import_module(package).__path__
    return tuple(module.name for module in pkgutil.iter_modules(path) if not module.name.startswith("_"))


def _flaw(cls: type[Options]) -> str | None:
    """Return why a class cannot be used; None if it can."""
    if isabstract(cls):
        missing: frozenset[str] = vars(cls)["__abstractmethods__"]
        return f"{cls.__name__} does not define {', '.join(sorted(missing))}"
    if not is_dataclass(cls) or ("__dataclass_fields__" not in vars(cls) and "__annotations__" in vars(cls)):
        return f"{cls.__name__} is no dataclass: write {DECORATOR} above it"
    return _wrong_signature(cls)


def _wrong_signature(cls: type[Options]) -> str | None:
    """Return a message about a method that cannot be called like the one it overrides; None if there is none."""
    for name, method in vars(cls).items():
        known = next((vars(base)[name] for base in cls.__mro__[1:] if name in vars(base)), None)
        if name.startswith("_") or not (isinstance(method, FunctionType) and isinstance(known, FunctionType)):
            continue
        arguments = list(signature(known).parameters)
        try:
            signature(method).bind(*arguments)
        except TypeError:
            takes, called = ", ".join(signature(method).parameters), ", ".join(arguments)
            return f"{cls.__name__}.{name}{defined(cls, name)} takes ({takes}), but it is called with ({called})"
    return None


def _quoted(name: str) -> str:
    return repr(name) if len(name) <= LONGEST_NAME else short(name)


@contextmanager
def searched(folder: Path) -> Generator[None]:
    """Put `folder` first on the search path for modules until the end of the block."""
    entry = str(folder)
    sys.path.insert(0, entry)
    try:
        yield
    finally:
        if entry in sys.path:
            sys.path.remove(entry)

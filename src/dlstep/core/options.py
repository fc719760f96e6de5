"""Options of strategies, rules and processors, and how the core finds these by name.

The options of a strategy are its fields and those of its rule, in one flat namespace. A name refers to a module
of this package, an entry point or a user file.
"""

import pkgutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Generator, Hashable, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from importlib import import_module, invalidate_caches
from importlib.metadata import EntryPoint, entry_points
from inspect import isabstract, signature
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, ClassVar, Generic, TypeVar

from .checks import (
    LONGEST_NAME,
    Checked,
    Fields,
    Json,
    Texts,
    did_you_mean,
    listed,
    pairs_of,
    plain,
    short,
    text_of,
    values_of,
    whole_numbers,
)
from .errors import Refused, defined, described, of_import


@dataclass(frozen=True, slots=True)
class Options(Checked):
    """Base of strategies and rules, whose fields are options."""

    SWEEP: ClassVar[tuple[str, tuple[Any, ...]] | None] = None
    """Name and values of the option that `dlstep compare` varies; None if it varies none."""


Value = TypeVar("Value", bound=Options)
StrategyOptions = tuple[tuple[str, Any], ...]  # sorted by name, so that equal options are equal values
_PLAIN = (bool, int, float, str)


def sorted_options(owner: str, given: object) -> StrategyOptions:
    """Return options from a mapping or from (name, value) pairs, sorted by name.

    `owner` is the field that has the options. Raises Refused for a name that is not a text or is repeated, and for a value
    that is not a number, text, bool, None, rule or list of integers. Lists become tuples, and rule classes become instances.
    """
    pairs, kept = pairs_of(given), Json()
    for pair in [None] if pairs is None else pairs:
        match listed(pair):
            case [given_name, option] if (name := text_of(given_name)) is not None:
                if name in kept:
                    raise Refused(owner, "conflict", f"{name!r} is set twice")
                kept[name] = _option(name, option)
            case _:
                raise Refused(owner, "invalid_type", f"must be a mapping of names to values, got {short(given)}")
    return tuple(sorted(kept.items()))


def _option(name: str, given: object) -> Any:
    """Return the stored form of an option's value. Raises Refused for an invalid value."""
    option: Any = plain(given)
    if isinstance(given, type) and issubclass(given, Options) and not isabstract(given):
        option = by_default(given)
    many = whole_numbers(option)
    if many is not None:
        return many
    if option is None or type(option) in _PLAIN or isinstance(option, Options):
        return option
    raise Refused(
        name,
        "invalid_type",
        f"must be a number, a text, True, False, None, a rule or a list of whole numbers, got {short(option)}",
    )


def by_default(cls: type[Value]) -> Value:
    """Return an instance with default options. Raises ValueError if one has no default."""
    for each in fields(cls):
        if each.init and each.default is MISSING and each.default_factory is MISSING:
            raise ValueError(f"{cls.__name__}.{each.name} has no default: each option of a strategy or rule needs one")
    value = cls()
    for name, option in options_of(value).items():
        if not isinstance(option, Hashable):
            raise ValueError(f"{cls.__name__}.{name}={short(option)} can change: give a number, a text or a tuple")
    return value


def options_of(value: Options) -> Json:
    """Return every option of `value` by name: its fields, and those of the rules in its fields.

    Args:
        value: A strategy or a rule.
    """
    own = values_of(value)
    held = [options_of(part) for part in own.values() if isinstance(part, Options)]
    return {name: option for part in held for name, option in part.items()} | own


def with_options(value: Value, options: Fields) -> Value:
    """Return `value` with some options changed. A new rule is set before its own options are.

    Args:
        value: A strategy or a rule.
        options: New values by name, also of options of the rules in its fields.

    Raises:
        Refused: For an unknown name or a value out of range.
    """
    if not options:
        return value
    own = {field.name for field in fields(value)}
    direct = {name: option for name, option in options.items() if name in own}
    rest = {name: option for name, option in options.items() if name not in own}
    value = _changed(value, direct) if direct else value
    for name in own:
        part = getattr(value, name)
        if isinstance(part, Options) and (of_part := _pop_options_of(part, rest)):
            value = _changed(value, {name: with_options(part, of_part)})
    for name, option in rest.items():
        raise Refused(name, "unknown_field", unknown_option(type(value).__name__, name, option, options_of(value)))
    return value


def _pop_options_of(part: Options, rest: Json) -> Json:
    """Remove the options of `part` from `rest`, and return them."""
    known = set(options_of(part))
    # The options of a rule that replaces a rule nested in `part` are known as well.
    for name in known.intersection(rest):
        known.update(options_of(rest[name]) if isinstance(rest[name], Options) else ())
    return {name: rest.pop(name) for name in list(rest) if name in known}


def _changed(value: Value, options: Fields) -> Value:
    """Return `value` with some fields changed. Convert any error of its class to Refused."""
    try:
        return replace(value, **options)
    except (Refused, KeyboardInterrupt):
        raise
    except BaseException as error:  # the boundary of the constructor of a strategy or rule
        message = str(error) if isinstance(error, ValueError) else described(error)
        raise Refused(next(iter(options)), "invalid_value", f"{type(value).__name__} refuses it: {message}") from error


def unknown_option(owner: str, name: str, value: object, known: Iterable[str], hint: str = "") -> str:
    """Return the message for an unknown option, hinting at the nearest name or all names."""
    known = sorted(known)
    hint = hint or did_you_mean(name, known) or (f"options are {', '.join(known)}" if known else "it has no options")
    return f"{owner} has no option {short(name)}, but {name[:40]}={short(value)} is given: {hint}"


Kind = TypeVar("Kind", bound=Options)
DECORATOR = "@dataclass(frozen=True, slots=True)"


@dataclass(frozen=True, slots=True)
class Plugins(ABC):
    """A kind of code that is found by name: in this package, by an installed entry point, or in a user's module or file."""

    EXAMPLE: ClassVar[str] = "YourClass"
    """Example of a value of `constant`, for messages."""

    word: str
    """Name of the kind in messages."""
    constant: str
    """Module attribute that holds the class or value."""
    package: str
    """Package of this kind; also the name of the entry point group."""

    @abstractmethod
    def own(self) -> Texts:
        """Return the names in this package, without importing any module."""

    def available(self) -> Texts:
        """Return the names in this package and those of installed entry points, without importing any module."""
        return tuple(sorted({*self.own(), *self._entry_points()}))

    def found(self, name: str) -> tuple[str, Any]:
        """Return the name and the value of the attribute that a name outside this package refers to.

        Args:
            name: An entry point, a dotted path, `module:Name`, or the path of a .py file.

        Raises:
            ValueError: For an unknown name, a missing attribute, or an error of the module's own code, which is the
                `__cause__`.
        """
        place, _, own = name.partition(":")
        if point := self._entry_points().get(name):
            module, own = self._module(name, point.module), point.attr
        elif place.endswith(".py") or "/" in place or "\\" in place:
            module = self._file(name, Path(place))
        elif "." in place or own:
            module = self._module(name, place)
        else:
            raise ValueError(f"{self.word} {name[:LONGEST_NAME]!r} is unknown: {self._meant(name)}")
        names, constant = vars(module), own or self.constant
        if constant not in names:
            others = [other for other in ("STRATEGY", "RULE", "PROCESSOR", "FAMILY") if other in names]
            more = f" (it has a {others[0]}, which is another kind)" if others else ""
            remedy = f"has no {constant}{more}: let its last line be {constant} = {self.EXAMPLE}"
            raise ValueError(f"{self.word} {name!r} {f'defines no {own}' if own else remedy}")
        return constant, names[constant]

    def _meant(self, name: str) -> str:
        """Return what to give instead of an unknown name, for a message."""
        if near := did_you_mean(name, self.available()):
            return f"{near} `dlstep {self.package.rpartition('.')[2]}` lists all of them"
        return f"choose from {', '.join(self.available())}, or give a dotted module path or the path of a .py file"

    def _entry_points(self) -> dict[str, EntryPoint]:
        return {point.name: point for point in entry_points(group=self.package)}

    def _module(self, name: str, path: str) -> ModuleType:
        """Return the module with this dotted path."""
        try:
            if not all(map(str.isidentifier, path.split("."))):
                raise ModuleNotFoundError(name=path)
            return import_module(path)
        except ModuleNotFoundError as error:
            if f"{path}.".startswith(f"{error.name}."):
                raise ValueError(
                    f"{self.word} {name!r} is unknown: Python finds no module {short(error.name)}; give one of "
                    f"{', '.join(self.available())}, the path of a .py file, or add the folder of your module to PYTHONPATH"
                ) from error
            needs = f"it needs the module {short(error.name)}, which Python does not find"
            raise ValueError(f"{self.word} {name!r} cannot be imported: {needs}") from error
        except (Exception, SystemExit) as error:  # the user's module may raise anything
            frozen = f": write {DECORATOR} above the class" if "non-frozen dataclass" in str(error) else ""
            raise ValueError(f"{self.word} {name!r} cannot be imported: {of_import(error)}{frozen}") from error

    def _file(self, name: str, path: Path) -> ModuleType:
        """Return the module in a file. It is named after the file, so that values of its classes can be saved."""
        if not path.exists():
            raise ValueError(f"{self.word} {name!r} is unknown: there is no such file; give the path of a .py file")
        if not path.is_file() or path.suffix != ".py" or not path.stem.isidentifier():
            raise ValueError(
                f"{self.word} {name!r} cannot be loaded: give the path of a .py file whose name is a Python "
                "identifier, such as my_rule.py"
            )
        place = path.resolve()
        invalidate_caches()  # the file may be new
        with searched(place.parent):
            module = self._module(name, place.stem)
        if Path(vars(module).get("__file__") or "").resolve() != place:
            raise ValueError(f"{self.word} {name!r}: a module {place.stem!r} is loaded already, give the file another name")
        return module


@dataclass(frozen=True, slots=True)
class PluginGroup(Plugins, Generic[Kind]):
    """All classes of one kind (strategies or rules). `package` has one module per class."""

    base: type[Kind]
    """Class from which all classes of this kind derive."""
    other: tuple[str, str]
    """Option and package of the other kind, to recognise a name that is given as the wrong option."""
    aliases: Mapping[str, str] = field(default_factory=dict[str, str])
    """Other names of some classes."""

    def own(self) -> Texts:
        """Return the names in this package, without importing any module."""
        return _modules(self.package)

    def owners(self) -> dict[str, list[str]]:
        """Return each option of the classes in this package, with the names of the classes that have it."""
        found: dict[str, list[str]] = {}
        for name in self.own():
            for own in fields(self.load(name)):
                found.setdefault(own.name, []).append(name)
        return found

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
            ValueError: For an unknown name, a class that cannot be used, or an error of the module's own code, which is
                the `__cause__`.
        """
        name = self.aliases.get(name, name)
        if name in self.own():
            constant, value = self.constant, vars(import_module(f"{self.package}.{name}"))[self.constant]
        else:
            constant, value = self.found(name)
        cls: Any = value
        if not (isinstance(cls, type) and issubclass(cls, self.base)):
            kind = f"a dataclass that derives from dlstep.core.{self.base.__name__}"
            hint = f": write {constant} = {type(cls).__name__}, without brackets" if isinstance(cls, self.base) else ""
            raise ValueError(f"{self.word} {name!r}: {constant} must be {kind}, got {short(value)}{hint}")
        if flaw := _flaw(cls):
            raise ValueError(f"{self.word} {name!r}: {flaw}")
        return cls

    def _meant(self, name: str) -> str:
        """Return what to give instead of an unknown name, which may name the other kind."""
        option, package = self.other
        return f"did you mean {option}={name!r}?" if name in _modules(package) else Plugins._meant(self, name)

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
        if not (isinstance(cls, type) and issubclass(cls, self.base)):
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
        return name if package == self.package and vars(sys.modules[cls.__module__]).get(self.constant) is cls else None


def _modules(package: str) -> Texts:
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

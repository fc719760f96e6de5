"""The command-line parser: options from dataclasses, with typed values written as YAML, and options from YAML files.

argparse parses the words. Its own types, choices and messages are replaced: a value is read as YAML and checked against a
type hint, and every mistake is a ValueError with a sentence.
"""

import argparse
import re
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import suppress
from dataclasses import MISSING, fields
from pathlib import Path
from textwrap import fill, indent
from types import NoneType, UnionType
from typing import Any, Literal, NoReturn, TypeVar, Union, get_args, get_origin, get_type_hints

import yaml

from ..core.checks import check_ranges
from ..core.options import Options
from ..engine.option_errors import meant
from ..engine.option_help import field_help
from ..text.words import WIDTH
from . import yaml_file

# For each type: its name in the help, and in messages. For a union, messages name them in this order.
TYPES = {
    int: ("INT", "a whole number"),
    float: ("NUMBER", "a number"),
    bool: ("{true,false}", "true or false"),
    str: ("TEXT", "a text"),
    Path: ("PATH", "a path"),
    dict: ("JSON", "a mapping like {name: value}"),
}
# The type of an option on the command line, if it is another one than that of the field.
HINTS = {"decoding_strategy": str | None, "max_tokens": int | None, "json_schema": str | dict[str, Any] | None}
SHORT = {"tensor_parallel_size": ("--tp",)}  # names that other servers use
SCHEMA_HELP = "A JSON schema that the answer conforms to: a JSON file, or JSON text. In an option file, also a mapping."
# Python names of options in messages, such as `EngineConfig.seed`, which become flags.
START = r"(?<![\w/\\.'\"-])"  # not inside paths, quoted texts or other names
# An option that is qualified by its class or followed by a value.
QUALIFIED = START + r"(?:(?:[A-Z]\w*(?:Command|Options|Config|Params)|{owners})\.({names})\b|({names})=('[^' ]*'))"
# An option in a hint, where known names always mean options: bare names and values without quotes match as well.
BARE = START + r"(?:[A-Z]\w*\()?({names})\b()(?:=('[^' ]*'|-?\w+|\.\.\.))?\)?"
Owner = TypeVar("Owner")


class Namespace(argparse.Namespace):
    """Parsed options, also accessible by name: `options["seed"]`."""

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)

    def of(self, owner: Callable[..., Owner]) -> Owner:
        """Return a dataclass with the options that its fields name."""
        names = [field.name for field in fields(owner)]  # pyright: ignore[reportArgumentType]
        return owner(**{name: self[name] for name in names if name in vars(self)})


def kinds(hint: Any) -> tuple[Any, ...]:
    """Return the members of a union, or the only type."""
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def shown(hint: Any) -> str:
    """Return a type as the help shows it."""
    members = [kind for kind in kinds(hint) if kind is not NoneType]
    words = next((get_args(kind) for kind in members if get_origin(kind) is Literal), ())
    if words:
        return f"{{{','.join(map(str, words))}}}"
    lists = [get_args(kind)[0] for kind in members if get_origin(kind) in (list, tuple)]
    if lists:
        return f"[{shown(lists[0])},...]"
    return TYPES.get(get_origin(members[0]) or members[0], ("JSON", ""))[0]


def in_words(hint: Any) -> str:
    """Return a description of the values that a type allows."""
    members = kinds(hint)
    origins = [get_origin(kind) or kind for kind in members]
    alternatives = [words for kind, (_, words) in TYPES.items() if kind in origins]
    alternatives += [f"one of {', '.join(map(repr, get_args(kind)))}" for kind in members if get_origin(kind) is Literal]
    items = [get_args(kind)[0] for kind in members if get_origin(kind) is list]
    alternatives += [f"a list like {'[one,two]' if item is str else '[1,2]'}" for item in items]
    return " or ".join(alternatives + ["null"] * (NoneType in members))


def fitted(value: Any, hint: Any) -> Any:
    """Return a value converted to a type; an int also fits float. Raises TypeError if it does not fit."""
    kind, arguments = get_origin(hint) or hint, get_args(hint)
    if kind in (Union, UnionType):
        for each in arguments:
            with suppress(TypeError):
                return fitted(value, each)
    elif kind is list and isinstance(value, list):
        return [fitted(each, arguments[0]) for each in value]
    elif (kind is float and type(value) is int) or (kind is Path and type(value) is str):
        return Path(str(value)) if kind is Path else float(value)
    elif kind is Any or (kind is Literal and value in arguments) or (kind is not Literal and type(value) is kind):
        return value
    raise TypeError(f"{value!r} is not of type {hint}")


class StoreOption(argparse.Action):
    """An action that stores a typed value. A list also has an option `--name+`, which appends."""

    def __init__(self, option_strings: Sequence[str], dest: str, *, hint: Any = str, **options: Any) -> None:
        self.wraps = get_origin(hint) is tuple  # one item is given without brackets
        self.hint = list[get_args(hint)[0]] | get_args(hint)[0] if self.wraps else hint
        if isinstance(options.get("default"), tuple):
            options["default"] = list(options["default"])
        if options.get("nargs") != 0:
            options = {"metavar": shown(self.hint)} | options
        appending = [f"{name}+" for name in option_strings if any(get_origin(each) is list for each in kinds(self.hint))]
        super().__init__([*option_strings, *appending], dest, **options)
        # argparse's own message for missing arguments is less clear, so `ArgumentParser.parse_args` checks them.
        self.needed, self.required = self.required, False

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        """Store the values of the option, unless an optional positional argument was omitted."""
        if values is not None:
            self.take(namespace, True if self.nargs == 0 else values, option_string or "")

    def take(self, namespace: Any, raw: Any, flag: str, *, loaded: bool = False) -> None:
        """Set the option to a value, or append to it if the flag ends with +."""
        if self.nargs == "+":
            value = [self.read(each, loaded) for each in (raw if isinstance(raw, list) else [raw])]
        else:
            value = self.read(raw, loaded)
        if flag.endswith("+"):
            both = (getattr(namespace, self.dest), value)
            value = [item for each in both for item in (each if isinstance(each, list) else [each])]
        setattr(namespace, self.dest, [value] if self.wraps and not isinstance(value, list) else value)

    def read(self, raw: Any, loaded: bool) -> Any:
        """Return the value of a command-line text, or of a value `loaded` from a file.

        Raises ValueError if it does not have the option's type.
        """
        values = [raw]
        if isinstance(raw, str) and raw:
            with suppress(yaml.YAMLError, ValueError, RecursionError):
                meaning = yaml_file.load(raw)
                values = [raw] if isinstance(meaning, str) else [raw, meaning] if loaded else [meaning, raw]
        for value in values:
            with suppress(TypeError):
                return fitted(value, self.hint)
        raise ValueError(f"--{self.dest} takes {in_words(self.hint)}, got {raw!r}")


class ConfigFile(argparse.Action):
    """An action that sets the options of a YAML file; later options override them."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        """Set the options that the file holds. Raise ValueError for one that the command does not have."""
        for name, value in yaml_file.options_in(values, parser.prog.rpartition(" ")[2]).items():
            if (action := parser.action_of(name)) is not None:
                action.take(namespace, value, str(name), loaded=True)
            elif not parser.partial:
                raise ValueError(f"--config: `{parser.prog}` has no option {name!r}{parser.hint(str(name))}")


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """A formatter that keeps the line breaks of examples and shows each option's default."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        if not isinstance(action, StoreOption) or action.nargs == 0 or action.needed or action.default is argparse.SUPPRESS:
            return as_yaml(action.help or "")
        default = str(action.default).lower() if isinstance(action.default, bool) else str(action.default)
        return as_yaml(f"{action.help} (default: {default.replace('%', '%%')})")


class ArgumentParser(argparse.ArgumentParser):
    """A parser that raises ValueError with a message instead of exiting.

    Its help shows a sentence and examples before the options. With `partial`, it has only some options of a command, no help,
    and ignores other names in an option file.
    """

    def __init__(self, prog: str, summary: str = "", examples: str = "", *, partial: bool = False) -> None:
        self.partial = partial
        self._checked: list[Any] = []
        description = f"{fill(' '.join(summary.split()), WIDTH)}\n\nexamples:\n{indent(examples, '  ')}"
        super().__init__(prog, description=description, formatter_class=HelpFormatter, add_help=False, allow_abbrev=False)
        self.usage = f"{prog} [options]"
        self.register("action", None, StoreOption)
        self.register("action", "config", ConfigFile)
        if not partial:
            self.add_argument("-h", "--help", action="help", help="Show this help message and exit.")

    def add_own(self, owner: Any) -> None:
        """Add the options of a command: the fields of a dataclass, whose docstrings are help texts.

        A field that is not keyword-only is a positional argument, which can be omitted if it has a default. A boolean that is
        false by default is a switch. Ranges in the annotations are checked.
        """
        texts, hints, positional = field_help(owner), get_type_hints(owner), list[str]()
        self._checked.append(owner)
        for field in fields(owner):
            hint, needed = hints[field.name], field.default is MISSING
            options: dict[str, Any] = {"help": texts[field.name], "default": None if needed else field.default}
            if field.kw_only:
                switch = hint is bool and field.default is False
                self.add_argument(f"--{field.name}", hint=hint, nargs=0 if switch else None, **options)
                continue
            several, name = get_origin(hint) is tuple, field.name.upper().removesuffix("S")
            positional.append(f"{name} [{name} ...]" if several else name if needed else f"[{name}]")
            options |= {"metavar": name, "nargs": "+" if several else None if needed else "?"}
            self.add_argument(field.name, hint=get_args(hint)[0] if several else hint, **options)
        self.usage = " ".join([self.prog, *positional, "[options]"])

    def add_options(self, owner: Any, title: str, *, without: Container[str] = ()) -> None:
        """Add a group with an option for each field of a dataclass, whose docstring is the help text."""
        group = self.add_argument_group(title)
        texts, hints = field_help(owner), get_type_hints(owner) | HINTS  # without the ranges: the dataclass checks them
        for field in fields(owner):
            if field.name not in without:
                default = None if field.name == "max_tokens" else field.default  # None: the model's default
                help_text = SCHEMA_HELP if field.name == "json_schema" else texts[field.name]
                flags = (f"--{field.name}", *SHORT.get(field.name, ()))
                group.add_argument(*flags, hint=hints[field.name], default=default, help=help_text)

    def error(self, message: str) -> NoReturn:
        """Raise ValueError with the message."""
        raise ValueError(message)

    def action_of(self, name: object) -> StoreOption | None:
        """Return the action of an option or a positional argument, or None if it does not exist."""
        positionals = {action.dest: action for action in self._get_positional_actions()}
        action = self._option_string_actions.get(f"--{name}", positionals.get(str(name)))
        return action if isinstance(action, StoreOption) else None

    def hint(self, name: str) -> str:
        """Return what an unknown option may mean, after a colon; empty if nothing is similar."""
        names = [action.dest for action in self._actions if isinstance(action, StoreOption) and action.option_strings]
        found = with_flags(meant(name, names), names, BARE)
        return f": {found}" if found else ""

    def changed(self, options: Namespace) -> dict[str, Any]:
        """Return the options that do not have their default value."""
        usual = {action.dest: action.default for action in self._actions}
        return {name: value for name, value in vars(options).items() if value != usual.get(name)}

    def parse_args(self, args: Sequence[str], namespace: Any = None) -> Any:  # type: ignore[override]
        """Return the parsed options. Raises ValueError for invalid, unknown and missing ones."""
        options, unknown = self.parse_known_args(args, namespace or Namespace())
        missing = next((each for each in self._actions if getattr(each, "needed", False) and options[each.dest] is None), None)
        if missing is not None:
            article, name = "an" if missing.dest[0] in "aeio" else "a", missing.dest.removesuffix("s")
            raise ValueError(f"{self.prog} needs {article} {name}: `{self.prog} --help` shows examples")
        if unknown:
            flag = next((each[2:].partition("=")[0] for each in unknown if each.startswith("--")), "")
            raise ValueError(f"unrecognized arguments: {' '.join(unknown)}{self.hint(flag)}")
        if vars(options).pop("print_config", False):
            texts = {name: str(value) if isinstance(value, Path) else value for name, value in vars(options).items()}
            print(yaml.safe_dump(texts, sort_keys=False, allow_unicode=True), end="")
            self.exit()
        try:
            for owner in self._checked:
                check_ranges(options.of(owner))
        except ValueError as error:
            raise ValueError(with_flags(str(error), vars(options))) from error
        return options


def with_flags(message: str, names: Iterable[str], pattern: str = QUALIFIED) -> str:
    """Return a message in which the options `names` appear as flags."""
    known = "|".join(sorted(map(re.escape, names), key=len, reverse=True))
    filled = pattern.replace("{names}", known).replace("{owners}", "|".join(_subclasses(Options)))
    return re.sub(filled, lambda found: _flag(found[1] or found[2], found[3]), message) if known else message


def as_yaml(text: str) -> str:
    """Return a text from a docstring with None written as `null`, as in YAML and on the command line."""
    return re.sub(r"\bNone\b", "null", text)


def _subclasses(cls: type) -> set[str]:
    """Return the names of a class and of all classes that derive from it."""
    return {cls.__name__}.union(*map(_subclasses, type.__subclasses__(cls)))


def _flag(name: str, value: str | None) -> str:
    """Return the flag of an option, followed by its value. A missing value and `...` are left out."""
    shown = "" if value in (None, "...") else value.strip("'")
    return f"--{name} {shown.lower() if shown in ('True', 'False') else shown}".rstrip()

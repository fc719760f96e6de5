"""The command-line parser: argparse, with typed values written as YAML, and options from YAML files."""

import argparse
import functools
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import takewhile
from textwrap import fill, indent
from types import NoneType, UnionType
from typing import Any, Literal, NoReturn, Union, get_args, get_origin

import yaml

from ..engine.option_errors import meant
from ..text.words import WIDTH
from . import yaml_file
from .flags import as_yaml, hint_with_flags

# Names of types in messages, in the order in which they appear for a union.
WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text", dict: "a mapping like {name: value}"}
SHORT = {str: "[one,two]"}  # example lists by item type


def folded(example: str, width: int = WIDTH - 2) -> list[str]:
    """Return the lines of an example. A long one continues after a backslash, and its note goes below it."""
    if len(example) <= width:
        return [example]
    line, *notes = re.split(r"(?<=\S) {2,}(?=\S)", example, maxsplit=1)
    lines = [""]
    for words in re.findall(r"--\S+ (?:'[^']*'|[^\s'-]\S*)|'[^']*'|\S+", line):  # an option and its value stay together
        if lines[-1] and len(lines[-1]) + len(words) + 3 > width:
            lines[-1] += " \\"
            lines.append(f"  {words}")
        else:
            lines[-1] += f" {words}" if lines[-1] else words
    return [*lines, *(f"      {note}" for note in notes)]


class Namespace(argparse.Namespace):
    """Parsed options, also accessible by name: `options["seed"]`."""

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)


def kinds(hint: Any) -> tuple[Any, ...]:
    """Return the members of a union, or the only type."""
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def shown(hint: Any) -> str:
    """Return a type as the help shows it."""
    names = {NoneType: "null", **{kind: kind.__name__ for kind in WORDS}}
    return " | ".join(names.get(kind, str(kind).replace("typing.", "")) for kind in kinds(hint))


def in_words(hint: Any) -> str:
    """Return a description of the values that a type allows."""
    members = kinds(hint)
    alternatives = [
        words for kind, words in WORDS.items() if kind in members or any(get_origin(each) is kind for each in members)
    ]
    alternatives += [f"one of {', '.join(map(repr, get_args(each)))}" for each in members if get_origin(each) is Literal]
    alternatives += [
        f"a list like {SHORT.get(get_args(each)[0], '[1,2]')}" for each in members if get_origin(each) in (list, tuple)
    ]
    return " or ".join(alternatives + ["null"] * (NoneType in members))


def fitted(value: Any, hint: Any) -> Any:
    """Return a value converted to a type; an int also fits float. Raises TypeError if it does not fit."""
    kind, arguments = get_origin(hint) or hint, get_args(hint)
    if kind in (Union, UnionType):
        for each in arguments:
            with suppress(TypeError):
                return fitted(value, each)
    elif kind in (list, tuple) and isinstance(value, list | tuple):
        return kind([fitted(each, arguments[0]) for each in value])
    elif kind is float and type(value) is int:
        return float(value)
    elif kind is Any or (kind is Literal and value in arguments) or (kind is not Literal and type(value) is kind):
        return value
    raise TypeError(f"{value!r} is not of type {hint}")


class StoreOption(argparse.Action):
    """An action that stores a typed value. Lists also have an option `--name+`, which appends."""

    def __init__(self, option_strings: Sequence[str], dest: str, *, type: Any = str, **options: Any) -> None:
        members = kinds(type)
        words = get_args(type) if get_origin(type) is Literal else ("true", "false") if bool in members else ()
        if words and options.get("nargs") != 0:
            options["metavar"] = f"{{{','.join(map(str, (*words, *('null',) * (NoneType in members))))}}}"
        if get_origin(type) is list:
            options["metavar"] = "[ITEM,...]"
        appending = [f"{name}+" for name in option_strings if any(get_origin(each) is list for each in members)]
        super().__init__([*option_strings, *appending], dest, **options)
        self.hint = type
        # argparse's own message for missing arguments is less clear, so `ArgumentParser.parse_args`
        # checks them.
        self.needed, self.required = self.required, False

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        """Store the values of the option, unless an optional positional argument was omitted."""
        if values is not None:  # None: an optional positional argument was omitted
            self.take(namespace, True if self.nargs == 0 else values, option_string or "")

    def take(self, namespace: Any, raw: Any, flag: str, *, loaded: bool = False) -> None:
        """Set the option to a value, or append to it if the flag ends with +."""
        several = self.nargs == "+" and (raw if isinstance(raw, list) else [raw])
        value = [self.read(each, loaded) for each in several] if several else self.read(raw, loaded)
        if flag.endswith("+"):
            both = (getattr(namespace, self.dest), value)
            value = [item for each in both for item in (each if isinstance(each, list) else [each])]
        setattr(namespace, self.dest, value)

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
        for name, value in yaml_file.options_in(values, parser.owners).items():
            if (action := parser.action_of(name)) is not None:
                action.take(namespace, value, str(name), loaded=True)
            elif not parser.partial:
                hint = hint_with_flags(meant(str(name), parser.names()), parser.names())
                raise ValueError(f"--config: `{parser.prog}` has no option {name!r}" + (f": {hint}" if hint else ""))


class PrintConfig(argparse.Action):
    """An action that makes the parser print the options as YAML and exit."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        """Make the parser print the options."""
        parser.prints = True


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """A formatter that keeps the line breaks of examples and shows each option's type and default."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        if not isinstance(action, StoreOption):
            return action.help
        text = as_yaml(action.help or "")
        default = str(action.default).lower() if isinstance(action.default, bool) else str(action.default)
        default = "null" if action.default is None else default.replace("%", "%%")
        facts = ["required"] if action.needed else []
        facts += [] if action.nargs == 0 else [f"type: {shown(action.hint)}"]
        facts += [] if action.needed or action.default is argparse.SUPPRESS else [f"default: {default}"]
        return f"{text} ({', '.join(facts)})"


class ArgumentParser(argparse.ArgumentParser):
    """A parser that raises ValueError with a message instead of exiting.

    Its help shows `usage`, a sentence and examples before the options. With `partial`, it has only
    some options of a command, no help, and ignores other names in an option file. `owners` maps
    each section of such a file besides `engine:` to its allowed names.
    """

    def __init__(self, usage: str, summary: str = "", examples: str = "", *, partial: bool = False) -> None:
        self.owners: Mapping[str, Sequence[str]] = {}
        self.partial, self.prints = partial, False
        shown = "\n".join(line for example in examples.splitlines() for line in folded(example))
        description = f"{fill(summary, WIDTH)}\n\nexamples:\n{indent(shown, '  ')}"
        prog = " ".join(takewhile(str.islower, usage.partition(" [")[0].split()))
        super().__init__(prog, usage, description, formatter_class=HelpFormatter, add_help=False, allow_abbrev=False)
        switch = functools.partial(StoreOption, type=bool, nargs=0, default=False)
        for name, action in ((None, StoreOption), ("store_true", switch), ("config", ConfigFile), ("print", PrintConfig)):
            self.register("action", name, action)
        if not partial:
            self.add_argument("-h", "--help", action="help", help="Show this help message and exit.")

    def add_argument(self, *flags: str, **options: Any) -> Any:
        """Add an option, like argparse, but with any type."""
        return super().add_argument(*flags, **options)

    def add_argument_group(self, *arguments: Any, **options: Any) -> Any:
        """Add a group of options, like argparse, but with any types."""
        return super().add_argument_group(*arguments, **options)

    def error(self, message: str) -> NoReturn:
        """Raise ValueError with the message."""
        raise ValueError(message)

    def action_of(self, name: object) -> StoreOption | None:
        """Return the action of an option or a positional argument, or None if it does not exist."""
        positionals = {action.dest: action for action in self._get_positional_actions()}
        action = self._option_string_actions.get(f"--{name}", positionals.get(str(name)))
        return action if isinstance(action, StoreOption) else None

    def names(self) -> list[str]:
        """Return the names of all options."""
        return [action.dest for action in self._actions if isinstance(action, StoreOption) and action.option_strings]

    def get_defaults(self) -> dict[str, Any]:
        """Return the default of every option."""
        return {action.dest: action.default for action in self._actions if isinstance(action, StoreOption)}

    def changed(self, options: Namespace) -> dict[str, Any]:
        """Return the options that do not have their default value."""
        usual = self.get_defaults()
        return {name: value for name, value in vars(options).items() if value != usual.get(name)}

    def parse_args(self, args: Sequence[str], namespace: Any = None) -> Any:  # type: ignore[override]
        """Return the parsed options. Raises ValueError for invalid, unknown and missing ones."""
        options, unknown = self.parse_known_args(args, namespace or Namespace())
        missing = next((each for each in self._actions if getattr(each, "needed", False) and options[each.dest] is None), None)
        if missing is not None:
            article = "an" if missing.dest[0] in "aeio" else "a"
            name = missing.dest.removesuffix("s")
            raise ValueError(f"{self.prog} needs {article} {name}: `{self.prog} --help` shows examples")
        if unknown:
            flag = next((each[2:].partition("=")[0] for each in unknown if each.startswith("--")), "")
            hint = hint_with_flags(meant(flag, self.names()), self.names()) if flag else ""
            raise ValueError(f"unrecognized arguments: {' '.join(unknown)}" + (f": {hint}" if hint else ""))
        if self.prints:
            print(yaml.safe_dump(vars(options), sort_keys=False, allow_unicode=True), end="")
            self.exit()
        return options

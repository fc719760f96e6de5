"""The options of the command line: those of every command, and those of engine, request, strategy and rule.

argparse parses the words, YAML the values, also those of option files. The dataclass that an option belongs to defines its
help and checks its value. Every mistake raises a ValueError.
"""

import argparse
import json
import re
from argparse import SUPPRESS
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import suppress
from dataclasses import MISSING, fields
from pathlib import Path
from textwrap import fill, indent
from types import NoneType, UnionType
from typing import Any, Literal, NoReturn, TypeVar, Union, get_args, get_origin, get_type_hints

import yaml

from .. import rules, strategies, tiny
from ..core import Options, Refused, Rule, SamplingParams
from ..core.checks import Json, check_ranges, did_you_mean, short
from ..core.options import searched
from ..engine.config import EngineConfig, field_help
from ..engine.hints import foreign
from ..engine.option_rows import option_rows, parts_of
from ..engine.strategy_choice import base_of, chosen
from ..rules import HOLDERS
from ..text.words import WIDTH

TYPES = {int: "INT", float: "NUMBER", bool: "{true,false}", str: "TEXT", Path: "PATH"}  # in the help; others are JSON
# Types of options on the command line, where they differ from those of the fields.
HINTS = {
    "decoding_strategy": str | None,
    "family": str | None,
    "max_tokens": int | None,
    "json_schema": str | Json | None,
    "processors": Json | list[Any] | str,
}
SHORT = {"tensor_parallel_size": ("--tp",)}  # names that other servers use
FLAGS = {"prompt": "PROMPT", "prompts": "PROMPT", "pins": "--pinned"}  # other fields are options of the same name
SCHEMA_HELP = "A JSON schema that the answer conforms to: a JSON file, or JSON text. In an option file, also a mapping."
IMPORTED = ("decoding_strategy", "family", "processors", *HOLDERS)  # options whose value may be a path to a module
ENGINE = "engine"
SECTIONS = (ENGINE, "eval")  # in an option file: for every command with an engine, and for `dlstep eval`
Owner = TypeVar("Owner")
# Strategy options have separate flags that replace these fields.
OF_STRATEGY = ("strategy_options", "buffer_policy")
# Options of sessions and reads, for commands that have neither.
OF_SESSIONS = ("max_sessions",)
FULL = {
    "-h",
    "--help",
    "--config",
    "--decoding_strategy",
}  # these need the options of strategies, whatever the other arguments are
NAMES = ("decoding_strategy", "sampling_mode", "rule", "inner", "model")  # options that determine which other options exist


class Loader(yaml.SafeLoader):
    """A loader of plain YAML 1.1 values, except that `1e-1` is a number and a date is a text."""


Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9][0-9_]*(\.[0-9_]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)
Loader.add_constructor("tag:yaml.org,2002:timestamp", Loader.construct_yaml_str)


def load(text: str) -> Any:
    """Return the value of a YAML text. Raises YAMLError if it is invalid."""
    return yaml.load(text, Loader=Loader)


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
    first = next((kind for kind in members if get_origin(kind) in (Literal, list)), members[0])
    if get_origin(first) is list:
        return f"[{shown(get_args(first)[0])},...]"
    return f"{{{','.join(map(str, get_args(first)))}}}" if get_origin(first) is Literal else TYPES.get(first, "JSON")


class StoreOption(argparse.Action):
    """An action that stores a value written as YAML."""

    def __init__(self, option_strings: Sequence[str], dest: str, *, hint: Any = str, **options: Any) -> None:
        self.wraps = get_origin(hint) is tuple  # one item is given without brackets
        self.hint = list[get_args(hint)[0]] | get_args(hint)[0] if self.wraps else hint
        if isinstance(options.get("default"), tuple):  # as if it were given
            options["default"] = list(options["default"])
        if options.get("nargs") != 0:
            options = {"metavar": shown(self.hint)} | options
        super().__init__(option_strings, dest, **options)
        # An option file may give a required value, so `ArgumentParser.parse_args` checks what is missing, not argparse.
        self.needed, self.required = self.required, False

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        """Store the values of the option, unless an optional positional argument was omitted."""
        if values is not None:
            self.take(namespace, True if self.nargs == 0 else values)

    def take(self, namespace: Any, raw: Any, *, loaded: bool = False) -> None:
        """Set the option to a value."""
        many = self.nargs == "+" and isinstance(raw, list)
        value = [self.read(each, loaded) for each in raw] if many else self.read(raw, loaded)
        setattr(namespace, self.dest, [value] if self.wraps and not isinstance(value, list) else value)

    def read(self, raw: Any, loaded: bool) -> Any:
        """Return the value of a command-line text, or of a value `loaded` from a file.

        Text is parsed as YAML. It stays text if the option accepts text and either the text comes from a file or the
        parsed value has no accepted type.
        """
        types, value = {get_origin(kind) or kind for kind in kinds(self.hint)}, raw
        if isinstance(raw, str) and raw and not (loaded and str in types):
            with suppress(yaml.YAMLError, ValueError, RecursionError):
                value = load(raw)
            if isinstance(value, str) or (str in types and type(value) not in types):
                value = raw
        return Path(str(value)) if Path in types and value is not None else value


class ConfigFile(argparse.Action):
    """An action that sets the options of a YAML file; later options override them."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        """Set the options that the file holds. Raise ValueError for an option that the command does not have."""
        for name, value in options_in(values, parser.prog.rpartition(" ")[2]).items():
            if (action := parser.action_of(name)) is not None:
                action.take(namespace, value, loaded=True)
            elif not parser.partial:
                raise ValueError(f"--config: `{parser.prog}` has no option {name!r}{parser.hint(str(name))}")


def options_in(source: str, command: str) -> dict[Any, Any]:
    """Return the options for a command in the file at `source`, or in `source` itself as YAML.

    Raises ValueError for invalid YAML and for a value that would import a module.
    """
    path = Path(source)
    where, text = (f"the file {source!r}", path.read_text("utf-8")) if path.is_file() else ("the text", source)
    try:
        content = load(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"--config: {where} is no YAML of options: {error}") from error
    if not isinstance(content, dict):
        absent = "" if path.is_file() else f"there is no file {source!r}, and "
        raise ValueError(f"--config: {absent}{where} holds no names and values, like `max_tokens: 32`")
    given = {name: value for name, value in content.items() if name not in SECTIONS}
    for section in SECTIONS:
        inside = content.get(section, {})
        if not isinstance(inside, dict):
            raise ValueError(f"--config: in {where}, `{section}:` holds no names and values, got {short(inside)}")
        given |= inside if section in (ENGINE, command) else {}
    options = {name.replace("-", "_") if isinstance(name, str) else name: value for name, value in given.items()}
    for name in IMPORTED:
        for value in paths_in(options.get(name)):
            raise ValueError(
                f"--config: in {where}, {name}={value!r} is a path, which imports a module: give it on the command line, "
                f"as --{name} {value}"
            )
    return options


def paths_in(value: Any) -> Iterator[str]:
    """Yield the paths of modules in the value of an option that names strategies, rules or processors."""
    if isinstance(value, str) and any(mark in value for mark in "./\\:"):
        yield value
    for part in value if isinstance(value, list | dict) else ():
        yield from paths_in(part)


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
        self._owner: Any = None
        description = f"{fill(' '.join(summary.split()), WIDTH)}\n\nexamples:\n{indent(examples, '  ')}"
        super().__init__(prog, description=description, formatter_class=HelpFormatter, add_help=False, allow_abbrev=False)
        self.usage = f"{prog} [options]"
        self.register("action", None, StoreOption)
        if not partial:
            self.add_argument("-h", "--help", action="help", help="Show this help message and exit.")

    def add_own(self, owner: Any) -> None:
        """Add the options of a command: the fields of a dataclass. Docstrings are help texts, and ranges are checked.

        A field that is not keyword-only is a positional argument, which can be omitted if it has a default. A boolean that is
        false by default is a switch.
        """
        texts, hints, positional = field_help(owner), get_type_hints(owner), list[str]()
        self._owner = owner
        for field in fields(owner):
            hint, needed = hints[field.name], field.default is MISSING
            options: Json = {"help": texts[field.name], "default": None if needed else field.default}
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
        group, hints = self.add_argument_group(title), get_type_hints(owner) | HINTS
        texts = field_help(owner) | {"json_schema": SCHEMA_HELP}
        for field in fields(owner):
            if field.name not in without:
                default = None if field.name == "max_tokens" else field.default  # None: the model's default
                flags = (f"--{field.name}", *SHORT.get(field.name, ()))
                group.add_argument(*flags, hint=hints[field.name], default=default, help=texts[field.name])

    def error(self, message: str) -> NoReturn:
        """Raise ValueError with the message."""
        raise ValueError(message)

    def action_of(self, name: object) -> StoreOption | None:
        """Return the action of an option or a positional argument, or None if it does not exist."""
        positionals = {action.dest: action for action in self._get_positional_actions()}
        action = self._option_string_actions.get(f"--{name}", positionals.get(str(name)))
        return action if isinstance(action, StoreOption) else None

    def hint(self, name: str) -> str:
        """Return a hint at the meaning of an unknown option, after a colon; empty if no option is similar."""
        flags = [f"--{action.dest}" for action in self._actions if isinstance(action, StoreOption) and action.option_strings]
        found = foreign(name, "--") or did_you_mean(f"--{name}", flags)
        return f": {found}" if found else ""

    def parse_args(self, args: Sequence[str], namespace: Any = None) -> Any:  # type: ignore[override]
        """Return the parsed options. Raises ValueError for invalid, unknown and missing ones."""
        options, unknown = self.parse_known_args(args, namespace or Namespace())
        if unknown:
            flag = next((each[2:].partition("=")[0] for each in unknown if each.startswith("--")), "")
            raise ValueError(f"unrecognized arguments: {' '.join(unknown)}{self.hint(flag)}")
        missing = next((each for each in self._actions if getattr(each, "needed", False) and options[each.dest] is None), None)
        if missing is not None:
            raise ValueError(f"{self.prog} needs {missing.metavar}: `{self.prog} --help` shows examples")
        if vars(options).pop("print_config", False):
            texts = {name: str(value) if isinstance(value, Path) else value for name, value in vars(options).items()}
            print(yaml.safe_dump(texts, sort_keys=False, allow_unicode=True), end="")
            self.exit()
        if self._owner is not None:
            check_ranges(options.of(self._owner))
        return options


def shown_error(error: BaseException) -> str:
    """Return the message of an error, with the option that a refused field is on the command line."""
    if not isinstance(error, Refused) or not error.refusal.field:
        return str(error)
    (name, dot, rest), message = error.refusal.field.partition("."), error.refusal.message
    return f"{FLAGS.get(name, f'--{name}')}{dot}{rest}: {message}"


def as_yaml(text: str) -> str:
    """Return a text from a docstring with None written as `null`, as in YAML and on the command line."""
    return re.sub(r"\bNone\b", "null", text)


def add_config_option(parser: ArgumentParser) -> None:
    """Add `--config FILE.yaml` and `--print_config`."""
    parser.add_argument(
        "--config",
        action=ConfigFile,
        default=SUPPRESS,
        metavar="FILE",
        help="YAML file of options by their names, or in sections like `engine:`; options after it override it.",
    )
    printed = "Print all options as YAML, and stop."
    parser.add_argument("--print_config", hint=bool, nargs=0, default=SUPPRESS, help=printed)


def engine_options(options: Namespace, *others: Any) -> Json:
    """Return the options of the engine and of its strategy: all except the fields of the dataclasses `others`."""
    left_out = {field.name for owner in others for field in fields(owner)}
    return {name: value for name, value in vars(options).items() if name not in left_out}


def title_of(value: Options) -> str:
    """Return the heading for the options of a strategy or a rule."""
    kind, plugins = ("rule", rules.PLUGINS) if isinstance(value, Rule) else ("strategy", strategies.PLUGINS)
    return f"{kind} {plugins.name_of(type(value)) or type(value).__name__}"


def own_strategy(model: str | None) -> str | None:
    """Return the strategy that a model declares, or None if only loading the checkpoint can tell."""
    embedded = tiny.CHECKPOINTS / (model or tiny.DEFAULT) / "config.json"
    path = embedded if embedded.is_file() else Path(model or "", "config.json")
    try:
        name = json.loads(path.read_text("utf-8"))["dlstep"]["decoding_strategy"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):  # loading the checkpoint reports the problem
        return None
    return name if isinstance(name, str) and strategies.is_known(name) else None


def requested_parts(command: str, arguments: Sequence[str]) -> list[Options]:
    """Return the requested strategy and rule, whose options exist; none if they depend on the checkpoint.

    Modules are also searched in the current folder.
    """
    parser = ArgumentParser(command, partial=True)
    for name in NAMES:
        parser.add_argument(f"--{name}", hint=str | None)
    add_config_option(parser)
    requested = parser.parse_known_args(arguments, Namespace())[0]
    config = EngineConfig(decoding_strategy=requested.decoding_strategy, sampling_mode=requested.sampling_mode)
    with searched(Path.cwd()):
        base = chosen(config, own_strategy(requested.model))
        holders = {name: rules.PLUGINS.value(requested[name]) for name in HOLDERS if requested[name] is not None}
        if base is None:
            return []
        try:
            return list(parts_of(base_of(base, holders)))
        except ValueError:  # the rule may need another option, which is parsed next
            return [base_of(base, {}), *holders.values()]


def add_strategy_options(parser: ArgumentParser, arguments: Sequence[str]) -> None:
    """Add flags for the options of the requested strategy and rule, and hidden ones for all others.

    The hidden flags allow a clear error for an option of another strategy. None are added if no argument can be one.
    Raises ValueError for an unknown strategy.
    """
    words = {word.partition("=")[0] for word in arguments if word.startswith("-")}
    if arguments and not words & FULL and words <= parser._option_string_actions.keys():
        return
    taken = {field.name for owner in (EngineConfig, SamplingParams) for field in fields(owner)}
    added: set[str] = set()
    for part in requested_parts(parser.prog, arguments):
        group = parser.add_argument_group(title_of(part))
        for row in option_rows(part):
            if row.name in taken:
                message = f"{type(part).__name__} has a field with the name of another option: give it another name"
                raise Refused(row.name, "conflict", message)
            if row.name not in added:
                group.add_argument(f"--{row.name}", hint=row.hint, default=SUPPRESS, help=row.line())
                added.add(row.name)
    for name in (strategies.PLUGINS.owners() | rules.PLUGINS.owners()).keys() - added:
        parser.add_argument(f"--{name}", hint=Any, default=SUPPRESS, help=SUPPRESS)


def json_text(value: object) -> str:
    """Return `value` as JSON, with null for numbers that are not finite, which JSON cannot represent."""
    return json.dumps(json.loads(json.dumps(value), parse_constant=lambda number: None))

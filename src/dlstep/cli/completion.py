"""`dlstep --print_completion SHELL`: a script with which a shell completes commands, options and some of their values."""

from argparse import ArgumentParser as Parser, _SubParsersAction
from typing import Any, Literal, get_args, get_origin

from .. import rules, strategies
from ..extras import require
from .commands import COMMANDS, listing, module_of, parser_of, top_parser
from .parser import ArgumentParser, Namespace, StoreOption, kinds

NAMES = {"decoding_strategy": strategies.available, "rule": rules.available, "inner": rules.available}
FILES = ("FILE", "PATH", "FOLDER", "RECORDING")  # metavars of paths


def print_completion(options: Namespace) -> int:
    """Print the script for a shell."""
    require("--print_completion", "completion")
    import shtab

    print(shtab.complete(complete_parser(), options.print_completion))
    return 0


def complete_parser() -> ArgumentParser:
    """Return the parser of all commands, whose actions list the values that they accept."""
    parser = top_parser()
    _fill(parser, {command: _parser_of(command) for command in COMMANDS})
    return parser


def _parser_of(command: str) -> ArgumentParser:
    """Return the parser of a command. If the command has kinds, their parsers are its subparsers."""
    module, _ = module_of(command)
    if (kinds_of_command := getattr(module, "KINDS", None)) is None:
        parser = parser_of(command)
    else:
        parser = listing(module.parser(), "kind", {name: kind[0] for name, kind in kinds_of_command.items()})
        _fill(parser, {name: kind[1]() for name, kind in kinds_of_command.items()})
    _annotate(parser)
    return parser


def _fill(parser: Parser, parsers: dict[str, ArgumentParser]) -> None:
    """Replace the empty parsers of the subcommands of `parser` by `parsers`."""
    subcommands: Any = next(action for action in parser._actions if isinstance(action, _SubParsersAction))
    for name, own in parsers.items():
        _annotate(own)
        subcommands.choices[name] = own


def _annotate(parser: Parser) -> None:
    """Give the actions of a parser the choices that shtab completes."""
    import shtab

    for action in parser._actions:
        if not isinstance(action, StoreOption):
            continue
        words = [str(word) for hint in kinds(action.hint) if get_origin(hint) is Literal for word in get_args(hint)]
        if action.dest in NAMES:
            words = list(NAMES[action.dest]())
        elif bool in kinds(action.hint) and action.nargs != 0:
            words = ["true", "false"]
        if words:
            action.choices = words
        elif action.metavar in FILES or action.dest == "model":
            action.complete = shtab.FILE  # pyright: ignore[reportAttributeAccessIssue]

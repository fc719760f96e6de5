"""The commands of the command line, their parsers, and the script with which a shell completes them."""

import argparse
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from .. import __version__, rules, strategies
from ..extras import require
from .parser import ArgumentParser, Namespace, StoreOption, kinds

SUMMARY = "Decode diffusion language models step by step."
QUESTION = "Max has 53 shells. Later Max buys 39 more. How many shells does Max have?"
# First things to try, each with a command line that runs unchanged.
FIRST_STEPS = {
    "watch small models decode": "dlstep demo",
    "answer a prompt": f"dlstep generate \\\n  '{QUESTION}'",
    "serve a model to OpenAI clients": "dlstep serve --open",
    "compare decoding rules": "dlstep compare --problems 20",
    "check what this machine can use": "dlstep doctor",
}

# For each command: its summary, and the module that defines `parser` and `run`.
COMMANDS = {
    "demo": ("Watch embedded models decode, then compare accuracy and speed.", "demo"),
    "generate": ("Answer prompts.", "generate"),
    "serve": ("Serve a model to OpenAI clients over HTTP.", "serve"),
    "batch": ("Answer a file of requests in OpenAI's batch format.", "batch"),
    "attach": ("Watch a running server's request.", "attach"),
    "strategies": ("List decoding strategies and their options.", "strategies"),
    "rules": ("List decoding rules and their options.", "rules"),
    "compare": ("Compare decoding rules: accuracy against speed.", "compare"),
    "eval": ("Evaluate accuracy and speed on tasks.", "eval"),
    "report": ("Report wrong answers and costs of an eval run.", "report"),
    "laws": ("Check your own strategy or rule against the engine's laws.", "laws"),
    "models": ("List families of models.", "models"),
    "models check": ("Describe a checkpoint and report its problems.", "check"),
    "replay": ("Re-execute a saved trace without a model.", "replay"),
    "view": ("Write a recording or a trace as a page that opens without a server.", "view"),
    "bench decode": ("Measure decode steps of a model.", "bench"),
    "doctor": ("Check versions, devices, kernels and optional packages.", "doctor"),
}
WITH_STRATEGY = ("generate", "serve", "batch", "eval")  # commands with the options of a strategy
NAMES = {"decoding_strategy": strategies.available, "rule": rules.available, "inner": rules.available}
Run = Callable[[Namespace], int]


def top_parser(*, listed: bool = True) -> ArgumentParser:
    """Return the parser for arguments without a command, which lists the commands in its help."""
    parser = ArgumentParser("dlstep", SUMMARY, "\n".join(FIRST_STEPS.values()))
    parser.usage = "dlstep COMMAND [options]"
    parser.add_argument("--version", action="version", version=f"dlstep {__version__}", help="Print the version and stop.")
    help_text = "Print a shell completion script and stop."
    parser.add_argument("--print_completion", type=Literal["bash", "zsh", "fish"], default=None, help=help_text)
    if listed:
        commands = _subcommands(parser)
        for name, (summary, _) in COMMANDS.items():
            commands.add_parser(name, help=summary, add_help=False)
    return parser


def _subcommands(parser: argparse.ArgumentParser) -> Any:
    text = "`dlstep COMMAND --help` explains one."
    return parser.add_subparsers(title="commands", metavar="COMMAND", description=text, parser_class=argparse.ArgumentParser)


def module_of(command: str) -> Any:
    """Return the module of a command."""
    return import_module(f".{COMMANDS[command][1]}", __package__)


def parser_of(command: str, arguments: Sequence[str] = ()) -> ArgumentParser:
    """Return the parser of a command, with the options of the strategy that `arguments` name."""
    from .options import add_strategy_options

    parser = module_of(command).parser()
    if command in WITH_STRATEGY:
        add_strategy_options(parser, arguments)
    return parser


def run_of(command: str) -> Run:
    """Return the function that runs a command and returns the exit code."""
    return module_of(command).run


def print_completion(options: Namespace) -> int:
    """Print the script with which a shell completes commands, options and some of their values."""
    require("--print_completion", "completion")
    import shtab

    parser = top_parser(listed=False)
    _annotate(parser)
    levels = {"": _subcommands(parser)}
    for command, (summary, _) in COMMANDS.items():
        first, _, second = command.rpartition(" ")
        if first not in levels:
            levels[first] = _subcommands(levels[""].choices.get(first) or levels[""].add_parser(first, help=summary))
        levels[first].add_parser(second, help=summary)
        levels[first].choices[second] = _annotate(parser_of(command))
    print(shtab.complete(parser, options.print_completion))
    return 0


def _annotate(parser: ArgumentParser) -> ArgumentParser:
    """Return the parser, whose actions now have the choices that shtab completes."""
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
        elif Path in kinds(action.hint) or action.dest == "model":
            action.complete = shtab.FILE  # pyright: ignore[reportAttributeAccessIssue]
    return parser

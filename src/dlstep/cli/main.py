"""The commands of the command line: parsing, dispatch, completion by shells. Errors are one line on stderr with exit code 2."""

import argparse
import logging
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from textwrap import indent
from typing import Any, Literal, get_args, get_origin

from .. import __version__, rules, strategies
from ..core import DlstepError
from ..core.checks import did_you_mean
from ..extras import require
from ..text.words import one_line, printable
from .options import ArgumentParser, Namespace, StoreOption, add_config_option, add_strategy_options, kinds, shown_error

SPINS = "1000"  # iterations of OpenMP's spin loop before a thread sleeps; the default is millions
STARTS = logging.getLogger("dlstep.engine")
CLOSED_PIPE = 128 + 13  # exit code that a shell reports for a process ended by SIGPIPE

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

# Summaries of the commands. The module of a command, such as `models_check` for `models check`, defines `EXAMPLES`, `run`
# and `COMMAND`, a dataclass whose fields are the command's options. `add_options` adds the fields of other dataclasses.
COMMANDS = {
    "demo": "Watch embedded models decode, then compare accuracy and speed.",
    "generate": "Answer prompts.",
    "serve": "Serve a model to OpenAI clients over HTTP.",
    "batch": "Answer a file of requests in OpenAI's batch format.",
    "strategies": "List decoding strategies and their options.",
    "rules": "List decoding rules and their options.",
    "compare": "Compare decoding rules: accuracy against speed.",
    "eval": "Evaluate accuracy and speed on tasks.",
    "report": "Report wrong answers and costs of an eval run.",
    "laws": "Check your own strategy or rule against the engine's laws.",
    "models": "List families of models.",
    "models check": "Describe a checkpoint and report its problems.",
    "replay": "Re-execute a saved trace without a model.",
    "view": "Write a recording or a trace as a page that opens without a server.",
    "doctor": "Check versions, devices, kernels and optional packages.",
}
WITH_STRATEGY = ("generate", "serve", "batch", "eval")  # commands that accept strategy options and option files
NAMES = {"decoding_strategy": strategies.available, "rule": rules.available, "inner": rules.available}
Run = Callable[[Namespace], int]


def parsed(arguments: Sequence[str]) -> tuple[Namespace, Run]:
    """Return the parsed options and the function to call with them. Raises ValueError for invalid ones."""
    arguments = underscored(arguments)
    if not arguments:
        return Namespace(), print_first_steps
    if arguments[0].startswith("-"):
        return top_parser().parse_args(arguments), print_completion
    command = command_in(arguments)
    rest = arguments[len(command.split()) :]
    if command == "serve" and rest and not rest[0].startswith("-"):
        rest = ["--model", *rest]
    return parser_of(command, rest).parse_args(rest), module_of(command).run


def command_in(arguments: Sequence[str]) -> str:
    """Return the command that the first one or two words name. Raises ValueError for an unknown one."""
    first, words = arguments[0], " ".join(arguments[:2])
    if words in COMMANDS:
        return words
    longer = [name for name in COMMANDS if name.startswith(f"{first} ")]
    hint = did_you_mean(words, longer) if "-" not in words else ""
    if first in COMMANDS and not hint:
        return first
    hint = hint or did_you_mean(first, COMMANDS)
    raise ValueError(f"dlstep has no command {words if longer else first!r}: {hint} `dlstep --help` lists all")


def print_first_steps(options: Namespace) -> int:
    """Print first things to try, each with its command line."""
    print(f"{SUMMARY}\n")
    for task, line in FIRST_STEPS.items():
        print(f"{task}:\n{indent(line, '  ')}")
    print("\n`dlstep --help` lists all commands, and `dlstep COMMAND --help` explains one.")
    return 0


def underscored(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with underscores in option names: `--max-tokens` becomes `--max_tokens`."""
    names = [argument.partition("=") if argument.startswith("--") else ("", "", argument) for argument in arguments]
    return [f"{name[:2]}{name[2:].replace('-', '_')}{equals}{value}" for name, equals, value in names]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    The exit code is 0, 1 if an answer or a check failed, 2 for an invalid request, 130 for Ctrl-C,
    and 141 if the reader of the output closed the pipe.
    """
    # stderr is for errors and for the progress of decodes. Without this setting, loading an embedded
    # model would draw a progress bar after the model has been loaded.
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    if not os.environ.get("OMP_WAIT_POLICY"):  # OpenMP reads both variables when torch is loaded
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)
    try:
        try:
            return _run(sys.argv[1:] if arguments is None else arguments)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        return _closed_pipe()
    except SystemExit as stop:
        if isinstance(stop.__context__, BrokenPipeError):  # rich raises SystemExit for a closed pipe
            return _closed_pipe()
        raise


def _run(arguments: Sequence[str]) -> int:
    """Return the exit code of a command, and print errors as one line on stderr."""
    started = logging.StreamHandler()  # prints the line that states the chosen dtype and KV cache of each engine
    STARTS.addHandler(started)
    STARTS.setLevel(logging.INFO)
    try:
        options, run = parsed(arguments)
        return run(options)
    except BrokenPipeError:
        raise
    except (ValueError, OSError, DlstepError) as error:
        print(f"dlstep: error: {printable(one_line(shown_error(error)))}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("dlstep: interrupted", file=sys.stderr)
        return 130
    finally:
        STARTS.removeHandler(started)


def _closed_pipe() -> int:
    """Return the exit code for a closed pipe. Redirect stdout and stderr to the null device, as Python flushes them at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(nowhere, stream.fileno())
    return CLOSED_PIPE


def top_parser(*, listed: bool = True) -> ArgumentParser:
    """Return the parser for arguments without a command, which lists the commands in its help."""
    parser = ArgumentParser("dlstep", SUMMARY, "\n".join(FIRST_STEPS.values()))
    parser.usage = "dlstep COMMAND [options]"
    parser.add_argument("--version", action="version", version=f"dlstep {__version__}", help="Print the version and stop.")
    help_text, shells = "Print a shell completion script and stop.", "{bash,zsh,fish}"
    parser.add_argument("--print_completion", metavar=shells, choices=("bash", "zsh", "fish"), required=True, help=help_text)
    if listed:
        commands = _subcommands(parser)
        for name, summary in COMMANDS.items():
            commands.add_parser(name, help=summary, add_help=False)
    return parser


def _subcommands(parser: argparse.ArgumentParser) -> Any:
    text = "`dlstep COMMAND --help` explains one."
    return parser.add_subparsers(title="commands", metavar="COMMAND", description=text, parser_class=argparse.ArgumentParser)


def module_of(command: str) -> Any:
    """Return the module of a command."""
    return import_module(f".{command.replace(' ', '_')}", __package__)


def parser_of(command: str, arguments: Sequence[str] = ()) -> ArgumentParser:
    """Return the parser of a command, with the options of the strategy that `arguments` name."""
    module = module_of(command)
    parser = ArgumentParser(f"dlstep {command}", module.COMMAND.__doc__, module.EXAMPLES)
    parser.add_own(module.COMMAND)
    if command in WITH_STRATEGY:
        add_config_option(parser)
    if hasattr(module, "add_options"):
        module.add_options(parser)
    if command in WITH_STRATEGY:
        add_strategy_options(parser, arguments)
    return parser


def print_completion(options: Namespace) -> int:
    """Print the script with which a shell completes commands, options and some of their values."""
    require("--print_completion", "completion")
    import shtab

    parser = top_parser(listed=False)
    _annotate(parser)
    levels = {"": _subcommands(parser)}
    for command, summary in COMMANDS.items():
        first, _, second = command.rpartition(" ")
        if first not in levels:
            levels[first] = _subcommands(levels[""].choices[first])
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

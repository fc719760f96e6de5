"""Parsing and dispatch of the command line. Errors are one line on stderr with exit code 2."""

import argparse
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.metadata import packages_distributions
from pathlib import Path
from traceback import walk_tb
from typing import Any

from .. import __version__
from ..core import DlstepError
from ..engine.threads import spin_less
from ..text.words import printable
from .options import new_parser
from .parser import ArgumentParser, Namespace

SUMMARY = "Decode diffusion language models step by step."
EXAMPLES = """
    dlstep demo                                   watch tiny models write, then compare strategies
    dlstep generate 'Max has 53 shells. Later Max buys 39 more. How many shells does Max have?'
    dlstep generate --help                        all options, which a YAML file can hold as well; --max-tokens is --max_tokens
    dlstep serve                                  the same over HTTP, for OpenAI clients
    dlstep batch IN.jsonl OUT.jsonl               a file of requests in OpenAI's batch format
    dlstep simulate                               what 1 to 1,000 replicas would do, in virtual time
    dlstep view RECORDING                         a saved recording or trace as one HTML page
    dlstep strategies                             decoding strategies and their options
    dlstep rules                                  decoding rules and their options
    dlstep models                                 supported model families
"""

CLOSED_PIPE = 128 + 13  # exit code that a shell reports for a process ended by SIGPIPE
LONGEST_MESSAGE = 2000  # characters
UNDECODED = re.compile("[\udc80-\udcff]")  # bytes that are not UTF-8, as Python represents them
# Name, summary, and module with `parser` and `run`. After a colon: the prefix or suffix of the
# names of these two functions.
COMMANDS = {
    "demo": ("Watch embedded models decode, then compare accuracy and speed.", "demo"),
    "generate": ("Answer prompts.", "generate"),
    "serve": ("Serve a model to OpenAI clients over HTTP.", "serve"),
    "batch": ("Answer a file of requests in OpenAI's batch format.", "batch"),
    "attach": ("Watch a running server's request.", "attach"),
    "strategies": ("List decoding strategies and their options.", "inspect:strategies"),
    "rules": ("List decoding rules and their options.", "inspect:rules"),
    "compare": ("Compare decoding rules: accuracy against speed.", "compare"),
    "eval": ("Evaluate accuracy and speed on tasks.", "eval"),
    "report": ("Report wrong answers and costs of an eval run.", "report"),
    "tune": ("Find options that are accurate and fast.", "tune"),
    "laws": ("Check your own strategy or rule against the engine's laws.", "laws"),
    "models": ("List families of models, or check a checkpoint.", "models"),
    "replay": ("Re-execute a saved trace without a model.", "inspect:replay"),
    "view": ("Write a recording or a trace as a page that opens without a server.", "view"),
    "simulate": ("Simulate 1 to 1,000 replicas in virtual time.", "simulate"),
    "bench": ("Measure host cost, decode steps, kernels or a server.", "bench"),
}
WITH_STRATEGY = ("generate", "serve", "batch", "eval", "tune")  # commands with the options of a strategy
Run = Callable[[Namespace], int]
Kinds = Mapping[str, tuple[str, Callable[[], ArgumentParser], Run]]


def listing(parser: ArgumentParser, word: str, summaries: Mapping[str, str]) -> ArgumentParser:
    """Return the parser, with a list of subcommands added to its help."""
    names = parser.add_subparsers(
        title="subcommands", dest=word, metavar=word.upper(), parser_class=argparse.ArgumentParser,
        description="For more details of each subcommand, add it as an argument followed by --help.",
    )  # fmt: skip
    for name, summary in summaries.items():
        names.add_parser(name, help=summary, add_help=False)
    return parser


def top_parser() -> ArgumentParser:
    """Return the parser for arguments without a command."""
    parser = new_parser("dlstep COMMAND ...", SUMMARY, EXAMPLES)
    parser.add_argument("--version", action="version", version=f"dlstep {__version__}", help="Print the version and stop.")
    return listing(parser, "command", {name: summary for name, (summary, _) in COMMANDS.items()})


def command_of(arguments: Sequence[str]) -> tuple[Namespace, Run]:
    """Return the parsed options and the function to call with them. Raises ValueError for invalid ones."""
    command, rest = (arguments[0], arguments[1:]) if arguments else ("", arguments)
    if command not in COMMANDS:
        top_parser().parse_args(arguments[:1])
        raise ValueError(f"dlstep needs a command: give one of {', '.join(COMMANDS)}")
    module_name, _, which = COMMANDS[command][1].partition(":")
    module = import_module(f".{module_name}", __package__)
    if kinds := getattr(module, "KINDS", None):
        return kind_of(module, kinds, command, rest)
    if command == "serve":
        rest = module.with_model_named(rest)
    parser = getattr(module, f"{which}_parser" if which else "parser")()
    if command in WITH_STRATEGY:
        from .strategy_options import add_strategy_options

        add_strategy_options(parser, rest)
    return parser.parse_args(rest), getattr(module, f"run_{which}" if which else "run")


def kind_of(module: Any, kinds: Kinds, command: str, arguments: Sequence[str]) -> tuple[Namespace, Run]:
    """Return the same for a command with several kinds, which `module` defines."""
    if command == "bench":
        module.refuse_moved(arguments)
    if kind := next((word for word in arguments if word in kinds), None):
        _, make, run = kinds[kind]
        place = arguments.index(kind)
        return make().parse_args([*arguments[:place], *arguments[place + 1 :]]), run
    parser = listing(module.parser(), "kind", {name: summary for name, (summary, _, _) in kinds.items()})
    options = parser.parse_args(arguments)
    if not hasattr(module, "run"):
        raise ValueError(f"dlstep {command} needs a kind: give one of {', '.join(kinds)}")
    return options, module.run


def underscored(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with underscores in option names: `--max-tokens` becomes `--max_tokens`."""
    names = [argument.partition("=") if argument.startswith("--") else ("", "", argument) for argument in arguments]
    return [f"{name[:2]}{name[2:].replace('-', '_')}{equals}{value}" for name, equals, value in names]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    The exit code is 0, 1 if an answer or a check failed, 2 for an invalid request, 130 for Ctrl-C,
    and 141 if the reader of the output closed the pipe.
    """
    # stderr is for progress of decodes and for errors. Without this, loading an embedded model
    # would draw a bar after it has finished.
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.update(spin_less())  # before torch is loaded
    try:
        try:
            return _run(sys.argv[1:] if arguments is None else arguments)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        return _closed_pipe()
    except SystemExit as stop:
        if isinstance(stop.__context__, BrokenPipeError):  # rich exits this way
            return _closed_pipe()
        raise


def _run(arguments: Sequence[str]) -> int:
    """Return the exit code of a command, and print errors as one line on stderr."""
    try:
        options, run = parsed(arguments)
        return run(options)
    except BrokenPipeError:
        raise
    except (ValueError, OSError, DlstepError) as error:
        if raised_elsewhere(error):
            raise
        message = shortened(" ".join(str(error).split()))
        print(f"dlstep: error: {printable(message)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("dlstep: interrupted", file=sys.stderr)
        return 130


def raised_elsewhere(error: BaseException) -> bool:
    """Return whether a user's strategy or rule raised the error, so that its traceback must be shown."""
    installed = {*sys.stdlib_module_names, *packages_distributions()}
    for frame, _ in reversed(list(walk_tb(error.__traceback__))):
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if package == __name__.partition(".")[0]:
            return False
        if package not in installed and Path(frame.f_code.co_filename).is_file():
            return True
    return False


def parsed(arguments: Sequence[str]) -> tuple[Namespace, Run]:
    """Return the parsed options and the function to call with them. Raises ValueError for invalid ones."""
    for number, argument in enumerate(arguments, 1):
        if UNDECODED.search(argument):
            raise ValueError(f"argument {number} is not UTF-8: {os.fsencode(argument)!r}")
    return command_of(underscored(arguments))


def shortened(message: str) -> str:
    """Return the message without its middle if it is long, because it repeats the input."""
    kept = LONGEST_MESSAGE // 2
    return message if len(message) <= LONGEST_MESSAGE else f"{message[:kept]} ... {message[-kept:]}"


def _closed_pipe() -> int:
    """Return the exit code for a closed pipe, and redirect all output to null: Python flushes at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(nowhere, stream.fileno())
    return CLOSED_PIPE

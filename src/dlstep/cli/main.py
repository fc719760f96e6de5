"""Parsing and dispatch of the command line. Errors are one line on stderr with exit code 2."""

import os
import re
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib.metadata import packages_distributions
from pathlib import Path
from textwrap import indent
from traceback import walk_tb
from typing import Any

from ..core import DlstepError
from ..engine.threads import spin_less
from ..rules import HOLDERS
from ..text.words import printable
from .commands import COMMANDS, FIRST_STEPS, SUMMARY, Kinds, Run, listing, module_of, parser_of, top_parser
from .flags import with_flags
from .parser import Namespace, folded

CLOSED_PIPE = 128 + 13  # exit code that a shell reports for a process ended by SIGPIPE
LONGEST_MESSAGE = 2000  # characters
UNDECODED = re.compile("[\udc80-\udcff]")  # bytes that are not UTF-8, as Python represents them


def command_of(arguments: Sequence[str]) -> tuple[Namespace, Run]:
    """Return the parsed options and the function to call with them. Raises ValueError for invalid ones."""
    if not arguments:
        return Namespace(), print_first_steps
    command, rest = arguments[0], arguments[1:]
    if command not in COMMANDS:
        return without_command(arguments)
    module, which = module_of(command)
    if kinds := getattr(module, "KINDS", None):
        return kind_of(module, kinds, command, rest)
    if command == "serve":
        rest = module.with_model_named(rest)
    parser = parser_of(command, rest)
    return parser.parse_args(rest), getattr(module, f"run_{which}" if which else "run")


def without_command(arguments: Sequence[str]) -> tuple[Namespace, Run]:
    """Return the result of `command_of` for arguments without a command. Raises ValueError for an unknown command."""
    if not arguments[0].startswith("-"):
        near = get_close_matches(arguments[0], COMMANDS, 1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise ValueError(f"dlstep has no command {arguments[0]!r}: {hint}`dlstep --help` lists all")
    options = top_parser().parse_args(arguments)
    if options.print_completion is None:
        raise ValueError("dlstep needs a command: `dlstep --help` lists all")
    from .completion import print_completion

    return options, print_completion


def print_first_steps(options: Namespace) -> int:
    """Print first things to try, each with its command line."""
    print(f"{SUMMARY}\n")
    for task, line in FIRST_STEPS.items():
        print(f"{task}:\n{indent(chr(10).join(folded(line)), '  ')}")
    print("\n`dlstep --help` lists all commands, and `dlstep COMMAND --help` explains one.")
    return 0


def kind_of(module: Any, kinds: Kinds, command: str, arguments: Sequence[str]) -> tuple[Namespace, Run]:
    """Return the result of `command_of` for a command with several kinds, which `module` defines."""
    if kind := next((word for word in arguments if word in kinds), None):
        _, make, run = kinds[kind]
        place = arguments.index(kind)
        return make().parse_args([*arguments[:place], *arguments[place + 1 :]]), run
    parser = listing(module.parser(), "kind", {name: summary for name, (summary, _, _) in kinds.items()})
    if (word := next(iter(arguments), "-")) and not word.startswith("-") and (near := get_close_matches(word, kinds, 1)):
        raise ValueError(f"dlstep {command} has no {word!r}: did you mean {near[0]}?")
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
    # stderr is for errors and for the progress of decodes. Without this setting, loading an embedded
    # model would draw a progress bar after the model has been loaded.
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
        if isinstance(stop.__context__, BrokenPipeError):  # rich raises SystemExit for a closed pipe
            return _closed_pipe()
        raise


def _run(arguments: Sequence[str]) -> int:
    """Return the exit code of a command, and print errors as one line on stderr."""
    options = Namespace()
    try:
        options, run = parsed(arguments)
        return run(options)
    except BrokenPipeError:
        raise
    except (ValueError, OSError, DlstepError) as error:
        if raised_elsewhere(error):
            raise
        message = shortened(with_flags(" ".join(str(error).split()), {*vars(options), *HOLDERS} if vars(options) else ()))
        print(f"dlstep: error: {printable(message)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("dlstep: interrupted", file=sys.stderr)
        return 130


def raised_elsewhere(error: BaseException) -> bool:
    """Return whether a user's strategy or rule raised the error: its author needs the traceback."""
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
    """Return the message. If it is long, leave out its middle: long messages repeat the input."""
    kept = LONGEST_MESSAGE // 2
    return message if len(message) <= LONGEST_MESSAGE else f"{message[:kept]} ... {message[-kept:]}"


def _closed_pipe() -> int:
    """Return the exit code for a closed pipe. Redirect stdout and stderr to the null device, as Python flushes them at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(nowhere, stream.fileno())
    return CLOSED_PIPE

"""Parsing and dispatch of the command line. Errors are one line on stderr with exit code 2."""

import os
import re
import sys
from collections.abc import Sequence
from textwrap import indent

from ..core import DlstepError
from ..core.checks import did_you_mean
from ..engine.threads import spin_less
from ..rules import HOLDERS
from ..text.words import printable
from .commands import COMMANDS, FIRST_STEPS, SUMMARY, Run, parser_of, print_completion, run_of, top_parser
from .flags import with_flags
from .parser import Namespace

CLOSED_PIPE = 128 + 13  # exit code that a shell reports for a process ended by SIGPIPE
LONGEST_MESSAGE = 2000  # characters
UNDECODED = re.compile("[\udc80-\udcff]")  # bytes that are not UTF-8, as Python represents them


def command_of(arguments: Sequence[str]) -> tuple[Namespace, Run]:
    """Return the parsed options and the function to call with them. Raises ValueError for invalid ones."""
    if not arguments:
        return Namespace(), print_first_steps
    if arguments[0].startswith("-"):
        options = top_parser().parse_args(arguments)
        if options.print_completion is None:
            raise ValueError("dlstep needs a command: `dlstep --help` lists all")
        return options, print_completion
    command = command_in(arguments)
    rest = arguments[len(command.split()) :]
    if command == "serve" and rest and not rest[0].startswith("-"):
        rest = ["--model", *rest]
    return parser_of(command, rest).parse_args(rest), run_of(command)


def command_in(arguments: Sequence[str]) -> str:
    """Return the command that the first one or two words name. Raises ValueError for an unknown one."""
    first, words = arguments[0], " ".join(arguments[:2])
    if words in COMMANDS:
        return words
    longer = [name for name in COMMANDS if name.startswith(f"{first} ")]
    hint = did_you_mean(words, longer) if "-" not in words else ""
    if first in COMMANDS and not hint:
        return first
    hint = hint or (f"give {' or '.join(longer)}." if longer else did_you_mean(first, COMMANDS))
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
        message = shortened(with_flags(" ".join(str(error).split()), {*vars(options), *HOLDERS} if vars(options) else ()))
        print(f"dlstep: error: {printable(message)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("dlstep: interrupted", file=sys.stderr)
        return 130


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

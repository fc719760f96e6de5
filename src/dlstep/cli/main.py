"""Parsing, dispatch, and how errors are told: one line on stderr and exit code 2."""

import os
import sys
from collections.abc import Callable, Sequence as Items

from jsonargparse import ArgumentError, ArgumentParser, Namespace

from ..core import DlstepError
from . import bench, demo, generate, inspect, models
from .options import new_parser

SUMMARY = "Decode diffusion language models step by step."
EXAMPLES = """
    dlstep demo                                   watch tiny models write, then compare strategies
    dlstep generate 'Max has 53 shells. Later Max buys 39 more. How many shells does Max have?'
    dlstep generate --help                        all options, which a YAML file can hold as well; --max-tokens is --max_tokens
    dlstep strategies                             what can decode, and with which options
    dlstep models                                 what can be decoded
"""

# Name, the parser of its options, what it does: exit code from options.
COMMANDS: dict[str, tuple[str, Callable[[], ArgumentParser], Callable[[Namespace], int]]] = {
    "demo": ("Watch embedded models decode, then compare accuracy and speed.", demo.parser, demo.run),
    "generate": ("Answer prompts.", generate.parser, generate.run),
    "strategies": ("List decoding strategies and their options.", inspect.strategies_parser, inspect.run_strategies),
    "models": ("List families of models, or check a checkpoint.", models.parser, models.run),
    "replay": ("Re-execute a saved trace without a model.", inspect.replay_parser, inspect.run_replay),
    "bench": ("Measure host cost, decode steps or kernels.", bench.parser, bench.run),
}


def build_parser() -> ArgumentParser:
    """The parser of the whole command line."""
    parser = new_parser("dlstep COMMAND ...", SUMMARY, EXAMPLES)
    commands = parser.add_subcommands(required=True, dest="command")
    parsers = {name: make() for name, (_, make, _) in COMMANDS.items()}
    for name, (summary, _, _) in COMMANDS.items():
        commands.add_subcommand(name, parsers[name], help=summary)
    bench.add_kinds(parsers["bench"])
    models.add_actions(parsers["models"])
    return parser


def underscored(arguments: Items[str]) -> list[str]:
    """The arguments with the words of every option's name joined by underscores: both `--max-tokens` and `--max_tokens` do."""
    names = [argument.partition("=") if argument.startswith("--") else ("", "", argument) for argument in arguments]
    return [f"{name[:2]}{name[2:].replace('-', '_')}{equals}{value}" for name, equals, value in names]


def main(arguments: Items[str] | None = None) -> int:
    """Run the command line; the exit code is 0, 1 when an answer or a check failed, 2 for a wrong request, 130 for Ctrl-C."""
    # stderr is for progress of decodes and for errors; loading an embedded model is over before its bar is drawn.
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    try:
        options = build_parser().parse_args(underscored(sys.argv[1:] if arguments is None else arguments))
        return COMMANDS[options.command][2](options[options.command])
    except (ArgumentError, ValueError, OSError, DlstepError) as error:
        print(f"dlstep: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("dlstep: interrupted", file=sys.stderr)
        return 130

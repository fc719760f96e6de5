"""The commands of the command line, and their parsers."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, Literal

from .. import __version__
from .options import new_parser
from .parser import ArgumentParser, Namespace

SUMMARY = "Decode diffusion language models step by step."
QUESTION = "Max has 53 shells. Later Max buys 39 more. How many shells does Max have?"
# First things to try, each with a command line that runs unchanged.
FIRST_STEPS = {
    "watch small models decode": "dlstep demo",
    "answer a prompt": f"dlstep generate '{QUESTION}'",
    "serve a model to OpenAI clients": "dlstep serve --open",
    "compare decoding rules": "dlstep compare --problems 20",
    "check what this machine can use": "dlstep doctor",
}
EXAMPLES = f"""
    dlstep demo                    watch small models decode
    dlstep generate \\
      '{QUESTION}'
    dlstep generate --help         all options, which can also be set in a YAML file
    dlstep serve                   the same over HTTP, for OpenAI clients
    dlstep batch IN.jsonl OUT.jsonl
                                   a file of requests in OpenAI's batch format
    dlstep view RECORDING          a saved recording or trace as one HTML page
    dlstep strategies              decoding strategies and their options
    dlstep rules                   decoding rules and their options
    dlstep models                  supported model families
    dlstep doctor                  what this machine can use
"""

# For each command: its summary, and the module that defines `parser` and `run`. If the name of the module is followed by a
# colon and a word, as in `inspect:rules`, these functions are called `rules_parser` and `run_rules`.
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
    "laws": ("Check your own strategy or rule against the engine's laws.", "laws"),
    "models": ("List families of models, or check a checkpoint.", "models"),
    "replay": ("Re-execute a saved trace without a model.", "inspect:replay"),
    "view": ("Write a recording or a trace as a page that opens without a server.", "view"),
    "bench": ("Measure host cost, decode steps, kernels or a server.", "bench"),
    "doctor": ("Check versions, devices, kernels and optional packages.", "doctor"),
}
WITH_STRATEGY = ("generate", "serve", "batch", "eval")  # commands with the options of a strategy
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
    help_text = "Print a shell completion script and stop."
    parser.add_argument("--print_completion", type=Literal["bash", "zsh", "fish"], default=None, help=help_text)
    return listing(parser, "command", {name: summary for name, (summary, _) in COMMANDS.items()})


def module_of(command: str) -> tuple[Any, str]:
    """Return the module of a command, and the word in the names of its two functions (see `COMMANDS`); mostly empty."""
    module_name, _, which = COMMANDS[command][1].partition(":")
    return import_module(f".{module_name}", __package__), which


def parser_of(command: str, arguments: Sequence[str] = ()) -> ArgumentParser:
    """Return the parser of a command, with the options of the strategy that `arguments` name."""
    module, which = module_of(command)
    parser = getattr(module, f"{which}_parser" if which else "parser")()
    if command in WITH_STRATEGY:
        from .strategy_options import add_strategy_options

        add_strategy_options(parser, arguments)
    return parser

"""Parsing, dispatch, and how errors are told: one line on stderr and exit code 2."""

import os
import re
import sys
from collections.abc import Callable, Sequence as Items
from importlib.metadata import packages_distributions
from itertools import pairwise
from pathlib import Path
from traceback import walk_tb

from jsonargparse import ArgumentError, ArgumentParser, Namespace

from .. import __version__
from ..core import DlstepError
from ..core.words import printable
from ..engine.option_errors import meant
from ..engine.threads import spin_less
from . import (
    attach,
    batch,
    bench,
    compare,
    demo,
    eval as evaluation,
    generate,
    inspect,
    laws,
    models,
    report,
    sections,
    serve,
    simulate,
    tune,
    view,
)
from .options import check_yaml, new_parser
from .strategy_options import add_strategy_options, known_names

SUMMARY = "Decode diffusion language models step by step."
EXAMPLES = """
    dlstep demo                                   watch tiny models write, then compare strategies
    dlstep generate 'Max has 53 shells. Later Max buys 39 more. How many shells does Max have?'
    dlstep generate --help                        all options, which a YAML file can hold as well; --max-tokens is --max_tokens
    dlstep serve                                  the same over HTTP, for OpenAI clients
    dlstep batch IN.jsonl OUT.jsonl               a file of requests in OpenAI's batch format
    dlstep simulate                               what 1 to 1,000 replicas would do, in virtual time
    dlstep view RECORDING                         what its page saved, or a trace, as a page of its own
    dlstep strategies                             what can decode, and with which options
    dlstep rules                                  which positions a forward decides, and with which options
    dlstep models                                 what can be decoded
"""

CLOSED_PIPE = 128 + 13  # what a shell says of a process that SIGPIPE ended
LONGEST_MESSAGE = 2000  # characters
UNDECODED = re.compile("[\udc80-\udcff]")  # bytes that are not UTF-8, as Python keeps them
MISSING_ARGUMENT = re.compile(r"the following arguments are required: ([\w.-]+)\.(\w+)$")
UNKNOWN = re.compile(r"unrecognized arguments: --(\w+)|does not accept option '(\w+)'")
WRONG_TYPE = re.compile(r'Parser key "(?:[\w-]+\.)*(\w+)": (.*?)(?:Given value type: .*?)?(?:Given|Got) value: (.*)$')
# Types as the parser names them, and in words.
KINDS = {
    "class 'int'": "a whole number",
    "class 'float'": "a number",
    "class 'bool'": "true or false",
    "class 'str'": "a text",
    "class 'list'": "a list like [1,2]",
    "list[int]": "a list like [1,2]",
    "list[str]": "a list like [one,two]",
    "class 'NoneType'": "null",
}
MISSING_COMMAND = re.compile(r'expected "((?:[\w-]+\.)*)(\w+)" to be one of \{(.*)\}, but it was not provided')

# Name, the parser of its options, what it does: exit code from options.
COMMANDS: dict[str, tuple[str, Callable[[], ArgumentParser], Callable[[Namespace], int]]] = {
    "demo": ("Watch embedded models decode, then compare accuracy and speed.", demo.parser, demo.run),
    "generate": ("Answer prompts.", generate.parser, generate.run),
    "serve": ("Serve a model to OpenAI clients over HTTP.", serve.parser, serve.run),
    "batch": ("Answer a file of requests in OpenAI's batch format.", batch.parser, batch.run),
    "attach": ("Watch a running server's request.", attach.parser, attach.run),
    "strategies": ("List decoding strategies and their options.", inspect.strategies_parser, inspect.run_strategies),
    "rules": ("List decoding rules and their options.", inspect.rules_parser, inspect.run_rules),
    "compare": ("Compare decoding rules: accuracy against speed.", compare.parser, compare.run),
    "eval": ("Evaluate accuracy and speed on tasks.", evaluation.parser, evaluation.run),
    "report": ("Say what happened where in a run of eval.", report.parser, report.run),
    "tune": ("Find options that are accurate and fast.", tune.parser, tune.run),
    "laws": ("Hold your own strategy or rule to the laws of the engine.", laws.parser, laws.run),
    "models": ("List families of models, or check a checkpoint.", models.parser, models.run),
    "replay": ("Re-execute a saved trace without a model.", inspect.replay_parser, inspect.run_replay),
    "view": ("Write a recording or a trace as a page that opens without a server.", view.parser, view.run),
    "simulate": ("Simulate fleets of 1 to 1,000 replicas in virtual time.", simulate.parser, simulate.run),
    "bench": ("Measure host cost, decode steps, kernels or a server.", bench.parser, bench.run),
}


def build_parser(arguments: Items[str] = ()) -> ArgumentParser:
    """The parser of the whole command line; the options of a strategy are those of the one that the arguments ask for."""
    parser = new_parser("dlstep COMMAND ...", SUMMARY, EXAMPLES)
    parser.add_argument("--version", action="version", version=f"dlstep {__version__}", help="Print the version and stop.")
    commands = parser.add_subcommands(required=True, dest="command")
    parsers = {name: make() for name, (_, make, _) in COMMANDS.items()}
    for name, (summary, _, _) in COMMANDS.items():
        commands.add_subcommand(name, parsers[name], help=summary)
    bench.add_kinds(parsers["bench"])
    models.add_actions(parsers["models"])
    for name in ("generate", "serve", "batch", "eval", "tune"):
        if name in arguments[:1]:
            add_strategy_options(parsers[name], arguments)
    return parser


def underscored(arguments: Items[str]) -> list[str]:
    """The arguments with the words of every option's name joined by underscores: both `--max-tokens` and `--max_tokens` do."""
    names = [argument.partition("=") if argument.startswith("--") else ("", "", argument) for argument in arguments]
    return [f"{name[:2]}{name[2:].replace('-', '_')}{equals}{value}" for name, equals, value in names]


def main(arguments: Items[str] | None = None) -> int:
    """Run the command line.

    The exit code is 0, 1 when an answer or a check failed, 2 for a wrong request, 130 for Ctrl-C, and 141 when whoever reads
    the output stopped reading.
    """
    # stderr is for progress of decodes and for errors; loading an embedded model is over before its bar is drawn.
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
        if isinstance(stop.__context__, BrokenPipeError):  # rich's way
            return _closed_pipe()
        raise


def _run(arguments: Items[str]) -> int:
    """The exit code of a command; errors are told in a line on stderr."""
    try:
        options = parsed(arguments)
        return COMMANDS[options.command][2](options[options.command])
    except BrokenPipeError:
        raise
    except (ArgumentError, ValueError, OSError, DlstepError) as error:
        if raised_elsewhere(error):
            raise
        said = shortened(explained(" ".join(str(error).split()), arguments))
        print(f"dlstep: error: {printable(said)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("dlstep: interrupted", file=sys.stderr)
        return 130


def raised_elsewhere(error: BaseException) -> bool:
    """Whether a strategy or rule of the user's own raised the error, whose traceback then says where."""
    installed = {*sys.stdlib_module_names, *packages_distributions()}
    for frame, _ in reversed(list(walk_tb(error.__traceback__))):
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if package == __name__.partition(".")[0]:
            return False
        if package not in installed and Path(frame.f_code.co_filename).is_file():
            return True
    return False


def parsed(arguments: Items[str]) -> Namespace:
    """The options that the arguments say. Raises ArgumentError or ValueError for wrong ones."""
    for number, argument in enumerate(arguments, 1):
        if UNDECODED.search(argument):
            raise ValueError(f"argument {number} is not UTF-8: {os.fsencode(argument)!r}")
    arguments = underscored(arguments)
    if "bench" in arguments[:1]:
        bench.refuse_moved(arguments[1:])
    if "serve" in arguments[:1]:
        arguments = serve.with_model_named(arguments)
    if "eval" in arguments[:1]:
        arguments = evaluation.with_sections(arguments)
    elif "tune" in arguments[:1]:
        arguments = tune.with_sections(arguments)
    elif arguments[:1] in (["generate"], ["serve"]):
        arguments = sections.with_sections(arguments, {})
    for name, value in pairwise((*arguments, "")):
        if name == "--config" and value:
            check_yaml(value)
        elif name.startswith("--config="):
            check_yaml(name.partition("=")[2])
    try:
        return build_parser(arguments).parse_args(arguments)
    except RecursionError as error:
        raise ValueError("the value of an option nests lists or mappings too deeply to be read") from error


def explained(message: str, arguments: Items[str]) -> str:
    """The parser's message about the arguments; where something is missing, as a sentence that says what to give."""
    if found := MISSING_ARGUMENT.search(message):
        command, name = found[1].replace(".", " "), found[2].removesuffix("s")
        return f"dlstep {command} needs a {name}: `dlstep {command} --help` shows examples"
    if found := MISSING_COMMAND.search(message):
        # The parser cuts long lists short.
        listed = {"command": COMMANDS, "kind": bench.KINDS}.get(found[2])
        names = ", ".join(listed) if listed else found[3].replace(",", ", ")
        return f"{' '.join(('dlstep', *found[1].split('.')[:-1]))} needs a {found[2]}: give one of {names}"
    own: Items[str] = evaluation.own_names() if "eval" in arguments[:1] else ()
    if "tune" in arguments[:1]:
        own = [name for names in tune.owners().values() for name in names]
    if (found := UNKNOWN.search(message)) and (
        hint := meant(found[1] or found[2], [*own, *known_names(underscored(arguments))])
    ):
        return f"{message}: {hint}"
    if found := WRONG_TYPE.match(message):
        kinds = list(dict.fromkeys(words for kind, words in KINDS.items() if kind in found[2]))
        kinds += [f"one of {choices}" for choices in re.findall(r"Literal\[(.*?)\]", found[2])]
        return f"--{found[1]} takes {' or '.join(kinds)}, got {found[3]!r}" if kinds else message
    return message


def shortened(message: str) -> str:
    """The message with its middle left out where it is long, because it repeats what was given."""
    kept = LONGEST_MESSAGE // 2
    return message if len(message) <= LONGEST_MESSAGE else f"{message[:kept]} ... {message[-kept:]}"


def _closed_pipe() -> int:
    """The exit code of a command whose output nobody reads; nothing more is written, by Python at its end either."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(nowhere, stream.fileno())
    return CLOSED_PIPE

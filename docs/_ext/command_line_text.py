"""The reference of the command line as Markdown, written from the parsers of all commands."""

from argparse import SUPPRESS, Action
from collections.abc import Iterator

from option_text import escaped

from dlstep.cli.main import COMMANDS, parser_of
from dlstep.cli.options import ArgumentParser


def text() -> str:
    """Return a section for every command."""
    seen: dict[tuple[str, ...], str] = {}  # the flags of a group, and the command that lists them
    return "\n".join("\n".join(_section(f"dlstep {command}", parser_of(command), seen)) for command in COMMANDS)


def _section(name: str, parser: ArgumentParser, seen: dict[tuple[str, ...], str]) -> Iterator[str]:
    yield f"## {name}\n"
    yield f"```text\n{parser.usage}\n```\n"
    yield f"{escaped(_description(parser))}\n"
    examples = (parser.description or "").partition("examples:\n")[2]
    lines = "\n".join(line.removeprefix("  ") for line in examples.splitlines())
    yield f"```sh\n{lines}\n```\n"
    yield f"````{{program}} {name}\n````\n"
    for group in parser._action_groups:
        actions = [action for action in group._group_actions if action.help not in (None, SUPPRESS)]
        if not actions:
            continue
        yield f"```{{rubric}} {(group.title or '').capitalize()}\n```\n"
        flags = tuple("/".join(action.option_strings) for action in actions)
        if len(flags) > 2 and flags in seen:
            yield f"The same as those of [{seen[flags]}](#{seen[flags].replace(' ', '-')}).\n"
            continue
        seen[flags] = name
        yield from (_option(action, parser) for action in actions)


def _description(parser: ArgumentParser) -> str:
    return " ".join((parser.description or "").partition("examples:\n")[0].split())


def _option(action: Action, parser: ArgumentParser) -> str:
    """Return one option as Sphinx describes it."""
    metavar = f" {action.metavar}" if isinstance(action.metavar, str) and action.option_strings else ""
    names = ", ".join(f"{flag}{metavar}" for flag in action.option_strings) or str(action.metavar or action.dest)
    words = parser._get_formatter()._expand_help(action)
    return f"````{{option}} {names}\n{escaped(' '.join(words.split()))}\n````\n"

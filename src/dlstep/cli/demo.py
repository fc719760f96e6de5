"""`dlstep demo`: blocks filling before your eyes, then what faster decoding costs in accuracy."""

import sys
import time
from inspect import getdoc

from jsonargparse import ArgumentParser, Namespace
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from .. import tiny
from ..bench.frontier import DECODERS, MAX_TOKENS, Row, as_json, label, measure
from ..core import SamplingParams
from ..llm import LLM
from ..session import Session
from ..views import sequence_view, table
from .json_text import json_text
from .options import new_parser

EXAMPLES = """
    dlstep demo
    dlstep demo --problems 500
    dlstep demo --json > rows.json
"""


SHOWN = DECODERS[1:]  # of these, blocks are shown
SECONDS_PER_STEP = 0.2  # on a terminal, so that the eye can follow


def parser() -> ArgumentParser:
    """The options of `dlstep demo`."""
    options = new_parser(
        "dlstep demo [options]", "Watch embedded models decode word problems, then compare accuracy and speed.", EXAMPLES
    )
    options.add_argument("--problems", type=int, default=64, help="Held-out problems per row of the table.")
    options.add_argument("--shown", type=int, default=2, help="Problems whose decode is shown.")
    options.add_argument("--seed", type=int, default=0, help="Seed of the problems.")
    options.add_argument("--device", type=str | None, default=None, help="cpu or cuda; by default cuda if there is one.")
    options.add_argument("--json", action="store_true", help="Print a JSON list of rows, and nothing else, on stdout.")
    return options


def run(options: Namespace) -> int:
    """Show decodes, then the table; with --json only the rows."""
    for name in ("problems", "shown"):
        if options[name] < 1:
            raise ValueError(f"--{name} must be at least 1, got {options[name]}")
    console = Console()
    if not options.json:
        for decoder in SHOWN:
            show(decoder.model(decoder.values[0], options.device), tiny.problems(options.shown, options.seed), console)
    problems = tiny.problems(options.problems, options.seed)
    rows: list[Row] = []
    for decoder in DECODERS:
        for value in decoder.values:
            rows.append(measure(decoder, value, problems, options.device))
            print(f"measured {decoder.label}, {decoder.knob} {value}", file=sys.stderr)
    if options.json:
        print(json_text([as_json(row) for row in rows]))
    else:
        print_table(rows, console)
    return 0


def show(llm: LLM, problems: tuple[tiny.Problem, ...] | list[tiny.Problem], console: Console) -> None:
    """Decode `problems`; on a terminal as a picture of the blocks that changes with every forward, else as text."""
    session = llm.session()
    for problem in problems:
        session.submit(problem.prompt, SamplingParams(max_tokens=MAX_TOKENS))
    state = session.state
    module = sys.modules[type(state.strategy).__module__]
    title = f"{module.__name__.rpartition('.')[2]}: {(getdoc(module) or '').splitlines()[0]}"
    if console.is_terminal:
        with Live(console=console, auto_refresh=False) as live:
            live.update(picture(session, title), refresh=True)
            while not session.state.done:
                session.step()
                live.update(picture(session, title), refresh=True)
                time.sleep(SECONDS_PER_STEP)
        return
    session.run()
    print(title)
    for number, problem in enumerate(problems):
        output = session.output(number)
        print(f"  {problem.prompt.strip()}\n  {output.text.strip()}")
        print(f"  {len(output.token_ids)} tokens in {output.nfe} forwards, the answer is {problem.answer}\n")


def picture(session: Session, title: str) -> Group:
    """The requests of a session, in order of arrival."""
    state = session.state
    found = (state.find(number) for number in range(state.arrivals))
    return Group(Text(title, style="bold"), *(sequence_view(sequence, state) for sequence in found if sequence is not None))


def print_table(rows: list[Row], console: Console) -> None:
    """The table, with what its columns mean."""
    lines = (
        (
            label(row.strategy, row.options),
            row.blocks,
            f"{row.option.removesuffix('_threshold')} {row.value}",
            f"{row.figures.answer:.1%}",
            f"{row.figures.chain:.1%}",
            f"{row.figures.tokens_per_forward:.2f}",
            f"{row.figures.forwards:.1f}",
            f"{row.figures.tokens_per_second:.0f}",
        )
        for row in rows
    )
    columns = ("strategy", "blocks", "option", "answers", "chains", "tokens per forward", "forwards", "tokens per second")
    console.print(table(columns, lines, f"{rows[0].figures.problems} held-out problems, decoded together"))
    console.print("blocks: unfinished at a time; answers: last number right; chains: every equation right")
    console.print("forwards: mean of an answer")

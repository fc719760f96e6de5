"""`dlstep strategies`, `dlstep rules` and `dlstep replay`: commands that need no model."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from inspect import getdoc
from pathlib import Path
from textwrap import wrap

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .. import rules, strategies
from ..core import Abort, Add, Adopt, Fail, Prune, Rebuild, ReplayDiverged, Rule, Samples, Trace
from ..core.options import Options, options_of, with_options
from ..core.plugins import searched
from ..engine.compatibility import Features, matrix
from ..engine.config import EngineConfig
from ..engine.option_help import OptionRow, option_rows, paragraphs, parts_of
from ..engine.resolve import embedded_models_for
from ..strategies._canvas import Canvas
from ..text.constraints import recompiled
from ..text.words import counted, printable
from .flags import as_yaml
from .json_text import json_text
from .options import new_parser
from .parser import ArgumentParser, Namespace
from .strategy_options import title_of


def strategies_parser() -> ArgumentParser:
    """Return the parser of `dlstep strategies`."""
    options = new_parser(
        "dlstep strategies [NAME] [options]",
        "List decoding strategies and their options, one strategy in detail, or the compatibility matrix.",
        "dlstep strategies dual_cache\ndlstep strategies dual_cache --rule quota\ndlstep strategies --matrix",
    )
    options.add_argument("name", nargs="?", type=str, metavar="NAME", help="A strategy, whose options are explained.")
    options.add_argument("--rule", type=str | None, default=None, help="With NAME: explain the options of this rule as well.")
    options.add_argument("--matrix", action="store_true", help="Instead: strategies against models, and their features.")
    options.add_argument("--json", action="store_true", help="Print a JSON list, and nothing else, on stdout.")
    return options


SHORT = ("mode", "blocks", "exact", "shares", "cuts", "temp.", "carries")  # headings for the fields of `Features`


@dataclass(frozen=True, slots=True)
class StrategyRow:
    """A listed strategy; `model` is its embedded model, `options` include those of its rule."""

    name: str
    summary: str
    model: str | None
    options: dict[str, object]


# "Title" (other words), 2025, arXiv 2505.22618; or one word instead of the title.
_PAPER = re.compile(r'(?:"([^"]+)"(?: \([^)]*\))?|([\w.-]+)), (20\d\d), arXiv (\d{4}\.\d{5})')


@dataclass(frozen=True, slots=True)
class Paper:
    """The source of a rule."""

    title: str
    year: int
    arxiv: str


@dataclass(frozen=True, slots=True)
class RuleRow:
    """A listed rule; `carriers` are the built-in strategies that accept it."""

    name: str
    summary: str
    source: str
    papers: tuple[Paper, ...]
    carriers: tuple[str, ...]
    options: dict[str, object]


def strategy_rows() -> list[StrategyRow]:
    """Return all available strategies, each with the embedded model trained for it."""
    rows: list[StrategyRow] = []
    for name in strategies.available():
        model = next(iter(embedded_models_for(EngineConfig(decoding_strategy=name))), None)
        value = strategies.PLUGINS.value(name)
        rows.append(StrategyRow(name, paragraphs(value)[0].splitlines()[0], model, flat(value)))
    return rows


def rule_rows() -> list[RuleRow]:
    """Return all available rules."""
    rows: list[RuleRow] = []
    for name in rules.available():
        value = rules.PLUGINS.value(name)
        texts = paragraphs(value)
        source = re.search(r"Sources?: (.*)", " ".join(" ".join(texts).split()))
        source_text = source[1] if source else ""
        rows.append(RuleRow(name, texts[0].splitlines()[0], source_text, papers(source_text), carriers(value), flat(value)))
    return rows


def papers(source: str) -> tuple[Paper, ...]:
    """Return the papers that a text cites with year and arXiv number."""
    return tuple(Paper(title or word, int(year), number) for title, word, year, number in _PAPER.findall(source))


def carriers(rule: Rule) -> tuple[str, ...]:
    """Return the built-in strategies that accept the rule. A rule without `grids` needs a canvas."""
    names: list[str] = []
    for name in strategies.own():
        value = strategies.PLUGINS.value(name)
        if "rule" in options_of(value) and (rule.grids or isinstance(value, Canvas)):
            names.append(name)
    return tuple(names)


def rules_markdown(rows: Iterable[RuleRow]) -> str:
    """Return the table of rules of `docs/strategies/index.md`; links are relative to that page."""
    lines = ["| rule | idea | from | goes with |", "|---|---|---|---|"]
    for row in rows:
        linked = (
            f"{paper.title}, {paper.year}, [arXiv {paper.arxiv}](https://arxiv.org/abs/{paper.arxiv})" for paper in row.papers
        )
        name = f"[`{row.name}`]({row.name}.md)" if row.name in rules.own() else f"`{row.name}`"
        carried = ", ".join(f"`{carrier}`" for carrier in row.carriers)
        cells = (name, row.summary.rstrip("."), "; ".join(linked) or row.source, carried)
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(lines)


def flat(value: Options) -> dict[str, object]:
    """Return the default of every option, including those of the rule."""
    return {row.name: row.default for part in reversed(list(parts_of(value))) for row in option_rows(part)}


def run_strategies(options: Namespace) -> int:
    """Print the list, a strategy or the matrix."""
    if options.name is None and options.rule is not None:
        raise ValueError("--rule explains the rule of a strategy: name the strategy, too, or use `dlstep rules`")
    if options.name is not None:
        if options.matrix:
            raise ValueError("--matrix is about all strategies: leave the name out")
        with searched(Path.cwd()):
            rule_field = {} if options.rule is None else {"rule": rules.PLUGINS.value(options.rule)}
            value = with_options(strategies.PLUGINS.value(options.name), rule_field)
        return print_options(list(parts_of(value)), as_json=options.json)
    if options.matrix:
        return print_matrix(as_json=options.json)
    rows = strategy_rows()
    if options.json:
        print(json_text([asdict(row) for row in rows]))
        return 0
    print_list((row.name, f"embedded model {row.model}" if row.model else "", [row.summary], row.options) for row in rows)
    Console().print(Text("Use: dlstep generate PROMPT --decoding_strategy NAME --OPTION VALUE", "dim"))
    return 0


def rules_parser() -> ArgumentParser:
    """Return the parser of `dlstep rules`."""
    options = new_parser(
        "dlstep rules [NAME] [options]",
        "List decoding rules: which positions to unmask in a forward pass, the source, and compatible strategies.",
        "dlstep rules\ndlstep rules quota\ndlstep rules --json\ndlstep rules --markdown",
    )
    options.add_argument("name", nargs="?", type=str, metavar="NAME", help="A rule, whose options are explained.")
    options.add_argument("--markdown", action="store_true", help="Print the Markdown table of docs/strategies/index.md.")
    options.add_argument("--json", action="store_true", help="Print a JSON list, and nothing else, on stdout.")
    return options


def run_rules(options: Namespace) -> int:
    """Print the list, or a rule."""
    if options.markdown and (options.json or options.name is not None):
        raise ValueError("--markdown is the list of all rules as a table: leave out NAME and --json")
    if options.name is not None:
        with searched(Path.cwd()):
            value = rules.PLUGINS.value(options.name)
        return print_options(list(parts_of(value)), as_json=options.json)
    rows = rule_rows()
    if options.markdown:
        print(rules_markdown(rows))
        return 0
    if options.json:
        print(json_text([asdict(row) for row in rows]))
        return 0
    print_list((row.name, f"for {', '.join(row.carriers)}", [row.summary, row.source], row.options) for row in rows)
    Console().print(Text("Use: dlstep generate PROMPT --decoding_strategy STRATEGY --rule NAME --OPTION VALUE", "dim"))
    return 0


def print_list(rows: Iterable[tuple[str, str, list[str], dict[str, object]]]) -> None:
    """Print heading, remark, texts and options of each row, in at most 100 columns."""
    console = Console()
    for name, remark, texts, options in rows:
        console.print(Text.assemble((name, "bold"), f", {remark}" if remark else ""))
        print_wrapped(console, (*texts, "  ".join(f"{option}={default}" for option, default in options.items())))


def print_wrapped(console: Console, texts: Iterable[str], indent: str = "  ") -> None:
    """Print indented paragraphs."""
    for text in filter(None, texts):
        lines = wrap(
            as_yaml(text), min(console.width, 100), initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
        )
        console.print(Text("\n".join(lines)))


def print_options(parts: list[Options], *, as_json: bool) -> int:
    """Print every option of a strategy or rule and of the values that it contains: range, default, help."""
    if as_json:
        print(json_text([as_data(row) for part in parts for row in option_rows(part)]))
        return 0
    console = Console()
    for part in parts:
        console.print(Text(title_of(part), "bold"))
        print_wrapped(console, (" ".join(text.split()) for text in paragraphs(part)))
        for row in option_rows(part):
            console.print(Text(f"  --{row.name}", "bold"))
            print_wrapped(console, (row.line(),), indent="      ")
    return 0


def as_data(row: OptionRow) -> dict[str, object]:
    """Return an option as JSON data."""
    return {"name": row.name, "default": row.default, "allowed": row.allowed, "help": row.help}


def print_matrix(*, as_json: bool) -> int:
    """Print which strategies fit which models, and the features of each strategy."""
    rows = matrix()
    if as_json:
        print(json_text([asdict(row) for row in rows]))
        return 0
    models = _fitting("Models and strategies", "a network trained as", {row.strategy: row.models for row in rows})
    families = _fitting("Families and strategies", "family", {row.strategy: row.families for row in rows})
    features = Table("strategy", *SHORT, title="What strategies do by default")
    for row in rows:
        values = asdict(row.features).values()
        features.add_row(row.strategy, *(("no", "yes")[v] if isinstance(v, bool) else str(v) for v in values))
    console = Console()
    console.print(models, families, features)
    for paragraph in (getdoc(Features) or "").split("\n\n"):
        console.print(Text(f"{' '.join(paragraph.split())}\n"))
    return 0


def _fitting(title: str, heading: str, faults: Mapping[str, Mapping[str, str | None]]) -> Table:
    """Return a table of fitting strategies. `faults` gives the reason against each; None if it fits."""
    table = Table(heading, "decodes with", "and not with", title=title)
    for name in next(iter(faults.values())):
        names = [strategy for strategy, against in faults.items() if not against[name]]
        table.add_row(name, ", ".join(names), ", ".join(strategy for strategy in faults if strategy not in names))
    return table


def replay_parser() -> ArgumentParser:
    """Return the parser of `dlstep replay`."""
    options = new_parser(
        "dlstep replay FILE [options]",
        "Plan every step of a saved trace again, compare with the recorded plans, and commit the recorded samples.",
        "dlstep replay decode.jsonl",
    )
    options.add_argument("file", type=str, metavar="FILE", help="What Trace.save wrote.")
    options.add_argument("--json", action="store_true", help="Print a JSON object, and nothing else, on stdout.")
    return options


def run_replay(options: Namespace) -> int:
    """Print what was replayed, or the first divergence. Return 1 for a divergence, else 0."""
    trace = recompiled(Trace.load(options.file))
    kinds = {"add": Add, "adopt": Adopt, "abort": Abort, "fail": Fail, "rebuild": Rebuild, "prune": Prune}
    counts = {name: sum(isinstance(event, kind) for event in trace.events) for name, kind in kinds.items()}
    steps = sum(isinstance(event, Samples) for event in trace.events)
    try:
        state, divergence = trace.replay(), None
    except ReplayDiverged as error:
        state, divergence = None, str(error)
    if options.json:
        print(json_text({"steps": steps, **counts, "divergence": divergence}))
    elif state is None:
        print(f"diverged: {printable(divergence or '')}")
    else:
        live = len(state.running) + len(state.waiting)
        known = counted(counts["add"] + counts["adopt"], "request")
        print(f"replayed {counted(steps, 'step')} of {known}, {live} of them unfinished: every plan is as recorded")
    return 0 if state is not None else 1

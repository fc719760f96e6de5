"""Comparisons: every entry, a strategy with or without a rule, answers every problem; each set of options gives a row."""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import rules, strategies, tiny
from ..batch.checkpoint import Show, no_show
from ..core import Json, Options, Refused, Rule, SamplingParams, Strategy, StrategyOptions, init, options_of, short
from ..core.trace import differing, field_names
from ..engine.json_lines import RunLock
from ..engine.loader import LoadedEngine
from ..llm import LLM
from ..text.words import counted
from .checkpoint import failure
from .metrics import Answers, against_best, aup, frontier
from .options import EvalOptions, grid_of, refused
from .runner import evaluate, public_of
from .table import ACCURACY, COST, SECONDS, SPEED, Column, Figures, TablePart, figures_of

if TYPE_CHECKING:
    from .harness import PublicTasks

CARRIERS = ("multi_bd", "dual_cache")  # strategies to run rules with: one on a grid of blocks, one on a canvas
KNOB = "accept_threshold"  # the option to vary in a class that has it, but no `SWEEP`
SHARES = (0.5, 0.7, 0.8, 0.9, 0.95)  # values to try for an option that must be at most 1, if its class has no `SWEEP`
FACTORS = (0.25, 0.5, 1, 2, 4)  # multiples of the default to try for any other option
SENTENCE_ENDS = (". ", ".")  # in the stories of the embedded models
RUNS = "runs"


class EvalEntry(NamedTuple):
    """The names of a strategy and its rule (empty for none), and an `engine` that decodes with them.

    The engine answers every problem with every combination of the values in `varied`. `given_options`
    are the engine's options from the command line, empty if the rule was a Python value.
    """

    strategy: str
    rule: str
    engine: LoadedEngine
    varied: Json
    given_options: Json

    @property
    def grid(self) -> tuple[StrategyOptions, ...]:
        """The option sets to compare."""
        return grid_of(self.varied)


def sweep_of(value: Options) -> dict[str, tuple[Any, ...]]:
    """Return the option to vary and its values: `SWEEP`, or values derived from a numeric default, if any."""
    if value.SWEEP is not None:
        return dict([value.SWEEP])
    for name in sorted(field_names(value), key=lambda name: name != KNOB):
        default = getattr(value, name)
        if type(default) in (int, float) and default:
            share = type(default) is float and not _is_allowed(value, name, 2.0)
            steps = SHARES if share else [type(default)(default * f) for f in FACTORS]
            allowed = tuple(dict.fromkeys(step for step in steps if _is_allowed(value, name, step)))
            if len(allowed) > 1:
                return {name: allowed}
    return {}


def _is_allowed(value: Options, name: str, step: object) -> bool:
    try:
        return replace(value, **{name: step}) is not None
    except ValueError:
        return False


def name_of(value: str | Rule | Strategy) -> str:
    """Return the name of a rule or a strategy; for an instance, the name of its class."""
    if isinstance(value, str):
        return value
    plugins = rules.PLUGINS if isinstance(value, Rule) else strategies.PLUGINS
    return plugins.name_of(type(value)) or type(value).__name__


def entries(
    named: Sequence[str | Rule] | None = None,
    carriers: Sequence[str] | None = None,
    *,
    grid: Json | None = None,
    **engine: Any,
) -> tuple[list[EvalEntry], list[str]]:
    """Return an entry for each compatible pair of a strategy and a rule, and why others are left out.

    A strategy that accepts no rule is an entry by itself. `named` are names or instances of rules
    (None: all rules), `carriers` are names of strategies. `grid` maps options to values (None:
    `sweep_of` of each entry). `engine` are options of `LLM`; without a model, the embedded models
    decode, with other values for defaults that only suit large models. A strategy that the model
    cannot be decoded with is left out. Raises ValueError for a duplicate, for a rule that no
    strategy accepts, and if nothing is left.
    """
    requested = carriers or (CARRIERS if engine.get("model") is None else (None,))
    given_names = [*map(name_of, named or ())]
    for kind, names in (("rule", given_names), ("strategy", requested)):
        if len(set(names)) < len(names):
            raise ValueError(f"a {kind} is given twice in {short(names)}: list it once")
    for rule in named or ():
        rules.PLUGINS.value(rule)  # raises for an unknown name, before a model is loaded
    by_name = {name_of(rule): rule for rule in (rules.available() if named is None else named)}
    found, reasons = list[EvalEntry](), list[str]()  # reasons why strategies, then why pairs are left out
    for carrier in requested:
        options = {"decoding_strategy": carrier, **engine}
        try:
            llm = LLM(**options)
        except Refused as error:
            if error.refusal.code not in ("missing", "unsupported", "conflict"):
                raise
            reasons.insert(0, f"{carrier}: {error}")
            continue
        named_rules = by_name if isinstance(options_of(llm.state.strategy).get("rule"), Rule) else {"": None}
        for name, rule in named_rules.items():
            try:
                found.append(entry_of(llm, name, rule, grid, options))
            except ValueError as error:
                pair = " on ".join(filter(None, (name, name_of(llm.state.strategy))))
                reasons.append(f"{pair}: {error}")
    if not found:
        raise ValueError(f"nothing is left to compare: {reasons[-1]}")
    if alone := next((name for name in given_names if all(entry.rule != name for entry in found)), None):
        reason = next((why for why in reasons if why.startswith(f"{alone} on ")), "those that fit the model accept no rule")
        raise ValueError(f"rule {short(alone)} fits none of the strategies: {reason}")
    return found, reasons


def entry_of(llm: LLM, name: str, rule: str | Rule | None, grid: Json | None, given_options: Json) -> EvalEntry:
    """Return the entry of a strategy and its rule, if any. Raises ValueError if they are incompatible."""
    strategy, config, changed = llm.state.strategy, llm.state.config, Json()
    swept: Options = strategy
    if rule is not None:
        swept = rules.PLUGINS.value(rule)
        own = options_of(strategy)["rule"]
        kept = Json()
        if isinstance(rule, str) and type(own) is type(swept):  # start from the model's options of this rule
            kept = {name: getattr(own, name) for name in differing(own, swept, field_names(own))}
            swept = own
        embedded = given_options.get("model") in (None, *tiny.names())
        suited = suited_options(swept, options_of(strategy).get("block_size")) if embedded else {}
        swept = replace(swept, **suited)
        # Rules that read the whole answer cannot use a cache, so the comparison disables it for every rule.
        cache = {"cache": "none"} if "cache" in options_of(strategy) else {}
        strategy = replace(strategy, rule=swept, **cache)  # pyright: ignore[reportCallIssue]
        changed = cache | kept | suited | {"rule": rule}
    entry = EvalEntry(
        name_of(llm.state.strategy), name, replace(llm.engine, first=init(config, strategy)),
        sweep_of(swept) if grid is None else grid,
        {**given_options, **changed} if rule is None or isinstance(rule, str) else {},
    )  # fmt: skip
    for options in entry.grid:
        if reason := refused(config, strategy, SamplingParams(max_tokens=1, strategy_options=options)):
            raise ValueError(reason)
    return entry


def suited_options(rule: Rule, block_size: Any) -> Json:
    """Return new values for options of a rule that do not suit an embedded model (`block_size` None: no blocks).

    Delimiters of other tokenizers become sentence ends, and the size of parts becomes the block
    size. Options that differ from their defaults are left out.
    """
    tokenizer = (tiny.path(tiny.DEFAULT) / "tokenizer.json").read_text("utf-8")  # all embedded models share it
    ends = tuple(json.loads(tokenizer)["model"]["vocab"][end] for end in SENTENCE_ENDS)
    suited: Json = {"delimiters": ends} | ({"part_size": block_size} if block_size else {})
    own, usual = options_of(rule), options_of(rules.PLUGINS.value(type(rule)))
    return {name: option for name, option in suited.items() if name in own and own[name] == usual[name]}


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRow(Figures):
    """An entry with one set of options on a task; `docs/evaluation.md` defines each column."""

    task: str
    strategy: str
    rule: str
    model: str
    options: Json
    on_frontier: bool
    to_best: float
    to_best_low: float
    to_best_high: float
    as_right: bool
    aup: float
    aup_best: float
    error: str

    @property
    def entry(self) -> str:
        """A short name of the entry."""
        return ", ".join(filter(None, (self.strategy, Path(self.rule).stem)))

    @property
    def value(self) -> str:
        """The values of the options as short text."""
        return ", ".join(f"{value:g}" if isinstance(value, float) else str(value) for value in self.options.values())


def curves_of(rows: Sequence[ComparisonRow]) -> dict[str, dict[str, list[ComparisonRow]]]:
    """Return the rows of each task and entry."""
    curves: dict[str, dict[str, list[ComparisonRow]]] = {}
    for row in rows:
        curves.setdefault(row.task, {}).setdefault(row.entry, []).append(row)
    return curves


def fastest(rows: Sequence[ComparisonRow]) -> ComparisonRow | None:
    """Return the fastest row that is not significantly worse than the best; None if there is none."""
    right = [row for row in rows if row.as_right]
    return max(right, key=lambda row: (row.tokens_per_forward, row.accuracy), default=None)


def compared(
    entries: Sequence[EvalEntry],
    options: EvalOptions,
    folder: Path | None = None,
    public: "PublicTasks | None" = None,
    *,
    show: Show = no_show,
) -> list[ComparisonRow]:
    """Return the rows of all entries on the problems that `options` select, task by task.

    The run of each entry is stored in `folder`, below `runs`, where an interrupted run resumes;
    `options.out` is ignored. `public` are the tasks of lm_eval if they are already loaded. Raises
    ValueError for problems that cannot be read, and for a folder that holds another comparison.
    """
    if options.grid != ((),):
        raise ValueError("EvalOptions of a comparison have no grid: the entries define the values to compare")
    results, done, public = list[Result](), 0, public or public_of(options)
    with nullcontext(folder) if folder else TemporaryDirectory() as root, closing(RunLock(Path(root))):
        for entry in entries:
            out = Path(root) / RUNS / folder_of(entry)
            chosen = replace(options, grid=entry.grid, out=str(out))
            given = {"engine": dict(entry.given_options), "eval": asdict(chosen) | {"grid": dict(entry.varied) or None}}
            run = evaluate(
                entry.engine, chosen, public, given_options=given if entry.given_options else None,
                show=lambda more, status, before=done: show(before + more, status),
            )  # fmt: skip
            done += len(run.rows)
            for (task, of_options), pairs in run.groups.items():
                error = next((failure(row) for row, _ in pairs if row["error"]), "")
                results.append(Result(entry, task, json.loads(of_options), Answers.of(pairs), error))
    tasks = dict.fromkeys(result.task for result in results)
    return [row for task in tasks for row in rows_of([result for result in results if result.task == task])]


def folder_of(entry: EvalEntry) -> str:
    """Return the name of the folder of an entry's run."""
    return re.sub(r"[^\w.-]+", "_", "-".join(filter(None, (entry.strategy, entry.rule)))).strip(".")


class Result(NamedTuple):
    """An entry's answers with a set of options to a task; `error` is that of the first failure."""

    entry: EvalEntry
    task: str
    options: Json
    answers: Answers
    error: str


def rows_of(results: Sequence[Result]) -> list[ComparisonRow]:
    """Return the rows of all results of a task."""
    points = [(result.answers.tokens_per_forward, result.answers.accuracy) for result in results]
    best, ahead = max(accuracy for _, accuracy in points), frontier(points)
    distances = against_best(np.array([result.answers.scores for result in results]).T)
    rows: list[ComparisonRow] = []
    for (entry, task, options, answers, error), point, distance in zip(results, points, distances, strict=True):
        curve = [point for each, point in zip(results, points, strict=True) if each.entry is entry]
        rows.append(ComparisonRow(
            task=task, strategy=entry.strategy, rule=entry.rule, model=entry.engine.name, options=options,
            **figures_of(answers), on_frontier=point in ahead, **distance._asdict(), aup=aup(curve, best), aup_best=best,
            error=error,
        ))  # fmt: skip
    return rows


ROW: tuple[Column[ComparisonRow], ...] = (
    ("", lambda row: f"{'*' if row.on_frontier else ' '}{'=' if row.as_right else ' '} {row.value}"),
    ACCURACY, SPEED, COST,
    ("to the best, %", lambda row: f"[{100 * row.to_best_low:.1f}, {100 * row.to_best_high:.1f}]"),
    SECONDS,
)  # fmt: skip


def comparison_parts(rows: Sequence[ComparisonRow]) -> Iterator[TablePart]:
    """Yield a part for each entry of a task, and a summary of the task: its curves by falling AUP."""
    for task, curves in curves_of(rows).items():
        for entry, own in curves.items():
            varied = ", ".join(own[0].options) or "nothing is varied"
            title = f"{task}, {counted(own[0].answers, 'problem')}: {entry}, {own[0].model}: {varied}"
            yield TablePart(title, [head for head, _ in ROW], [[cell(row) for _, cell in ROW] for row in own], 1)
        summary: list[list[str]] = []
        for entry, own in sorted(curves.items(), key=lambda curve: -curve[1][0].aup):
            best = fastest(own)
            figures = ["none", "-", "-"] if best is None else [best.value, ACCURACY[1](best), SPEED[1](best)]
            summary.append([entry, f"{own[0].aup:.1f}", *figures])
        best_of_task = max(row.aup_best for own in curves.values() for row in own)
        title = f"{task}: the AUP, y_max {100 * best_of_task:.1f} %, and the fastest as right as the best"
        yield TablePart(title, ("strategy, rule", "AUP", "fastest at", "right, %", "tok/fwd"), summary, 1)

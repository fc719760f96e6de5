"""`dlstep tune`: search accurate and fast options of a strategy with a part of a grid's forward passes."""

import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, fields
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import yaml
from rich.console import Console

from ..engine.config import EngineConfig, engine_config
from ..extras import require
from .eval import ENGINE_FIELDS
from .json_text import json_text
from .options import add_config_option, add_options, field_help, new_parser
from .parser import ArgumentParser, Namespace

if TYPE_CHECKING:
    from ..evaluate.options import EvalOptions
    from ..evaluate.space import TuneOptions
    from ..evaluate.tuning import TuningResult

EXAMPLES = """
    dlstep tune                                       accept_threshold of the embedded model, on stories
    dlstep tune --over accept_threshold=0.3:0.99 add_block_threshold=0.1,0.5,0.9 --write best.yml --plot frontier.png
    dlstep tune --over buffer_size=1:4 accept_threshold=0.5:0.95:10 --at_least 0.98 --out buffers
    dlstep generate --config best.yml 'Max has 53 shells. Later Max buys 39 more. How many shells does Max have?'
    dlstep tune --config configs/sdar.multi_bd.yaml --model /models/SDAR-1.7B-Chat --data /data --resume --out sdar
    dlstep tune --throughput --over buffer_size=1,2,4 --batch_sizes [1,8,32] --write policy.yml --out load
"""
OUT = "dlstep-tune"
OWN_OF_EVAL = ("grid",)
OWN = ("write", "plot", "study", "json", "progress", "config", "throughput", "batch_sizes", "repeats")
TUNED = ("write", "plot", "study", "throughput", "batch_sizes", "repeats")  # of these, the options of the section `tune:`


def owners() -> Mapping[str, Sequence[str]]:
    """Return the names of each section of a file besides `engine:`."""
    from ..evaluate.options import EvalOptions
    from ..evaluate.space import TuneOptions

    names = [field.name for field in fields(EvalOptions) if field.name not in OWN_OF_EVAL]
    return {"eval": names, "tune": [*(field.name for field in fields(TuneOptions)), *TUNED]}


def parser() -> ArgumentParser:
    """Return the parser of `dlstep tune`, without the options of the strategy."""
    from ..evaluate.options import EvalOptions
    from ..evaluate.space import OVER, TuneOptions

    options = new_parser(
        "dlstep tune [options]",
        "Find options of a strategy that are accurate and fast; see docs/evaluation.md.",
        EXAMPLES,
    )
    add_config_option(options, owners())
    group = options.add_argument_group("tuning")
    texts = field_help(TuneOptions)
    group.add_argument("--over", type=str, nargs="+", default=list(OVER), metavar="NAME=VALUES", help=texts["over"])
    group.add_argument("--write", type=str | None, default=None, metavar="FILE", help="Write what was chosen, for --config.")
    group.add_argument("--plot", type=str | None, default=None, metavar="FILE", help="Draw the frontier into this file.")
    study = "Write the sets of options as an Optuna study, for optuna-dashboard, into this SQLite file."
    group.add_argument("--study", type=str | None, default=None, metavar="FILE", help=study)
    group.add_argument("--json", action="store_true", help="Print what was found as JSON, and nothing else, on stdout.")
    group.add_argument("--progress", type=bool, default=True, help="Draw a progress bar where stderr is a terminal.")
    resume = next(field for field in fields(TuneOptions) if field.name == "resume")
    group.add_argument("--resume", action="store_true", help=texts["resume"])
    chosen = tuple(field for field in fields(TuneOptions) if field.name not in ("over", resume.name))
    add_options(options, "search", TuneOptions, chosen, texts)
    loads = options.add_argument_group("load")
    loads.add_argument(
        "--throughput",
        action="store_true",
        help="Instead: tokens per second with each set of options, and with --write a table for --buffer_policy.",
    )
    loads.add_argument(
        "--batch_sizes", type=list[int] | int, default=[1, 8, 32], help="--throughput: numbers of live requests, as [1,8,32]."
    )
    loads.add_argument("--repeats", type=int, default=5, help="--throughput: measurements of each set at each number.")
    problem_fields = tuple(field for field in fields(EvalOptions) if field.name not in OWN_OF_EVAL)
    add_options(options, "problems", EvalOptions, problem_fields, field_help(EvalOptions))
    options.set_defaults(out=OUT)
    add_options(options, "engine", EngineConfig, ENGINE_FIELDS, field_help(EngineConfig))
    return options


def run(options: Namespace) -> int:
    """Search, then print, plot and write the result."""
    from ..engine.run_lock import check_free
    from ..evaluate.answerer_pool import pool_of
    from ..evaluate.items import read_documents
    from ..evaluate.tuning import parted, problems_of, tune
    from ..views.progress_bars import tuning_bar

    check_files(options)
    eval_options, tuning, engine = split(options)
    documents = read_documents(eval_options)
    if not options.throughput:
        parted(problems_of(documents), tuning)  # raises an error for too few problems before the weights are loaded
    check_free(Path(eval_options.out))
    config = engine_config(engine)
    if options.throughput:
        from .tune_load import run_load

        return run_load(options, eval_options, tuning, documents, config)
    given_options = {"engine": engine, "eval": asdict(eval_options) | {"grid": None}, "tune": asdict(tuning)}
    with closing(pool_of(config, eval_options)) as pool, tuning_bar(enabled=options.progress) as show:
        tuned = tune(pool, eval_options, tuning, documents, given_options=given_options, show=show)
    if options.plot is not None:
        from ..bench.plot import plot_frontier

        plot_frontier(tuned, Path(options.plot))
    if options.study is not None:
        from ..evaluate.tuning import write_study

        write_study(Path(options.study), tuned.space, tuned.tried)
    again = "" if options.write is None else write_best(Path(options.write), options, engine, tuned, eval_options)
    from .tune_table import as_json, print_tuned

    if options.json:
        print(json_text(as_json(tuned)))
    else:
        print_tuned(tuned, Console(), chosen_by(tuning))
        if options.write is not None:
            print(f"written: `dlstep eval --config {quote(options.write)}{again}`, the same for generate and serve")
    return 0


def check_files(options: Namespace) -> None:
    """Raise ValueError, before the search, for an unwritable file or an option without effect."""
    if options.throughput:
        if options.repeats < 2:
            raise ValueError(f"--repeats must be at least 2, to tell the noise, got {options.repeats}")
        for name in ("plot", "study"):
            if options[name]:
                raise ValueError(f"--{name} has no effect with --throughput: leave one of them out")
    if options.plot is not None:
        from ..views.plots import check_plot

        check_plot()
    if options.study is not None:
        require("--study", "tune")
    for name in ("write", "plot", "study"):
        path = options[name]
        if path is not None and (Path(path).is_dir() or not Path(path).absolute().parent.is_dir()):
            raise ValueError(f"--{name} {path!r} is no file in a folder that there is: give another one")


def split(options: Namespace) -> tuple["EvalOptions", "TuneOptions", dict[str, Any]]:
    """Return the options of the problems, of the search, and of engine and strategy.

    Raises ValueError for values out of range.
    """
    from ..evaluate.options import options_from
    from ..evaluate.space import TuneOptions

    names = owners()
    over = options.over if isinstance(options.over, list) else [options.over]
    tuning = TuneOptions(
        over=tuple(over), **{field.name: options[field.name] for field in fields(TuneOptions) if field.name != "over"}
    )
    others = {*names["eval"], *names["tune"], *OWN}
    eval_options = options_from({name: options[name] for name in names["eval"]})
    return eval_options, tuning, {name: value for name, value in vars(options).items() if name not in others}


def chosen_by(tuning: "TuneOptions") -> str:
    """Return the criterion by which the set of options was chosen, in words."""
    if tuning.at_least is None:
        return "the knee"
    return f"the fastest with {100 * tuning.at_least:g} % of the best accuracy"


def write_best(
    path: Path, options: Namespace, engine: Mapping[str, Any], tuned: "TuningResult", eval_options: "EvalOptions"
) -> str:
    """Write the given engine options and the chosen ones as a file for `--config`.

    Return the flags that must be given with the file: those of modules, which a file may not import.
    """
    from ..views.figures import interval

    usual = {field.name: field.default for field in fields(EngineConfig)}
    written = {name: value for name, value in engine.items() if name not in usual or value != usual[name]}
    left_out = {name: written.pop(name) for name in list(written) if is_path(name, written[name])}
    held = tuned.chosen_held.sums
    right = interval(held.accuracy, *held.accuracy_interval, 100, 1)
    lines = [
        f"# Chosen by `dlstep tune` for {', '.join(eval_options.tasks)}; on {held.count} held-out problems:",
        f"# {right} % right, {held.tokens_per_forward:.2f} tokens per forward pass.",
        *(f"# Give --{name} {value} again: a file may not import a module." for name, value in left_out.items()),
    ]
    body = yaml.safe_dump({"engine": written | dict(tuned.chosen.options)}, sort_keys=False, allow_unicode=True)
    path.write_text("\n".join(lines) + "\n" + body, encoding="utf-8")
    for name, value in left_out.items():
        print(f"dlstep: {options.write} leaves out --{name} {value}: a file may not import a module", file=sys.stderr)
    return "".join(f" --{name} {quote(value)}" for name, value in left_out.items())


def is_path(name: str, value: object) -> bool:
    """Return whether the option would import a module."""
    from .yaml_file import IMPORTED

    return name in IMPORTED and isinstance(value, str) and any(mark in value for mark in "./\\:")

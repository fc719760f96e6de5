"""`dlstep tune --throughput`: the fastest options at each load, as a table for `--buffer_policy`."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from ..bench.load import Rate, chosen_at, policy_rows, rates
from ..core import options_of
from ..core.options import StrategyOptions
from ..engine.buffer_policy import policy_of
from ..engine.config import EngineConfig
from ..engine.loader import LoadedEngine, load_engine
from ..evaluate.answerer_pool import Answering
from ..evaluate.checkpoint import ANSWERS, read
from ..evaluate.documents import Document
from ..evaluate.items import Item, items_of, options_text
from ..evaluate.metrics import Answers
from ..evaluate.options import EvalOptions
from ..evaluate.runner import evaluate
from ..evaluate.space import OVER, TuneOptions, space_of
from ..evaluate.tuning import MOST_PROBLEMS, check_folder
from ..text.words import counted, printable
from ..views.figures import interval, text_table, with_error
from ..views.progress_bars import tuning_bar
from .json_text import json_text
from .parser import Namespace
from .tune_table import text_of

MOST_SETS = 64
AT_LEAST = 0.98  # default share of the best accuracy


def run_load(
    options: Namespace,
    eval_options: EvalOptions,
    tuning: TuneOptions,
    documents: Mapping[str, list[Document]],
    config: EngineConfig,
) -> int:
    """Answer problems with every set of options, measure each at every load, and write the table."""
    check_folder(Path(eval_options.out), tuning)
    engine = load_engine(config)
    loads = loads_of(options.batch_sizes, engine.first.config.max_num_reqs)
    eval_options = replace(eval_options, grid=sets_of(tuning, engine))
    documents = {task: listed[: tuning.problems or MOST_PROBLEMS] for task, listed in documents.items()}
    items: dict[StrategyOptions, list[Item]] = {chosen: [] for chosen in eval_options.grid}
    for item in items_of(eval_options, documents):
        items[item.options].append(item)
    with tuning_bar(enabled=options.progress) as show:
        show.begin(f"{counted(len(items), 'set')}: accuracy", sum(map(len, items.values())))
        evaluate(Answering(engine), eval_options, documents, show=show.answered)
        show.begin("tokens a second", len(items) * len(loads) * options.repeats)
        measured_rates = rates(engine, items, loads, options.repeats, lambda done: show.answered(done, 0.0))
    run = read(Path(eval_options.out))
    texts = {options_text(dict(chosen)): chosen for chosen in eval_options.grid}
    answers: dict[StrategyOptions, Answers] = {}
    for (_, text), sums in run.sums.items():
        answers[texts[text]] = answers.get(texts[text], Answers()) + sums
    if not any(sums.accuracy for sums in answers.values()):
        raise ValueError(f"no answer was right, so nothing can be chosen: look at {run.folder / ANSWERS}")
    at_least = tuning.at_least or AT_LEAST
    chosen = chosen_at(measured_rates, answers, at_least)
    rows = policy_rows(chosen)
    assert policy_of(rows) is not None, "what is written can be read"
    if options.write is not None:
        head = f"# Measured by `dlstep tune --throughput` with {engine.name} on {device_name(config)}.\n"
        Path(options.write).write_text(head + table_text(rows), encoding="utf-8")
    if options.json:
        print(json_text([as_row(rate, answers, chosen) for rate in measured_rates]))
        return 0
    print_rates(measured_rates, answers, chosen, Console(), options.repeats)
    print(f"accurate enough: {100 * at_least:g} % of the best accuracy. The table for --buffer_policy:")
    print(table_text(rows), end="")
    return 0


def loads_of(batch_sizes: int | list[int], most: int) -> list[int]:
    """Return the numbers of live requests, ascending. Raises ValueError for numbers out of range."""
    loads = sorted({batch_sizes} if isinstance(batch_sizes, int) else {*batch_sizes})
    if not loads or loads[0] < 1:
        raise ValueError(f"--batch_sizes must be whole numbers above 0, got {batch_sizes}")
    if loads[-1] > most:
        raise ValueError(f"--batch_sizes: {loads[-1]} requests are more than max_num_reqs={most}: give fewer, or raise that")
    return loads


def sets_of(tuning: TuneOptions, engine: LoadedEngine) -> tuple[StrategyOptions, ...]:
    """Return every combination of options to measure; without --over, every `buffer_size`."""
    config, strategy = engine.first.config, engine.first.strategy
    over = tuning.over
    if over == OVER:
        now = options_of(strategy).get("buffer_size")
        if not isinstance(now, int) or now < 2:
            raise ValueError(f"--throughput without --over varies buffer_size, which is {now} here: say what to vary by --over")
        over = (f"buffer_size=1:{now}",)
    space = space_of(over, config, strategy)
    if space.size > MOST_SETS:
        raise ValueError(f"--over has {space.size} sets of options, and --throughput measures at most {MOST_SETS}: give fewer")
    return tuple(space.spread(space.size))


def device_name(config: EngineConfig) -> str:
    """Return the name of the device on which the figures were measured."""
    import torch

    from ..engine.devices import find_device

    device = find_device(config.device)
    return torch.cuda.get_device_name(device) if device.startswith("cuda") else device


def table_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the table as YAML, one line per entry."""
    return "".join(f"- {yaml.safe_dump(dict(row), default_flow_style=True, sort_keys=False, width=1000)}" for row in rows)


def as_row(rate: Rate, answers: Mapping[StrategyOptions, Answers], chosen: Mapping[int, Rate]) -> dict[str, Any]:
    """Return a rate as JSON data."""
    return {
        "options": dict(rate.options),
        "requests": rate.live,
        "tokens_per_second": rate.tokens_per_second,
        "noise": rate.noise,
        "accuracy": answers[rate.options].accuracy,
        "chosen": chosen[rate.live] == rate,
    }


def print_rates(
    measured_rates: Sequence[Rate],
    answers: Mapping[StrategyOptions, Answers],
    chosen: Mapping[int, Rate],
    console: Console,
    repeats: int,
) -> None:
    """Print a line per set of options with its rate at each load; mark the fastest accurate enough."""
    sets = list(dict.fromkeys(rate.options for rate in measured_rates))
    for number, options in enumerate(sets, 1):
        console.print(printable(f"# {number}: {text_of(options)}"), markup=False, highlight=False, soft_wrap=True)
    rows: list[list[str]] = []
    for number, options in enumerate(sets, 1):
        sums = answers[options]
        cells = [str(number), interval(sums.accuracy, *sums.accuracy_interval, 100, 1)]
        for rate in measured_rates:
            if rate.options == options:
                mark = "*" if chosen[rate.live] == rate else " "
                cells.append(with_error(rate.tokens_per_second, rate.noise, 0) + mark)
        rows.append(cells)
    console.print(text_table(["#", "right, %", *map(str, chosen)], rows))
    console.print(
        f"tokens a second while so many requests are live: median of {repeats} measurements, ± the standard deviation of one.\n"
        "* the fastest that is accurate enough; of those as fast up to noise, the first.",
        highlight=False,
    )

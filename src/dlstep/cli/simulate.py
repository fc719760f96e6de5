"""`dlstep simulate`: replicas in virtual time."""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import tiny
from ..core import Config, Strategy
from ..strategies import load
from ..text.words import counted
from .json_text import json_text
from .options import new_parser
from .parser import ArgumentParser, Namespace
from .rows import print_rows

if TYPE_CHECKING:
    from ..simulate.figures import Figures, SimulatedReplicas, Traffic
    from ..simulate.served import PredictionError
    from ..simulate.sizing import LatencyTarget
    from ..simulate.work import MeasuredAnswer

EXAMPLES = """
    dlstep simulate
    dlstep simulate --forward_ms 9 --row_us 12 --rate 10 --system_prompts 50 --system_tokens 64 --replicas [1,10,100]
    dlstep simulate --answers tiny-bd --total_rate 40 --target p95=0.5       how many replicas does it take?
    dlstep simulate --shape sdar-8b --gpus [1,2,4,8] --rows [130,1040]

    dlstep bench serve http://127.0.0.1:8000 --rates [4,4,4] --warm true --json > slow.json
    dlstep bench serve http://127.0.0.1:8000 --rates [12,12,12] --warm true --json > fast.json
    dlstep bench serve http://127.0.0.1:8000 --rates [8,8,8] --warm true --json > middle.json
    dlstep simulate --fit slow.json fast.json --against middle.json --plot curve.png
"""
SUMMARY = (
    "Throughput, latency, prefix hits and busy time of 1 to 1,000 replicas, in virtual time: each is the real scheduler with "
    "scripted samples, and requests are placed as `dlstep serve --replicas` does it. Times of forward passes are given, or "
    "fitted to rows of `dlstep bench serve` at two rates; --against shows what they predict of a third. --total_rate with "
    "--target searches for the fewest replicas that meet a latency target. Give the options of the engine that was measured; "
    "the defaults are those of the embedded model."
)
CURVE = ("replicas", "requests", "tokens_per_s", "latency_p50", "latency_p95", "latency_p99", "queue_p95", "hit_rate", "busy")
COSTS = {"forward_ms": 5.0, "row_us": 20.0, "request_us": 0.0, "context_ns": 0.0, "delay_ms": 0.0}
UNITS = {"forward_ms": 1e-3, "row_us": 1e-6, "request_us": 1e-6, "context_ns": 1e-9, "delay_ms": 1e-3}
STEPS = ("gpus", "rows")  # options of --shape
# Options that need another option, with advice; then options that another one overrides, with the
# reason.
NEEDS = {
    **dict.fromkeys(STEPS, ("shape", "give one such as sdar-8b")),
    "target": ("total_rate", "give both, or none"),
    "seconds": ("total_rate", "give both, or none"),
    "most_replicas": ("target", "give both, or none"),
    "against": ("fit", "give the files of two other rates to it"),
}
IDLE = {"rate": ("total_rate", ""), "replicas": ("target", ""), **dict.fromkeys(COSTS, ("fit", ", which estimates its value"))}
OPTIONS = {"block_size": 8, "buffer_size": 4}
BUDGETS = {"page_size": 8, "num_pages": 8192, "max_model_len": 512, "max_num_batched_tokens": 4096, "max_num_reqs": 128}
RATE, MAX_TOKENS = 4.0, 64
SECONDS, MOST = 20.0, 1000  # defaults of --seconds and --most_replicas


def parser() -> ArgumentParser:
    """Return the parser of `dlstep simulate`."""
    options = new_parser("dlstep simulate [options]", SUMMARY, EXAMPLES)
    add = options.add_argument
    add("--fit", type=str, nargs="+", default=None, metavar="FILE", help="Fit to rows of `dlstep bench serve --json`.")
    add("--against", type=str, nargs="+", default=None, metavar="FILE", help="Rows to predict, with --fit.")
    for name, text in (
        ("forward_ms", "Milliseconds of a forward pass"), ("row_us", "Microseconds of each row that it feeds"),
        ("request_us", "Microseconds of each request in it"), ("context_ns", "Nanoseconds of each position of context"),
        ("delay_ms", "Milliseconds that a request takes outside of the engine"),
    ):  # fmt: skip
        add(f"--{name}", type=float | None, default=None, help=f"{text}; None: {COSTS[name]:g}.")
    lengths = (
        "Lengths and forward passes of answers: rows of `dlstep bench serve --json`, a saved trace, or the name of an embedded "
        "model, which then decodes some of its stories. None: those of --fit."
    )
    add("--answers", type=str | None, default=None, metavar="FILE", help=lengths)
    load_group = options.add_argument_group("load")
    add = load_group.add_argument
    add("--replicas", type=list[int] | int | None, default=None, help="Rows of the curve; None: 1, 2, 5 and so on to 1000.")
    add("--rate", type=float | None, default=None, help=f"Requests a second for each replica; None: {RATE:g}.")
    add(
        "--total_rate", type=float | None, default=None, help="Requests a second for all replicas together, in place of --rate."
    )
    searched = "Search for the fewest replicas within this latency: seconds of p50, p95 or p99, such as p95=0.5."
    add("--target", type=str | None, default=None, metavar="p95=SECONDS", help=searched)
    add("--most_replicas", type=int | None, default=None, help=f"With --target: the most replicas to try; None: {MOST}.")
    add("--seconds", type=float | None, default=None, help=f"With --total_rate: seconds of arrivals; None: {SECONDS:g}.")
    add("--requests", type=int, default=20, help="Requests in all for each replica.")
    add("--fewest", type=int, default=1000, help="Fewest requests of a row, even with few replicas.")
    add("--max_tokens", type=int | None, default=None, help=f"`max_tokens` of each request; None: {MAX_TOKENS}.")
    add("--system_prompts", type=int, default=0, help="Prompts begin with one of so many texts; 0: they share nothing.")
    add("--system_tokens", type=int, default=0, help="Tokens of each such text.")
    add("--zipf", type=float, default=1.0, help="The k-th text is 1/k**zipf times as frequent as the first.")
    add("--seed", type=int, default=0, help="Seed of arrivals and answers.")
    engine = options.add_argument_group("engine")
    add = engine.add_argument
    add("--decoding_strategy", type=str, default="multi_bd", help="Name of a strategy whose rule unmasks sure positions.")
    add("--options", type=dict[str, Any], default=OPTIONS, metavar="JSON", help="Its options.")
    for name, default in BUDGETS.items():
        add(f"--{name}", type=int, default=default, help="As of the engine.")
    step = options.add_argument_group("instead: a step of tensor parallelism")
    step.add_argument("--shape", type=str | None, default=None, help="Bytes and all-reduces of a step of, like, sdar-8b.")
    step.add_argument("--gpus", type=list[int] | int | None, default=None, help="Numbers of GPUs; None: 1, 2, 4 and 8.")
    step.add_argument("--rows", type=list[int] | int | None, default=None, help="Rows of the step; None: 130, 1040 and 4174.")
    options.add_argument("--json", action="store_true", help="Print JSON, and nothing else, on stdout.")
    options.add_argument("--plot", type=str | None, default=None, metavar="FILE", help="Draw the curve into this file.")
    return options


def run(options: Namespace) -> int:
    """Print predictions and the curve, or the steps of a shape."""
    if options.shape is not None:
        return _run_steps(options)
    _check(options)
    from ..simulate.figures import REPLICAS, curve
    from ..simulate.sizing import parse_targets

    if options.plot is not None:
        from ..views.plots import check_plot

        check_plot(path=Path(options.plot))
    targets = () if options.target is None else parse_targets(options.target)
    simulated, answers, comparisons = _simulated(options)
    traffic = _traffic(options, answers)
    if not options.json:
        _print_costs(simulated, comparisons)
    if targets:
        rows, verdict = _searched(simulated, traffic, targets, _or(options.most_replicas, MOST))
    else:
        replicas = REPLICAS if options.replicas is None else _listed(options.replicas)
        rows, verdict = list(_followed(curve(simulated, traffic, replicas))), None
    if options.plot is not None and rows:
        from ..simulate.plot import plot_curve

        plot_curve(rows, Path(options.plot))
    if options.json:
        report = {"cost": asdict(simulated.cost), "delay": simulated.delay, "tail": simulated.tail, "rate": traffic.rate}
        report |= {"total": traffic.seconds is not None, "against": [asdict(comparison) for comparison in comparisons]}
        report |= {"curve": [asdict(row) for row in rows]}
        print(json_text(report if verdict is None else {**report, "target": options.target, "replicas": verdict.replicas}))
    else:
        _print_curve(rows, traffic, verdict)
    return int(verdict is not None and verdict.replicas is None)


def _or(value: Any, default: Any) -> Any:
    return default if value is None else value


def _traffic(options: Namespace, answers: "tuple[MeasuredAnswer, ...]") -> "Traffic":
    """Return the load of a simulation. Raises ValueError if a request would be truncated or refused."""
    from ..simulate.figures import Traffic
    from ..simulate.work import Beginnings

    total = options.total_rate is not None
    rate = options.total_rate if total else _or(options.rate, RATE)
    beginnings = Beginnings(options.system_prompts, options.system_tokens, options.zipf)
    limit, seconds = _or(options.max_tokens, MAX_TOKENS), _or(options.seconds, SECONDS) if total else None
    beginning = beginnings.tokens if beginnings.count else 0
    most = max(answer.prompt + beginning + max(limit, answer.tokens) for answer in answers)
    if most > options.max_model_len:
        message = f"--max_model_len {options.max_model_len} is less than the {most} tokens of a prompt with its answer"
        raise ValueError(f"{message}: raise it")
    return Traffic(answers, rate, options.requests, limit, beginnings, options.seed, options.fewest, seconds)


def _print_curve(rows: "list[Figures]", traffic: "Traffic", verdict: "SizingVerdict | None") -> None:
    """Print a row for each number of replicas, and the result of the search."""
    if rows:
        whose = "for each replica" if traffic.seconds is None else "in all"
        print(f"{traffic.rate:g} requests a second {whose}, times in milliseconds:")
        print_rows([asdict(row) for row in rows], CURVE)
    if verdict is not None:
        print(verdict.text)


class SizingVerdict(NamedTuple):
    """The fewest replicas that meet the targets, or None if no number does, and a sentence about it."""

    replicas: int | None
    text: str


def _searched(
    simulated: "SimulatedReplicas", traffic: "Traffic", targets: "Sequence[LatencyTarget]", most: int
) -> "tuple[list[Figures], SizingVerdict]":
    """Search for the fewest replicas. Return the figures of every number tried, ascending, and the verdict."""
    from ..simulate.sizing import alone, meets, sized

    jobs, target_text = traffic.jobs(1), " and ".join(map(str, targets))
    load = f"{traffic.rate:g} requests a second ({len(jobs)} in all)"

    def latencies(row: "Figures") -> str:
        return ", ".join(f"{target.percentile} {target.measured(row):.3g} s" for target in targets)

    idle = alone(simulated, jobs)
    if not meets(idle, targets):
        text = f"No number of replicas reaches {target_text}: a request that never waits for others takes {latencies(idle)}."
        return [], SizingVerdict(None, f"{text} Faster forward passes would help, or shorter answers.")
    rows = sorted(_followed(sized(lambda count: simulated.figures(jobs, count), targets, most)), key=attrgetter("replicas"))
    enough = next((row for row in rows if meets(row, targets)), None)
    if enough is None:
        text = f"No number of replicas up to {most} reaches {target_text} with {load}: {most} have {latencies(rows[-1])}."
        return rows, SizingVerdict(None, f"{text} Raise --most_replicas.")
    text = f"{target_text} with {load} takes {enough.replicas} replica{'s' * (enough.replicas > 1)}: {latencies(enough)}"
    fewer = [latencies(row) for row in rows if row.replicas == enough.replicas - 1]
    return rows, SizingVerdict(enough.replicas, f"{text}; with one fewer {fewer[0]}." if fewer else f"{text}.")


def _check(options: Namespace) -> None:
    """Raise ValueError for an option that is out of range or would be ignored."""
    chosen = {name for name, value in vars(options).items() if value is not None}
    for name in ("requests", "fewest", "max_tokens", "rate", "total_rate", "most_replicas", "seconds"):
        if name in chosen and not 0 < options[name] < float("inf"):
            raise ValueError(f"--{name} must be above 0, got {options[name]}")
    if "replicas" in chosen and min(_listed(options.replicas), default=0) < 1:
        raise ValueError(f"--replicas takes numbers that are at least 1, got {options.replicas}")
    for name, (other, advice) in NEEDS.items():
        if name in chosen and other not in chosen:
            raise ValueError(f"--{name} does nothing without --{other}: {advice}")
    for name, (other, reason) in IDLE.items():
        if name in chosen and other in chosen:
            raise ValueError(f"--{name} has no effect with --{other}{reason}: leave one of them out")
    if bool(options.system_prompts) != bool(options.system_tokens):
        raise ValueError("--system_prompts and --system_tokens go together: give both, or none")


def _simulated(options: Namespace) -> "tuple[SimulatedReplicas, tuple[MeasuredAnswer, ...], list[PredictionError]]":
    """Return the replicas, the answers that their requests are drawn from, and comparisons with measured rows."""
    from ..simulate import served
    from ..simulate.costs import StepCost
    from ..simulate.figures import SimulatedReplicas
    from ..simulate.work import USUAL

    config, strategy = _engine(options)
    answers = _answers(options)
    if options.fit is None:
        values = {name: _or(options[name], COSTS[name]) * unit for name, unit in UNITS.items()}
        delay = values.pop("delay_ms")
        if not 0 <= delay < float("inf"):
            raise ValueError(f"--delay_ms must not be below 0, got {options.delay_ms}")
        return SimulatedReplicas(config, strategy, StepCost(*values.values()), delay), answers or USUAL, []
    rows = [row for name in options.fit for row in served.read_rows(Path(name))]
    others = [row for name in options.against or () for row in served.read_rows(Path(name))]
    if len({row.rate for row in others}) > 1:
        raise ValueError("--against takes rows of one rate, which are repetitions of one measurement")
    per_turn, measured = served.fits(rows, config, strategy), served.most_answers(rows)
    comparisons = served.compared(per_turn, others, measured) if others else []
    return served.middle(per_turn), answers or measured, comparisons


def _answers(options: Namespace) -> "tuple[MeasuredAnswer, ...] | None":
    """Return the answers that --answers names; None without it."""
    from ..simulate import served

    if options.answers is None:
        return None
    if options.answers in tiny.names() and not Path(options.answers).exists():
        limit = _or(options.max_tokens, MAX_TOKENS)
        return served.embedded_answers(options.answers, options.decoding_strategy, options.options, limit)
    return served.read_answers(Path(options.answers))


def _engine(options: Namespace) -> tuple[Config, Strategy]:
    """Return the scheduler's budgets and its strategy."""
    from ..simulate.work import scripted_spec, scripted_strategy

    strategy = scripted_strategy(load(options.decoding_strategy), options.options)
    return Config(scripted_spec(), **{name: options[name] for name in BUDGETS}), strategy


def _print_costs(simulated: "SimulatedReplicas", comparisons: "list[PredictionError]") -> None:
    """Print the costs, and predicted next to measured figures."""
    cost = simulated.cost
    parts = [f"{1e3 * cost.forward:.3g} ms", f"{1e6 * cost.row:.3g} us a row"]
    parts += [f"{1e6 * cost.request:.3g} us a request"] if cost.request else []
    parts += [f"{1e9 * cost.context:.3g} ns a position of context"] if cost.context else []
    print(f"A forward pass takes {' + '.join(parts)}; a request {1e3 * simulated.delay:.3g} ms outside of the engine.")
    if simulated.tail != 1:
        print(f"Slow requests lie {simulated.tail:.2f} times as far above the median as with forward passes of equal times.")
    if comparisons:
        print("Predicted beside measured; every column has the medians of its repetitions:")
        rows = [{**asdict(comparison), "error": f"{100 * comparison.error:+.1f} %"} for comparison in comparisons]
        print_rows(rows, ("figure", "measured", "predicted", "error"))


def _followed(rows: "Iterable[Figures]") -> "Iterable[Figures]":
    """Yield the rows, and report each on stderr."""
    for row in rows:
        print(f"simulated {counted(row.requests, 'request')} on {counted(row.replicas, 'replica')}", file=sys.stderr)
        yield row


def _listed(value: int | list[int]) -> tuple[int, ...]:
    return (value,) if isinstance(value, int) else tuple(value)


def _run_steps(options: Namespace) -> int:
    """Print the bytes read and sent and the all-reduce times of a shape's steps."""
    from ..bench.shapes import shape_of
    from ..simulate.collectives import tensor_parallel

    if ignored := [name for name in parser().changed(options) if name not in (*STEPS, "shape", "json")]:
        raise ValueError(f"--{ignored[0]} has no effect with --shape: leave one of them out")
    shape = shape_of(options.shape)
    gpus, rows = _listed(_or(options.gpus, [1, 2, 4, 8])), _listed(_or(options.rows, [130, 1040, 4174]))
    found = [asdict(tensor_parallel(shape, count, many)) for many in rows for count in gpus]
    if options.json:
        print(json_text(found))
    else:
        print_rows(found, tuple(found[0])[1:])
    return 0

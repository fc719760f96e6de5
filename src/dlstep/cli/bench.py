"""`dlstep bench`: rows of measurements, as a table or as JSON."""

import sys
from collections.abc import Iterable
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from jsonargparse import ArgumentParser, Namespace
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    track,
)
from rich.table import Table

from ..bench.answers import BATCHES, LENGTHS, SCRIPTS
from ..strategies import ALIASES
from . import bench_serve, bench_tune
from .json_text import json_text
from .options import new_parser

HOST_EXAMPLE = "\n".join(
    (
        "dlstep bench host --json",
        "dlstep bench host --strategy all --batches [32]",
        "dlstep bench host --rule all",
        "dlstep bench host --memory",
        "dlstep bench host --queue",
    )
)
DECODE_EXAMPLE = "\n".join(
    (
        "dlstep bench decode",
        "dlstep bench decode --sessions 8",
        "dlstep bench decode --shape sdar-8b --contexts [512,4096] --plot steps.png",
    )
)
KERNELS_EXAMPLE = "dlstep bench kernels --json"
TUNE_EXAMPLE = "dlstep bench tune-kernels --out launch.json"
FINGERPRINT_EXAMPLE = "dlstep bench fingerprint --gib 4"
EXAMPLES = "\n".join(
    (HOST_EXAMPLE, DECODE_EXAMPLE, KERNELS_EXAMPLE, FINGERPRINT_EXAMPLE, TUNE_EXAMPLE, bench_serve.EXAMPLE, bench_tune.EXAMPLE)
)
# What a table shows of a row; JSON has all.
SHAPE_COLUMNS = ("context", "batch", "rows", "step_us", "roofline_us", "ratio", "host_share", "host_us", "tokens_per_s")
RULE_COLUMNS = ("rule", "length", "batch", "wanted", "tokens", "unpack_us", "commit_us", "ratio")
KERNEL_COLUMNS = ("kernel", "case", "equal", "us", "least_us", "share")
RULE_BATCHES, RULE_LENGTHS = (32,), (512,)
SHAPES = "sdar-1.7b, sdar-8b, llada2-mini, dream-7b, fast-dllm-v2-1.5b, diffusion-gemma-26b"


def parser() -> ArgumentParser:
    """The parser of `dlstep bench`, still without its kinds."""
    return new_parser(
        "dlstep bench KIND ...",
        "Measure host cost (no model needed), decode steps, kernels (on CUDA), fingerprints, or a server.",
        EXAMPLES,
    )


KINDS = ("host", "decode", "kernels", "tune-kernels", "fingerprint", "serve", "tune")


def add_kinds(options: ArgumentParser) -> None:
    """Add the kinds of measurement; to be called once the parser has its place among the commands."""
    kinds = options.add_subcommands(required=True, dest="kind")
    per_step = "Microseconds of schedule, lowering, unpacking and commit per request and step."
    host = new_parser("dlstep bench host [options]", per_step, HOST_EXAMPLE)
    host.add_argument(
        "--strategy",
        type=str,
        default="multi_bd",
        help="A strategy, all, multi_bd_edit_full or dmax_full (nearly four tokens a step, not two).",
    )
    host.add_argument(
        "--rule", type=str | None, default=None, help="Instead: a rule, or all, beside its carrier with a threshold."
    )
    batches = f"Requests at a time, as [8,32]; None: {list(BATCHES)}, with --rule [32]."
    host.add_argument("--batches", type=list[int] | None, default=None, help=batches)
    lengths = f"Tokens of a sequence, as [512,4096]; None: {list(LENGTHS)}, with --rule [512]."
    host.add_argument("--lengths", type=list[int] | None, default=None, help=lengths)
    host.add_argument("--memory", action="store_true", help="Instead: bytes per token of a state of 1,048,576 tokens.")
    host.add_argument("--queue", action="store_true", help="Instead: per request, beside many that wait or have ended.")
    decode = _decode_parser()
    checked = "Each kernel against its twin, then its time against the limits of the CUDA device, in bfloat16."
    kernels = new_parser("dlstep bench kernels [options]", checked, KERNELS_EXAMPLE)
    searched = "Measure a small grid of launch parameters on the CUDA device and write what is faster to the kernels' table."
    tune = new_parser("dlstep bench tune-kernels [options]", searched, TUNE_EXAMPLE)
    tune.add_argument("--out", type=str | None, default=None, help="Write the table there, not where kernels read it.")
    hashed = "Time to hash the weights of a checkpoint, the first time and once their digests are remembered."
    prints = new_parser("dlstep bench fingerprint [options]", hashed, FINGERPRINT_EXAMPLE)
    prints.add_argument("--gib", type=float, default=1.0, help="Size of four temporary files together, in GiB.")
    served, tuned = bench_serve.parser(), bench_tune.parser()
    for kind in (host, decode, kernels, tune, prints, served, tuned):
        kind.add_argument("--json", action="store_true", help="Print a JSON list of rows, and nothing else, on stdout.")
    kinds.add_subcommand("host", host, help="Host cost per request and step.")
    kinds.add_subcommand("decode", decode, help="Decode steps of a model, or of random weights in the shape of one.")
    kinds.add_subcommand("kernels", kernels, help="Kernels against their twins and the limits of the device.")
    kinds.add_subcommand("tune-kernels", tune, help="Search launch parameters of the kernels.")
    kinds.add_subcommand("fingerprint", prints, help="Hashing the weights of a checkpoint.")
    kinds.add_subcommand("serve", served, help="Load on a running server, at rising rates.")
    kinds.add_subcommand("tune", tuned, help="`dlstep tune` against other methods of choosing options.")


def _decode_parser() -> ArgumentParser:
    """The options of `dlstep bench decode`."""
    share = (
        "Time of a decode step. Of a model: the share outside the network's forward. With --shape, of random weights in the "
        "shape of a published checkpoint: step time against the least time that the device allows, and the share of the host. "
        "Its family's own strategy is used, multi_bd with four blocks of 32."
    )
    decode = new_parser("dlstep bench decode [options]", share, DECODE_EXAMPLE)
    decode.add_argument("--model", type=str, default="tiny-bd", help="Embedded model or checkpoint folder.")
    decode.add_argument(
        "--device", type=str | None, default=None, help="cpu or cuda; with --shape by default cuda if there is."
    )
    decode.add_argument("--sessions", type=int | None, default=None, help="Instead: so many sessions in turns, or in a row.")
    decode.add_argument("--shape", type=str | None, default=None, help=f"Instead of a model, one of {SHAPES}.")
    decode.add_argument("--contexts", type=list[int], default=[4096], help="--shape: tokens of each prompt, as [512,4096].")
    decode.add_argument("--batches", type=list[int], default=[1, 8, 32], help="--shape: requests at a time, as [1,8,32].")
    decode.add_argument("--tokens_per_forward", type=float, default=2.5, help="--shape: tokens taken of a request in a step.")
    decode.add_argument("--enforce_eager", action="store_true", help="--shape: no CUDA graphs.")
    decode.add_argument("--compile_layers", type=bool | None, default=None, help="--shape: by torch.compile; None: on cuda.")
    decode.add_argument("--layers", type=int | None, default=None, help="--shape: only so many layers.")
    decode.add_argument("--profile", type=str | None, default=None, metavar="FILE", help="--shape: trace of the last batch.")
    decode.add_argument("--plot", type=str | None, default=None, metavar="FILE", help="--shape: draw the rows into this file.")
    return decode


def run(options: Namespace) -> int:
    """Print the rows of one measurement; 1 if a kernel's answer is not its twin's, or a search is not good enough."""
    chosen = options[options.kind]
    rows, columns = _measured(options.kind, chosen)
    code = int(any(row.get(name) is False for row in rows for name in ("equal", "good")))
    if chosen.json:
        print(json_text(rows))
        return code
    shown = [{name: row[name] for name in columns or row} for row in rows]
    lines = ((f"{value:.2f}" if isinstance(value, float) else value for value in row.values()) for row in shown)
    print_rows(shown[0], lines)
    return code


def print_rows(names: Iterable[str], lines: Iterable[Iterable[object]]) -> None:
    """A table that fits a terminal of 80 columns: narrow, and its headings may wrap between words."""
    cells = [[str(value) for value in line] for line in lines]
    made = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for place, name in enumerate(names):
        heading = name.replace("_", " ")
        widest = max(map(len, [*heading.split(), *(line[place] for line in cells)]))
        made.add_column(heading, min_width=min(widest, 40))
    for line in cells:
        made.add_row(*line)
    Console().print(made)


def _measured(kind: str, chosen: Namespace) -> tuple[list[dict[str, object]], tuple[str, ...]]:
    """The rows, and which columns a table shows; none: all."""
    if kind == "kernels":
        from ..bench.kernel.measure import measure_kernels

        return [asdict(row) for row in measure_kernels()], KERNEL_COLUMNS
    if kind == "serve":
        return bench_serve.rows(chosen), bench_serve.COLUMNS
    if kind == "tune":
        return bench_tune.rows(chosen), bench_tune.COLUMNS
    if kind == "fingerprint":
        from ..bench.fingerprint import measure_fingerprint

        return [asdict(row) for row in measure_fingerprint(chosen.gib)], ()
    if kind == "tune-kernels":
        return tuned_rows(chosen.out), ()
    if kind == "decode":
        _refuse_options_of_shapes(chosen)
        if chosen.sessions is not None:
            return session_rows(chosen.model, chosen.device or "cpu", chosen.sessions), ()
        return (shape_rows(chosen), SHAPE_COLUMNS) if chosen.shape else (decode_rows(chosen.model, chosen.device or "cpu"), ())
    return _host_measured(chosen), RULE_COLUMNS if chosen.rule else ()


def _host_measured(chosen: Namespace) -> list[dict[str, object]]:
    """The rows of `dlstep bench host`."""
    instead = next((name for name in ("queue", "memory", "rule") if chosen[name]), None)
    if instead is not None:
        _refuse_options_beside(instead, chosen)
    if chosen.queue:
        return queue_rows()
    if chosen.memory:
        return memory_rows()
    if chosen.rule is not None:
        return rule_rows(chosen.rule, tuple(chosen.batches or RULE_BATCHES), tuple(chosen.lengths or RULE_LENGTHS))
    return host_rows(chosen.strategy, tuple(chosen.batches or BATCHES), tuple(chosen.lengths or LENGTHS))


def host_rows(strategy: str, batches: tuple[int, ...], lengths: tuple[int, ...]) -> list[dict[str, object]]:
    """Rows of `bench.host`, the torch driver's lowering included."""
    from ..bench import host
    from ..bench.torch_lowering import TorchLowering

    names = list(SCRIPTS) if strategy == "all" else [ALIASES.get(strategy, strategy)]
    if names[0] not in SCRIPTS:
        raise ValueError(f"--strategy must be all or one of {', '.join(SCRIPTS)}, got {strategy!r}")
    total = len(names) * len(batches) * len(lengths) * len(host.REGIMES)
    measured = chain.from_iterable(host.measure(name, batches, lengths, lowering=TorchLowering) for name in names)
    return _followed(measured, total)


def rule_rows(rule: str, batches: tuple[int, ...], lengths: tuple[int, ...]) -> list[dict[str, object]]:
    """Rows of `bench.rule_cost`, the torch driver's lowering included."""
    from ..bench.rule_cost import known_forms, measure_rules
    from ..bench.torch_lowering import TorchLowering

    forms = known_forms(rule)
    measured = measure_rules(forms, batches, lengths, TorchLowering)
    return _followed(measured, len(forms) * len(batches) * len(lengths))


def _followed(measured: Iterable[Any], total: int) -> list[dict[str, object]]:
    """The rows, while a bar or a line for each of them says how far the measurement is."""
    console, rows = Console(stderr=True), list[dict[str, object]]()
    # Rows come a few at a time, half a minute apart: a spinner and a clock say that something happens meanwhile.
    columns = (SpinnerColumn(), TextColumn("measuring"), BarColumn(20), MofNCompleteColumn(), TimeElapsedColumn())
    last = TextColumn("{task.description}")
    with Progress(*columns, last, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=total)
        for row in measured:
            rows.append(asdict(row))
            words = {name: value for name, value in rows[-1].items() if isinstance(value, str | int)}
            bar.update(task, advance=1, description=f"after {', '.join(map(str, words.values()))}")
            if bar.disable:
                told = ", ".join(f"{name} {value}" for name, value in words.items())
                print(f"measured {len(rows)} of {total}: {told}", file=sys.stderr)
    return rows


def _refuse_options_beside(instead: str, chosen: Namespace) -> None:
    """Raise ValueError for an option that the measurement `instead` would ignore."""
    ignored = {"strategy": "multi_bd", "memory": False, "queue": False, "rule": None}
    if instead != "rule":
        ignored |= {"batches": None, "lengths": None}
    given = [name for name, value in ignored.items() if name != instead and chosen[name] != value]
    if given:
        raise ValueError(f"--{given[0]} does nothing beside --{instead}: leave one of them out")


def _refuse_options_of_shapes(chosen: Namespace) -> None:
    """Raise ValueError for an option that does nothing without --shape."""
    names = ("contexts", "batches", "tokens_per_forward", "enforce_eager", "compile_layers", "layers", "profile", "plot")
    without = _decode_parser()
    given = [name for name in names if chosen[name] != without.get_default(name)]
    if chosen.sessions is not None and (chosen.shape is not None or chosen.sessions < 1):
        raise ValueError(f"--sessions must be at least 1 and goes with --model, not --shape; got {chosen.sessions}")
    if chosen.shape is None and given:
        raise ValueError(f"--{given[0]} does nothing without --shape: give one of {SHAPES}")


def queue_rows() -> list[dict[str, object]]:
    """Rows of `bench.queue`."""
    from ..bench import queue

    console = Console(stderr=True)
    total = len(queue.WAITING) + len(queue.ENDED)
    measured = track(
        queue.measure_queue(), "requests beside others", total, console=console, transient=True, disable=not console.is_terminal
    )
    return [asdict(row) for row in measured]


def session_rows(model: str, device: str, sessions: int) -> list[dict[str, object]]:
    """One row of `bench.sessions`, with a place on the device for each session."""
    from ..bench.sessions import measure_sessions
    from ..llm import LLM

    clock = process_time if device == "cpu" else perf_counter
    return [asdict(measure_sessions(LLM(model, device=device, max_sessions=sessions), sessions, clock=clock))]


def memory_rows() -> list[dict[str, object]]:
    """One row: the growth of this process for each token of a large state."""
    from ..bench import host

    return [{"tokens": 1 << 20, "bytes_per_token": host.memory_per_token(1 << 20)}]


def decode_rows(model: str, device: str) -> list[dict[str, object]]:
    """Rows of `bench.decode`."""
    from .. import tiny
    from ..bench.decode import measure_decode
    from ..engine.devices import find_device
    from ..models import load_checkpoint

    path = tiny.path(model) if model in tiny.names() else Path(model)
    return [dict(row) for row in measure_decode(load_checkpoint(path, find_device(device)))]


def shape_rows(chosen: Namespace) -> list[dict[str, object]]:
    """Rows of `bench.decode_shape`, and their picture."""
    import torch

    from ..bench.decode_shape import Load, measure_shape
    from ..bench.plot import check_plot, plot_decode
    from ..bench.shapes import shape_of
    from ..driver.profile import check_trace
    from ..engine.devices import find_device

    shape = shape_of(chosen.shape)
    check_trace(chosen.profile)
    if chosen.plot is not None:
        check_plot()
    device = torch.device(find_device(chosen.device))
    measured = measure_shape(
        shape,
        [Load(batch, context, chosen.tokens_per_forward) for context in chosen.contexts for batch in chosen.batches],
        device=device,
        dtype=torch.bfloat16 if device.type == "cuda" else torch.float32,
        layers=chosen.layers,
        enforce_eager=chosen.enforce_eager,
        compiled=chosen.compile_layers,
        trace=None if chosen.profile is None else Path(chosen.profile),
    )
    rows = [asdict(row) for row in measured]
    if chosen.plot is not None:
        plot_decode(rows, Path(chosen.plot))
    return rows


def tuned_rows(out: str | None) -> list[dict[str, object]]:
    """Rows of `bench.kernel.tune`, after the table is written."""
    from ..bench.kernel.tune import table_path, tune, write

    rows = list(tune())
    write(rows, table_path(), None if out is None else Path(out))
    return [asdict(row) for row in rows]

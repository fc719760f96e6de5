"""`dlstep bench`: rows of measurements, as a table or as JSON."""

from collections.abc import Sequence as Items
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser, Namespace

from ..bench.answers import BATCHES, LENGTHS, SCRIPTS
from ..strategies import ALIASES
from . import bench_serve
from .options import new_parser
from .rows import followed, report

HOST_EXAMPLE = """dlstep bench host --json
dlstep bench host --strategy all --batches [32]
dlstep bench host --memory"""
DECODE_EXAMPLE = """dlstep bench decode
dlstep bench decode --shape sdar-8b --contexts [512,4096] --plot steps.png"""
KERNELS_EXAMPLE = "dlstep bench kernels --json"
EXAMPLES = "\n".join((HOST_EXAMPLE, DECODE_EXAMPLE, KERNELS_EXAMPLE, bench_serve.EXAMPLE))
# What a table shows of a row; JSON has all.
SHAPE_COLUMNS = ("context", "batch", "rows", "step_us", "roofline_us", "ratio", "host_share", "host_us", "tokens_per_s")
KERNEL_COLUMNS = ("kernel", "case", "equal", "us", "least_us", "share")
SHAPES = "sdar-1.7b, sdar-8b, llada2-mini, dream-7b, fast-dllm-v2-1.5b, diffusion-gemma-26b"
KINDS = ("host", "decode", "kernels", "serve")
# Measurements for developers of dlstep by their old kind or option, and the module of `benchmarks` that makes them now.
MOVED = {
    "tune": "tuner",
    "tune-kernels": "tune_kernels",
    "fingerprint": "fingerprint",
    "host --queue": "queues",
    "host --rule": "rules",
    "decode --sessions": "sessions",
}


def parser() -> ArgumentParser:
    """The parser of `dlstep bench`, still without its kinds."""
    return new_parser(
        "dlstep bench KIND ...",
        "Measure host cost (no model needed), decode steps, kernels (on CUDA), or a server.",
        EXAMPLES,
    )


def refuse_moved(arguments: Items[str]) -> None:
    """Raise ValueError, naming the new command, for arguments of `dlstep bench` that ask for a measurement in `benchmarks`."""
    kind, *options = *arguments, ""
    for asked in (kind, *(f"{kind} {option.partition('=')[0]}" for option in options)):
        if module := MOVED.get(asked):
            raise ValueError(
                f"`dlstep bench {asked}` is now `python -m benchmarks.{module}`, run in a checkout of the repository"
            )


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
    batches = f"Requests at a time, as [8,32]; None: {list(BATCHES)}."
    host.add_argument("--batches", type=list[int] | None, default=None, help=batches)
    lengths = f"Tokens of a sequence, as [512,4096]; None: {list(LENGTHS)}."
    host.add_argument("--lengths", type=list[int] | None, default=None, help=lengths)
    host.add_argument("--memory", action="store_true", help="Instead: bytes per token of a state of 1,048,576 tokens.")
    decode = _decode_parser()
    checked = "Each kernel against its twin, then its time against the limits of the CUDA device, in bfloat16."
    kernels = new_parser("dlstep bench kernels [options]", checked, KERNELS_EXAMPLE)
    served = bench_serve.parser()
    for kind in (host, decode, kernels, served):
        kind.add_argument("--json", action="store_true", help="Print a JSON list of rows, and nothing else, on stdout.")
    kinds.add_subcommand("host", host, help="Host cost per request and step.")
    kinds.add_subcommand("decode", decode, help="Decode steps of a model, or of random weights in the shape of one.")
    kinds.add_subcommand("kernels", kernels, help="Kernels against their twins and the limits of the device.")
    kinds.add_subcommand("serve", served, help="Load on a running server, at rising rates.")


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
    """Print the rows of one measurement; 1 if a kernel's answer is not its twin's."""
    chosen = options[options.kind]
    rows, columns = _measured(options.kind, chosen)
    return report(rows, columns, as_json=chosen.json)


def _measured(kind: str, chosen: Namespace) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """The rows, and which columns a table shows; none: all."""
    if kind == "kernels":
        from ..bench.kernel.measure import measure_kernels

        return [asdict(row) for row in measure_kernels()], KERNEL_COLUMNS
    if kind == "serve":
        return bench_serve.rows(chosen), bench_serve.COLUMNS
    if kind == "decode":
        _refuse_options_of_shapes(chosen)
        return (shape_rows(chosen), SHAPE_COLUMNS) if chosen.shape else (decode_rows(chosen.model, chosen.device or "cpu"), ())
    if chosen.memory:
        ignored = {"strategy": "multi_bd", "batches": None, "lengths": None}
        if given := [name for name, value in ignored.items() if chosen[name] != value]:
            raise ValueError(f"--{given[0]} does nothing beside --memory: leave one of them out")
        return memory_rows(), ()
    return host_rows(chosen.strategy, tuple(chosen.batches or BATCHES), tuple(chosen.lengths or LENGTHS)), ()


def host_rows(strategy: str, batches: tuple[int, ...], lengths: tuple[int, ...]) -> list[dict[str, Any]]:
    """Rows of `bench.host`, the torch driver's lowering included."""
    from ..bench import host
    from ..bench.torch_lowering import TorchLowering

    names = list(SCRIPTS) if strategy == "all" else [ALIASES.get(strategy, strategy)]
    if names[0] not in SCRIPTS:
        raise ValueError(f"--strategy must be all or one of {', '.join(SCRIPTS)}, got {strategy!r}")
    total = len(names) * len(batches) * len(lengths) * len(host.REGIMES)
    measured = chain.from_iterable(host.measure(name, batches, lengths, lowering=TorchLowering) for name in names)
    return followed(measured, total)


def _refuse_options_of_shapes(chosen: Namespace) -> None:
    """Raise ValueError for an option that does nothing without --shape."""
    names = ("contexts", "batches", "tokens_per_forward", "enforce_eager", "compile_layers", "layers", "profile", "plot")
    without = _decode_parser()
    given = [name for name in names if chosen[name] != without.get_default(name)]
    if chosen.shape is None and given:
        raise ValueError(f"--{given[0]} does nothing without --shape: give one of {SHAPES}")


def memory_rows() -> list[dict[str, Any]]:
    """One row: the growth of this process for each token of a large state."""
    from ..bench import host

    return [{"tokens": 1 << 20, "bytes_per_token": host.memory_per_token(1 << 20)}]


def decode_rows(model: str, device: str) -> list[dict[str, Any]]:
    """Rows of `bench.decode`."""
    from .. import tiny
    from ..bench.decode import measure_decode
    from ..engine.devices import find_device
    from ..models import load_checkpoint

    path = tiny.path(model) if model in tiny.names() else Path(model)
    return [dict(row) for row in measure_decode(load_checkpoint(path, find_device(device)))]


def shape_rows(chosen: Namespace) -> list[dict[str, Any]]:
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

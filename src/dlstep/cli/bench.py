"""`dlstep bench`: rows of measurements, as a table or as JSON."""

from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any

from ..bench.answers import BATCHES, LENGTHS, SCRIPTS
from ..strategies import ALIASES
from .options import new_parser
from .parser import ArgumentParser, Namespace
from .rows import followed, report

HOST_EXAMPLE = """dlstep bench host --json
dlstep bench host --strategy all --batches [32]
dlstep bench host --memory"""
DECODE_EXAMPLE = """dlstep bench decode
dlstep bench decode --shape sdar-8b --contexts [512,4096] --plot steps.png"""
KERNELS_EXAMPLE = "dlstep bench kernels --json"
# Columns of the tables; JSON has all.
SHAPE_COLUMNS = ("context", "batch", "rows", "step_us", "roofline_us", "ratio", "host_share", "host_us", "tokens_per_s")
KERNEL_COLUMNS = ("kernel", "case", "equal", "us", "least_us", "share")
SHAPES = "sdar-1.7b, sdar-8b, llada2-mini, dream-7b, fast-dllm-v2-1.5b, diffusion-gemma-26b"


def host_parser() -> ArgumentParser:
    """Return the parser of `dlstep bench host`."""
    per_step = "Microseconds of schedule, lowering, unpacking and commit per request and step."
    host = new_parser("dlstep bench host [options]", per_step, HOST_EXAMPLE)
    strategy = "A strategy, all, multi_bd_edit_full or dmax_full (nearly four tokens a step, not two)."
    host.add_argument("--strategy", type=str, default="multi_bd", help=strategy)
    batches = f"Requests at a time, as [8,32]; None: {list(BATCHES)}."
    host.add_argument("--batches", type=list[int] | None, default=None, help=batches)
    lengths = f"Tokens of a sequence, as [512,4096]; None: {list(LENGTHS)}."
    host.add_argument("--lengths", type=list[int] | None, default=None, help=lengths)
    constraint = "Instead: the cost with and without a JSON schema, for `buffer_size` 1 and 4."
    host.add_argument("--constraint", action="store_true", help=constraint)
    host.add_argument("--memory", action="store_true", help="Instead: bytes per token of a state of 1,048,576 tokens.")
    return _with_json(host)


def run_host(options: Namespace) -> int:
    """Print the host cost per request and step, including the torch driver's lowering, or the memory per token."""
    from ..bench import constraint, host

    if options.memory:
        if ignored := [name for name in host_parser().changed(options) if name in ("strategy", "batches", "lengths")]:
            raise ValueError(f"--{ignored[0]} has no effect with --memory: leave one of them out")
        tokens = 1 << 20
        return report([{"tokens": tokens, "bytes_per_token": host.memory_per_token(tokens)}], as_json=options.json)
    chosen: str = options.strategy
    names = list(SCRIPTS) if chosen == "all" else [ALIASES.get(chosen, chosen)]
    if names[0] not in SCRIPTS:
        raise ValueError(f"--strategy must be all or one of {', '.join(SCRIPTS)}, got {chosen!r}")
    batches, lengths = tuple(options.batches or BATCHES), tuple(options.lengths or LENGTHS)
    if options.constraint:
        if options.lengths:
            raise ValueError("--lengths has no effect with --constraint: leave one of them out")
        costs = chain.from_iterable(constraint.measure_constraint(name, batches) for name in names)
        return report(followed(costs, None), as_json=options.json)
    measured = chain.from_iterable(host.measure(name, batches, lengths) for name in names)
    return report(followed(measured, len(names) * len(batches) * len(lengths) * len(host.REGIMES)), as_json=options.json)


def kernels_parser() -> ArgumentParser:
    """Return the parser of `dlstep bench kernels`."""
    checked = "Each kernel against its twin, then its time against the limits of the CUDA device, in bfloat16."
    return _with_json(new_parser("dlstep bench kernels [options]", checked, KERNELS_EXAMPLE))


def run_kernels(options: Namespace) -> int:
    """Print a row for each kernel. Return 1 if a result differs from its plain torch version, else 0."""
    from ..bench.kernel.measure import measure_kernels

    return report(measure_kernels(), KERNEL_COLUMNS, as_json=options.json)


def _with_json(options: ArgumentParser) -> ArgumentParser:
    options.add_argument("--json", action="store_true", help="Print a JSON list of rows, and nothing else, on stdout.")
    return options


def decode_parser() -> ArgumentParser:
    """Return the parser of `dlstep bench decode`."""
    share = (
        "Time of a decode step. Of a model: the share outside the network's forward pass. With --shape, of random weights in "
        "the shape of a published checkpoint: step time against the least time that the device allows, and the share of the "
        "host. Its family's own strategy is used, multi_bd with four blocks of 32."
    )
    decode = new_parser("dlstep bench decode [options]", share, DECODE_EXAMPLE)
    decode.add_argument("--model", type=str, default="tiny-bd", help="Embedded model or checkpoint folder.")
    decode.add_argument(
        "--device", type=str | None, default=None, help="cpu or cuda; with --shape by default cuda if there is."
    )
    decode.add_argument("--shape", type=str | None, default=None, help=f"Instead of a model, one of {SHAPES}.")
    decode.add_argument("--contexts", type=list[int], default=[4096], help="--shape: tokens of each prompt, as [512,4096].")
    decode.add_argument("--batches", type=list[int], default=[1, 8, 32], help="--shape: requests at a time, as [1,8,32].")
    decode.add_argument("--tokens_per_forward", type=float, default=2.5, help="--shape: tokens unmasked per request and step.")
    decode.add_argument("--enforce_eager", action="store_true", help="--shape: no CUDA graphs.")
    decode.add_argument("--compile_layers", type=bool | None, default=None, help="--shape: by torch.compile; None: on cuda.")
    quantized = "--shape: fp8, or null for bfloat16."
    decode.add_argument("--quantization", type=str | None, default=None, help=quantized)
    blocks = "--shape: blocks in flight; null: four for strategies of blocks."
    decode.add_argument("--buffer_size", type=int | None, default=None, help=blocks)
    decode.add_argument("--layers", type=int | None, default=None, help="--shape: only so many layers.")
    decode.add_argument("--profile", type=str | None, default=None, metavar="FILE", help="--shape: trace of the last batch.")
    decode.add_argument("--plot", type=str | None, default=None, metavar="FILE", help="--shape: draw the rows into this file.")
    return _with_json(decode)


def run_decode(options: Namespace) -> int:
    """Print the decode steps of a model, or of random weights in a published shape."""
    from .. import tiny
    from ..bench.decode import measure_decode
    from ..engine.devices import find_device
    from ..engine.hub import folder_of
    from ..models import load_checkpoint

    if options.shape is not None:
        return report(shape_rows(options), SHAPE_COLUMNS, as_json=options.json)
    if ignored := [name for name in decode_parser().changed(options) if name not in ("model", "device", "json")]:
        raise ValueError(f"--{ignored[0]} does nothing without --shape: give one of {SHAPES}")
    path = tiny.path(options.model) if options.model in tiny.names() else folder_of(options.model)
    return report(measure_decode(load_checkpoint(path, find_device(options.device or "cpu"))), as_json=options.json)


def shape_rows(chosen: Namespace) -> list[dict[str, Any]]:
    """Measure a shape, plot its rows if requested, and return them."""
    import torch

    from ..bench.decode_shape import DecodeLoad, measure_shape
    from ..bench.plot import plot_decode
    from ..bench.shapes import shape_of
    from ..driver.profile import check_trace
    from ..engine.devices import find_device
    from ..views.figures import check_plot

    shape = shape_of(chosen.shape)
    check_trace(chosen.profile)
    if chosen.plot is not None:
        check_plot()
    device = torch.device(find_device(chosen.device))
    measured = measure_shape(
        shape,
        [
            DecodeLoad(batch, context, chosen.tokens_per_forward, buffer_size=chosen.buffer_size)
            for context in chosen.contexts
            for batch in chosen.batches
        ],
        device=device,
        dtype=torch.bfloat16 if device.type == "cuda" else torch.float32,
        layers=chosen.layers,
        enforce_eager=chosen.enforce_eager,
        compiled=chosen.compile_layers,
        trace=None if chosen.profile is None else Path(chosen.profile),
        quantization=chosen.quantization,
    )
    rows = [asdict(row) for row in measured]
    if chosen.plot is not None:
        plot_decode(rows, Path(chosen.plot))
    return rows

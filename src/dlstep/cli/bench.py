"""`dlstep bench`: rows of measurements, as a table or as JSON."""

import json
from dataclasses import asdict
from itertools import chain
from pathlib import Path

from jsonargparse import ArgumentParser, Namespace
from rich.console import Console
from rich.progress import track

from ..bench.answers import BATCHES, LENGTHS, SCRIPTS
from ..strategies import ALIASES
from ..views import table
from .options import new_parser

HOST_EXAMPLE = "dlstep bench host --json\ndlstep bench host --strategy all --batches [32]\ndlstep bench host --memory"
DECODE_EXAMPLE = "dlstep bench decode --model tiny-bd"
EXAMPLES = f"{HOST_EXAMPLE}\n{DECODE_EXAMPLE}"


def parser() -> ArgumentParser:
    """The parser of `dlstep bench`, still without its kinds."""
    return new_parser(
        "dlstep bench KIND ...", "Measure host cost (no model needed) or decode steps (against a plain forward).", EXAMPLES
    )


def add_kinds(options: ArgumentParser) -> None:
    """What can be measured; to be called once the parser has its place among the commands."""
    kinds = options.add_subcommands(required=True, dest="kind")
    per_step = "Microseconds of schedule, lowering, unpacking and commit per request and step."
    host = new_parser("dlstep bench host [options]", per_step, HOST_EXAMPLE)
    host.add_argument(
        "--strategy",
        type=str,
        default="multi_bd",
        help="A strategy, all, multi_bd_edit_full or dmax_full (nearly four tokens a step, not two).",
    )
    host.add_argument("--batches", type=list[int], default=list(BATCHES), help="Requests at a time, as [8,32].")
    host.add_argument("--lengths", type=list[int], default=list(LENGTHS), help="Tokens of a sequence, as [512,4096].")
    host.add_argument("--memory", action="store_true", help="Instead: bytes per token of a state of 1,048,576 tokens.")
    share = "Time of a decode step, and the share outside the network's forward."
    decode = new_parser("dlstep bench decode [options]", share, DECODE_EXAMPLE)
    decode.add_argument("--model", type=str, default="tiny-bd", help="Embedded model or checkpoint folder.")
    decode.add_argument("--device", type=str, default="cpu", help="cpu or cuda.")
    for kind in (host, decode):
        kind.add_argument("--json", action="store_true", help="Print a JSON list of rows, and nothing else, on stdout.")
    kinds.add_subcommand("host", host, help="Host cost per request and step.")
    kinds.add_subcommand("decode", decode, help="Decode steps of a model.")


def run(options: Namespace) -> int:
    """Print the rows of one measurement."""
    chosen = options[options.kind]
    if options.kind == "decode":
        rows = decode_rows(chosen.model, chosen.device)
    else:
        rows = memory_rows() if chosen.memory else host_rows(chosen.strategy, tuple(chosen.batches), tuple(chosen.lengths))
    if chosen.json:
        print(json.dumps(rows))
        return 0
    lines = ((f"{value:.2f}" if isinstance(value, float) else value for value in row.values()) for row in rows)
    Console().print(table(rows[0], lines))
    return 0


def host_rows(strategy: str, batches: tuple[int, ...], lengths: tuple[int, ...]) -> list[dict[str, object]]:
    """Rows of `bench.host`, the torch driver's lowering included."""
    from ..bench import host
    from ..bench.torch_lowering import TorchLowering

    names = list(SCRIPTS) if strategy == "all" else [ALIASES.get(strategy, strategy)]
    if names[0] not in SCRIPTS:
        raise ValueError(f"--strategy must be all or one of {', '.join(SCRIPTS)}, got {strategy!r}")
    console = Console(stderr=True)
    measured = track(
        chain.from_iterable(host.measure(name, batches, lengths, lowering=TorchLowering) for name in names),
        total=len(names) * len(batches) * len(lengths) * len(host.REGIMES),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    return [asdict(row) for row in measured]


def memory_rows() -> list[dict[str, object]]:
    """One row: the growth of this process for each token of a large state."""
    from ..bench import host

    return [{"tokens": 1 << 20, "bytes_per_token": host.memory_per_token(1 << 20)}]


def decode_rows(model: str, device: str) -> list[dict[str, object]]:
    """Rows of `bench.decode`."""
    from .. import tiny
    from ..bench.decode import measure_decode
    from ..models import load_checkpoint

    path = tiny.path(model) if model in tiny.names() else Path(model)
    return [dict(row) for row in measure_decode(load_checkpoint(path, device))]

"""`dlstep bench decode`: the time of a model's decode steps, as a table or as JSON."""

from dataclasses import KW_ONLY, dataclass

from .options import command_parser
from .parser import ArgumentParser, Namespace
from .rows import report

EXAMPLES = """dlstep bench decode
dlstep bench decode --model /path/to/checkpoint --device cuda --json"""


@dataclass(frozen=True)
class BenchOptions:
    """Measure a model's decode steps at batch 1, 8 and 32, and the share outside the network's forward pass."""

    _: KW_ONLY
    model: str = "tiny-bd"
    """Embedded model or checkpoint folder."""
    device: str = "cpu"
    """cpu or cuda."""
    json: bool = False
    """Print a JSON list of rows, and nothing else, on stdout."""


def parser() -> ArgumentParser:
    """Return the parser of `dlstep bench decode`."""
    return command_parser("bench decode", BenchOptions, EXAMPLES)


def run(options: Namespace) -> int:
    """Print a row for each batch size."""
    from .. import tiny
    from ..engine.devices import find_device
    from ..engine.hub import folder_of
    from ..engine.step_times import measure_decode
    from ..models import load_checkpoint

    path = tiny.path(options.model) if options.model in tiny.names() else folder_of(options.model)
    return report(measure_decode(load_checkpoint(path, find_device(options.device))), as_json=options.json)

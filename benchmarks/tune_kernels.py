"""Launch parameters by measurement: a small grid for each kernel and case, the fastest written to the kernels' table."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

import torch

from dlstep.bench.ceilings import timed_us
from dlstep.bench.kernel.cases import USUAL, Case, Sizes, cases
from dlstep.bench.kernel.measure import kernel_device

from . import entry

Parameters = dict[str, int]
MODULES = (
    "attention",
    "experts",
    "head",
    "mean",
    "merge",
    "pages",
    "parts",
    "sampling",
)  # whose parameters are searched
GAIN = 0.97  # of the time before: what is hardly faster is not worth an entry
GRIDS: dict[str, Mapping[str, tuple[int, ...]]] = {
    "attention": {"block_n": (32, 64, 128), "num_warps": (4, 8), "num_stages": (2, 3, 4), "occupancy": (1, 2)},
    "store_kv": {"num_warps": (1, 2, 4, 8)},
    "read_tiles": {"block": (1024, 2048), "num_warps": (4, 8), "programs": (528, 1056, 2112)},
    "scan_tiles": {"block": (512, 1024, 2048), "num_warps": (1, 4), "programs": (528, 1056, 2112)},
    "read_head": {"columns": (64, 128, 256), "num_warps": (4, 8), "num_stages": (3, 4)},
    "blend_rows": {"num_warps": (2, 4, 8, 16)},
    "blend_tiles": {"rows": (64, 128), "columns": (128, 256), "num_stages": (3, 4)},
    "multiply_gated": {"columns": (32, 64, 128), "depth": (64, 128), "num_warps": (4, 8), "num_stages": (3, 4, 5)},
    "multiply_down": {"columns": (64, 128, 256), "depth": (64, 128), "num_warps": (4, 8), "num_stages": (3, 4, 5)},
}


@dataclass(frozen=True, slots=True)
class Tuned:
    """One row: the entry `key` of `kernel` and its time, before and after; `parameters` are None where none are faster."""

    kernel: str
    key: str
    case: str
    before_us: float
    us: float
    parameters: Parameters | None


def table_path() -> Path:
    """Where the kernels read their table."""
    import dlstep_kernels.gpu

    return Path(dlstep_kernels.gpu.__path__[0], "launch.json")


@contextmanager
def overridden(kernel: str, candidate: Mapping[str, int]) -> Iterator[dict[str, tuple[tuple[str, ...], Parameters]]]:
    """`kernel` launches with `candidate` over what the table says; gives, by kernel, the keys asked for and what was taken."""
    asked: dict[str, tuple[tuple[str, ...], Parameters]] = {}
    modules: list[Any] = [import_module(f"dlstep_kernels.gpu.{name}") for name in MODULES]
    launching = [module for module in modules if hasattr(module, "parameters")]
    table = launching[0].parameters

    def parameters(name: str, *keys: str) -> Parameters:
        found = {**table(name, *keys), **(candidate if name == kernel else {})}
        asked[name] = keys, found
        return found

    for module in launching:
        module.parameters = parameters
    try:
        yield asked
    finally:
        for module in launching:
            module.parameters = table


def tune(sizes: Sizes = USUAL) -> Iterator[Tuned]:
    """One row for each kernel of each case that has a grid."""
    device = kernel_device()
    torch.manual_seed(0)
    for case in cases(device, torch.bfloat16, sizes):
        with overridden("", {}) as asked:
            case.calls[0]()
        for kernel, (keys, before) in asked.items():
            if kernel in GRIDS:
                yield tuned(case, kernel, keys[0], before, device)


def tuned(case: Case, kernel: str, key: str, before: Parameters, device: torch.device) -> Tuned:
    """The fastest point of the grid that gives the twin's answer."""
    grid = GRIDS[kernel]
    first = timed_us(case.calls, device)
    best, found = GAIN * first, None
    for values in product(*grid.values()):
        candidate = dict(zip(grid, values, strict=True))
        us = _tried(case, kernel, candidate, device)
        if us < best:
            best, found = us, {**before, **candidate}
    return Tuned(kernel, key, case.name, first, best if found else first, found)


def _tried(case: Case, kernel: str, candidate: Parameters, device: torch.device) -> float:
    """Microseconds with `candidate`; infinite if the device has no room for it, or the answer is another."""
    from triton.compiler.errors import CompilationError
    from triton.runtime.errors import OutOfResources

    with overridden(kernel, candidate):
        try:
            return timed_us(case.calls, device) if case.error() <= case.limit else float("inf")
        except (CompilationError, OutOfResources):
            return float("inf")


def write(rows: list[Tuned], path: Path, target: Path | None = None) -> None:
    """Put what is faster into the table at `path`, or into a copy of it at `target`; one entry a line."""
    table: dict[str, dict[str, Parameters]] = json.loads(path.read_text(encoding="utf-8"))
    for row in rows:
        if row.parameters is not None:
            table[row.kernel][row.key] = row.parameters
    (target or path).write_text(written(table), encoding="utf-8")


def written(table: Mapping[str, Mapping[str, Parameters]]) -> str:
    """The table as text."""
    kernels: list[str] = []
    for kernel, entries in table.items():
        lines = ",\n".join(f"    {json.dumps(key)}: {json.dumps(entry)}" for key, entry in entries.items())
        kernels.append(f"  {json.dumps(kernel)}: {{\n{lines}\n  }}")
    return "{\n" + ",\n".join(kernels) + "\n}\n"


def measured(out: str) -> list[Tuned]:
    """Return the rows, after the table is written."""
    rows = list(tune())
    write(rows, table_path(), Path(out) if out else None)
    return rows


if __name__ == "__main__":
    entry.run(__doc__, measured, out=("", "Write the table to this file, not where kernels read it."))

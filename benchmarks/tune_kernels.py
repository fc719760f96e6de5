"""Search launch parameters: try a small grid per kernel and case, and store the fastest."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

import torch

from . import entry
from .device import kernel_device, timed_us
from .kernels import USUAL, KernelCase, Sizes, cases

Parameters = dict[str, int]
MODULES = (
    "attention",
    "experts",
    "head",
    "embeddings",
    "parts",
    "sampling",
)  # modules with tunable parameters
GAIN = 0.97  # required time relative to the time before: smaller gains are not stored
GRIDS: dict[str, Mapping[str, tuple[int, ...]]] = {
    "attention": {"block_n": (32, 64, 128), "num_warps": (4, 8), "num_stages": (2, 3, 4), "occupancy": (1, 2)},
    "store_kv": {"num_warps": (1, 2, 4, 8)},
    "read_tiles": {"block": (1024, 2048), "num_warps": (4, 8), "programs": (528, 1056, 2112)},
    "scan_tiles": {"block": (512, 1024, 2048), "num_warps": (1, 4), "programs": (528, 1056, 2112)},
    "read_head": {"columns": (64, 128, 256), "num_warps": (4, 8), "num_stages": (3, 4)},
    "blend_rows": {"num_warps": (2, 4, 8, 16)},
    "multiply_gated": {"columns": (32, 64, 128), "depth": (64, 128), "num_warps": (4, 8), "num_stages": (3, 4, 5)},
    "multiply_down": {"columns": (64, 128, 256), "depth": (64, 128), "num_warps": (4, 8), "num_stages": (3, 4, 5)},
}


@dataclass(frozen=True, slots=True)
class Tuned:
    """A row: entry `key` of `kernel`, its time before and after; `parameters` is None without a
    gain."""

    kernel: str
    key: str
    case: str
    before_us: float
    us: float
    parameters: Parameters | None


def table_path() -> Path:
    """Return the path of the table that the kernels read."""
    import dlstep_kernels.gpu

    return Path(dlstep_kernels.gpu.__path__[0], "launch.json")


@contextmanager
def overridden(kernel: str, candidate: Mapping[str, int]) -> Iterator[dict[str, tuple[tuple[str, ...], Parameters]]]:
    """Override the table's parameters of `kernel`; yield the requested keys and parameters by
    kernel."""
    requested: dict[str, tuple[tuple[str, ...], Parameters]] = {}
    modules: list[Any] = [import_module(f"dlstep_kernels.gpu.{name}") for name in MODULES]
    launching = [module for module in modules if hasattr(module, "parameters")]
    table = launching[0].parameters

    def parameters(name: str, *keys: str) -> Parameters:
        found = {**table(name, *keys), **(candidate if name == kernel else {})}
        requested[name] = keys, found
        return found

    for module in launching:
        module.parameters = parameters
    try:
        yield requested
    finally:
        for module in launching:
            module.parameters = table


def tune(sizes: Sizes = USUAL) -> Iterator[Tuned]:
    """Yield a row for each kernel of each case that has a grid."""
    device = kernel_device()
    torch.manual_seed(0)
    for case in cases(device, torch.bfloat16, sizes):
        with overridden("", {}) as requested:
            case.calls[0]()
        for kernel, (keys, before) in requested.items():
            if kernel in GRIDS:
                yield tuned(case, kernel, keys[0], before, device)


def tuned(case: KernelCase, kernel: str, key: str, before: Parameters, device: torch.device) -> Tuned:
    """Return the fastest point of the grid whose result matches the plain torch version."""
    grid = GRIDS[kernel]
    first = timed_us(case.calls, device)
    best, found = GAIN * first, None
    for values in product(*grid.values()):
        candidate = dict(zip(grid, values, strict=True))
        us = _tried(case, kernel, candidate, device)
        if us < best:
            best, found = us, {**before, **candidate}
    return Tuned(kernel, key, case.name, first, best if found else first, found)


def _tried(case: KernelCase, kernel: str, candidate: Parameters, device: torch.device) -> float:
    """Return microseconds with `candidate`; infinite if it does not fit or its result is wrong."""
    from triton.compiler.errors import CompilationError
    from triton.runtime.errors import OutOfResources

    with overridden(kernel, candidate):
        try:
            return timed_us(case.calls, device) if case.error() <= case.limit else float("inf")
        except (CompilationError, OutOfResources):
            return float("inf")


def write(rows: list[Tuned], path: Path, target: Path | None = None) -> None:
    """Write faster entries into the table at `path`, or into a copy at `target`; one entry per
    line."""
    table: dict[str, dict[str, Parameters]] = json.loads(path.read_text(encoding="utf-8"))
    for row in rows:
        if row.parameters is not None:
            table[row.kernel][row.key] = row.parameters
    (target or path).write_text(written(table), encoding="utf-8")


def written(table: Mapping[str, Mapping[str, Parameters]]) -> str:
    """Return the table as text."""
    kernels: list[str] = []
    for kernel, entries in table.items():
        lines = ",\n".join(f"    {json.dumps(key)}: {json.dumps(entry)}" for key, entry in entries.items())
        kernels.append(f"  {json.dumps(kernel)}: {{\n{lines}\n  }}")
    return "{\n" + ",\n".join(kernels) + "\n}\n"


def measured(out: str) -> list[Tuned]:
    """Write the table and return the rows."""
    rows = list(tune())
    write(rows, table_path(), Path(out) if out else None)
    return rows


if __name__ == "__main__":
    entry.run(__doc__, measured, out=("", "Write the table to this file, not where kernels read it."))

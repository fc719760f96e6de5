"""Draw faults at random in the sources outside `BY_LAWS`, and run the tests of each.

`python -m tests.mutants.drawn --count 60 --seed 20261130 --tests tests/unit` prints a line for each fault, the diffs of
those that no test noticed, and how many were noticed. mutmut's operators make the faults, except those in strings, which are
mostly wording. First, the quick tests among `--tests` run once, which measures the lines that each of them runs. Each fault
then gets the quick tests that run its line, and after these all unit tests of its file, with more random examples.
"""

import argparse
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from difflib import unified_diff
from functools import cache
from itertools import chain
from pathlib import Path
from random import Random
from subprocess import TimeoutExpired
from tempfile import TemporaryDirectory
from typing import Any

import libcst as cst
from coverage import CoverageData
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation.mutators import mutation_operators, operator_string
from rich.console import Console

from .mirror import ROOT, link_sources, run_tests, unit_tests
from .mutant import SRC

BY_LAWS = ("dlstep/core", "dlstep/rules", "dlstep/strategies")  # packages that the catalogue covers
LONGEST = 240.0  # seconds for a run of a fault's tests
NO_TESTS = 5  # pytest's exit code if it runs no tests
QUICK = ("-m", "not full and not stress and not clients")


@dataclass(frozen=True)
class Fault:
    """A fault: the changed source of a file."""

    path: Path
    line: int
    changed: str

    @property
    def name(self) -> str:
        """The file, relative to `src`."""
        return self.path.relative_to(SRC).as_posix()

    @property
    def diff(self) -> str:
        """The changed lines."""
        lines = unified_diff(self.path.read_text().splitlines(), self.changed.splitlines(), n=0, lineterm="")
        return "\n".join(line for line in list(lines)[2:] if not line.startswith("@@"))


class Places(cst.CSTVisitor):
    """A visitor that collects the nodes inside functions that mutmut's operators change, and their lines."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[cst.CSTNode, cst.CSTNode, int]] = []
        self._depth = 0

    def on_visit(self, node: cst.CSTNode) -> bool:
        """Collect the changes of a node. Annotations, decorators, and strings that are statements are skipped."""
        if isinstance(node, cst.Annotation | cst.Decorator) or (
            isinstance(node, cst.Expr) and isinstance(node.value, cst.BaseString)
        ):
            return False
        self._depth += isinstance(node, cst.FunctionDef)
        if self._depth and not isinstance(node, cst.FunctionDef):
            changes = [
                changed
                for kind, operator in mutation_operators
                if isinstance(node, kind) and operator is not operator_string
                for changed in operator(node)
            ]
            if changes:  # white space in a pattern has no position
                position: Any = self.get_metadata(PositionProvider, node)
                self.found += [(node, changed, position.start.line) for changed in changes]
        return True

    def on_leave(self, original_node: cst.CSTNode) -> None:
        """Track that the visitor has left a function."""
        self._depth -= isinstance(original_node, cst.FunctionDef)


@cache
def places(path: Path) -> tuple[cst.Module, list[tuple[cst.CSTNode, cst.CSTNode, int]]]:
    """Return the tree of a file, and its nodes that can be changed with their replacements and lines."""
    wrapper, visitor = MetadataWrapper(cst.parse_module(path.read_text())), Places()
    wrapper.visit(visitor)
    return wrapper.module, visitor.found


def drawn(random: Random, paths: list[Path]) -> Iterator[Fault]:
    """Yield distinct faults; a file is chosen with a probability proportional to its size."""
    sizes, seen = [path.stat().st_size for path in paths], set[Fault]()
    while True:
        (path,) = random.choices(paths, sizes)
        module, found = places(path)
        if not found:
            continue
        node, changed, line = random.choice(found)
        fault = Fault(path, line, cst.ensure_type(module.deep_replace(node, changed), cst.Module).code)
        if fault not in seen and compiles(fault.changed) and fault.changed != path.read_text():
            seen.add(fault)
            yield fault


def compiles(source: str) -> bool:
    """Return whether Python accepts the source."""
    try:
        compile(source, "changed", "exec")
    except SyntaxError:
        return False
    return True


def coverage(folder: Path, omitted: Sequence[str], chosen: Sequence[str]) -> CoverageData:
    """Return which `chosen` tests run each line. They must pass: a test that fails anyway would notice every fault."""
    settings, file = folder / "settings.ini", folder / "coverage"
    settings.write_text("[run]\nomit =\n" + "".join(f"    {SRC / each}/*\n" for each in omitted))
    measured = [f"--cov={SRC}", f"--cov-config={settings}", "--cov-context=test", "--cov-report="]
    command = [sys.executable, "-m", "pytest", "-q", f"-n{os.cpu_count()}", "--dist=worksteal", *QUICK, *measured, *chosen]
    if subprocess.run(command, cwd=ROOT, env={**os.environ, "COVERAGE_FILE": str(file)}, check=False).returncode:
        sys.exit("tests fail without a fault: repair them first")
    data = CoverageData(str(file))
    data.read()
    return data


def covering(fault: Fault, data: CoverageData) -> set[str]:
    """Return the tests that run the changed line; if only imports run it, those that run any line of the file.

    A line inside a statement counts as the nearest line above it that ran.
    """
    contexts = data.contexts_by_lineno(str(fault.path))
    line = max((line for line in contexts if line <= fault.line), default=0)
    for found in (contexts.get(line, ()), chain(*contexts.values())):
        if tests := {context.partition("|")[0] for context in found if context}:
            return tests
    return set()


def noticed(fault: Fault, data: CoverageData, chosen: Sequence[str]) -> str:
    """Return "quick" if a `chosen` test fails with the fault within `LONGEST` seconds, "full" if another does, else "no"."""
    own, found = unit_tests(fault.name.removeprefix("dlstep/")), covering(fault, data)
    quick = sorted(
        filter(lambda test: test.startswith(tuple(chosen)), found), key=lambda test: (not test.startswith(tuple(own)), test)
    )
    with TemporaryDirectory() as name:
        link_sources(Path(name))
        changed = Path(name) / fault.path.relative_to(SRC)
        changed.unlink()
        changed.write_text(fault.changed)
        for result, profile, tests in (("quick", "dev", quick), ("full", "mutants", [*own, *sorted(found.difference(quick))])):
            with suppress(TimeoutExpired):
                if tests and run_tests(tests, Path(name), profile, LONGEST).returncode not in (0, NO_TESTS):
                    return result
    return "no"


def main() -> None:
    """Print which of the drawn faults the tests notice."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.drawn", description=__doc__)
    parser.add_argument("--count", type=int, default=60, help="number of faults (default: 60)")
    parser.add_argument("--seed", default=f"{date.today():%Y%m%d}", help="seed of the draw (default: today's date)")
    parser.add_argument("--everywhere", action="store_true", help="also draw in core, rules and strategies")
    parser.add_argument("--tests", nargs="*", default=["tests"], help="files, folders or ids of quick tests")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="runs of pytest at a time (default: one per core)")
    options = parser.parse_args()
    omitted = () if options.everywhere else BY_LAWS
    paths = [path for path in sorted(SRC.rglob("*.py")) if not path.relative_to(SRC).as_posix().startswith(omitted)]
    console, missed, total = Console(width=150), list[Fault](), Counter[str]()
    draws = drawn(Random(options.seed), paths)
    faults = [next(draws) for _ in range(options.count)]
    with TemporaryDirectory() as name, ThreadPoolExecutor(options.jobs) as pool:
        data = coverage(Path(name), omitted, options.tests)
        results = pool.map(lambda fault: noticed(fault, data, options.tests), faults)
        for fault, result in zip(faults, results, strict=True):
            total[result] += 1
            missed += [fault] if result == "no" else []
            console.print(f"{result:5} {fault.name}:{fault.line}", markup=False, highlight=False)
    for fault in missed:
        console.print(f"\n{fault.name}:{fault.line}\n{fault.diff}", markup=False, highlight=False, soft_wrap=True)
    quick, full = total["quick"], total["full"]
    console.print(f"\nseed {options.seed}: quick tests noticed {quick} of {options.count} faults, all tests {quick + full}")


if __name__ == "__main__":
    main()

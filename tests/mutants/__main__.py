"""Check that for each mutant of the catalogue at least one test fails.

The tests of a mutant are the unit tests of its file, then, for the core, the rules, the strategies
and the decode loop, the laws and reference loops. The unchanged sources must pass the same tests.
"""

import argparse
import os
import re
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from rich.console import Console
from rich.progress import Progress

from . import core, device, products
from .mirror import link_sources, run_tests, stages
from .mutant import SRC, Mutant, applied

MUTANTS = (*core.MUTANTS, *device.MUTANTS, *products.MUTANTS)
FAILED = re.compile(r"^FAILED (tests/.+?)(?: - .*)?$", re.MULTILINE)


def first_failure(mutant: Mutant | None, choices: list[list[str]]) -> str:
    """Return the first test that fails, "" if none does, or a text after `!` if pytest itself fails."""
    with TemporaryDirectory() as name:
        link_sources(Path(name))
        if mutant is not None:
            path = Path(name) / mutant.path.relative_to(SRC)
            path.unlink()
            path.write_text(applied(mutant.path.read_text(), mutant))
        for tests in choices:
            done = run_tests(tests, Path(name))
            if done.returncode != 0:
                failed = FAILED.search(done.stdout)
                return (
                    failed[1]
                    if failed and done.returncode == 1
                    else f"! pytest ended with {done.returncode}: {done.stdout[-300:]}"
                )
    return ""


def stages_of(mutant: Mutant) -> list[list[str]]:
    """Return the tests that may notice a mutant."""
    return stages(mutant.file, [f"tests/{test}" for test in mutant.noticed_by])


def main() -> int:
    """Print a line for each mutant; return 0 if all are noticed and the unchanged sources pass."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument(
        "--only", metavar="TEXT", action="append", help="mutants whose file, function or fault contains the text"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="runs of pytest at a time (default: one per core)")
    parser.add_argument("--no-baseline", action="store_true", help="do not test the unchanged sources")
    options = parser.parse_args()
    console, begin, missed = Console(width=150), perf_counter(), 0
    chosen = [mutant for mutant in MUTANTS if not options.only or any(text in str(mutant) for text in options.only)]
    for mutant in chosen:
        applied(mutant.path.read_text(), mutant)  # raise before the long runs
    baseline = [] if options.no_baseline else sorted({tuple(tests) for mutant in chosen for tests in stages_of(mutant)})
    with Progress(console=console, transient=True) as progress, ThreadPoolExecutor(options.jobs) as pool:
        work = {pool.submit(first_failure, mutant, stages_of(mutant)): mutant for mutant in chosen}
        work |= {pool.submit(first_failure, None, [list(tests)]): None for tests in baseline}
        task = progress.add_task("mutants", total=len(work))
        for done in as_completed(work):
            mutant, failure = work[done], done.result()
            progress.advance(task)
            good = bool(failure) == (mutant is not None) and not failure.startswith("!")
            missed += not good
            line = f"{'ok  ' if good else 'MISS'} {mutant or '(unchanged)'} | {failure or 'passes'}"
            console.print(line, markup=False, highlight=False, soft_wrap=True)
    console.print(f"{len(chosen)} mutants, {missed} not as expected, {perf_counter() - begin:.0f} s")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

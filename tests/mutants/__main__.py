"""Apply each mutant of the catalogue to a copy of the sources and see which law or trace notices.

A mutant counts as caught only if a test of `tests/property` or `tests/traces` fails; one that cannot be imported does not.
The test that noticed a mutant before runs first: `noticed.json` names it, and is written anew with `--record`.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from time import perf_counter

from rich.console import Console
from rich.progress import Progress

from . import catalogue, diffusion_gemma, dmax, dual_cache, fast_dllm_v2, multi_bd_edit
from .catalogue import Mutant

MODULES = (catalogue, multi_bd_edit, dmax, fast_dllm_v2, dual_cache, diffusion_gemma)
MUTANTS = tuple(mutant for module in MODULES for mutant in module.MUTANTS)
ROOT = Path(__file__).parents[2]
TESTS = ("tests/traces", "tests/property")
# Whose laws can notice a change of a file that not all strategies share; every other file is everybody's.
SHARED = {"_edit": ("multi_bd_edit", "dmax"), "_warm": ("fast_dllm_v2", "dual_cache")}
FIRST = "traces or (multi_bd and not multi_bd_edit)"
NOTICED = Path(__file__).with_name("noticed.json")
FAILED = re.compile(r"^FAILED (tests/(?:property|traces)/\S+)", re.MULTILINE)


def sources(folder: Path, mutant: Mutant | None) -> None:
    """Copy the pure packages to `folder` and apply `mutant`."""
    package = folder / "dlstep"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    for name in ("core", "strategies", "testing"):
        shutil.copytree(ROOT / "src" / "dlstep" / name, package / name, ignore=shutil.ignore_patterns("__pycache__"))
    if mutant is not None:
        (package / mutant.file).write_text(mutated(mutant))


def mutated(mutant: Mutant) -> str:
    """The text of the mutant's file with its edits. Raises ValueError for an old text that does not occur just once."""
    text = (ROOT / "src" / "dlstep" / mutant.file).read_text()
    for old, new in mutant.edits:
        if text.count(old) != 1:
            raise ValueError(f"{mutant.why}: {mutant.file} holds {text.count(old)} times {old!r}")
        text = text.replace(old, new)
    return text


def name_of(mutant: Mutant) -> str:
    """What `noticed.json` calls the mutant: several files may have the same thing wrong with them."""
    return f"{mutant.file}: {mutant.why}"


def stages(mutant: Mutant | None, noticed: dict[str, str]) -> list[tuple[str, ...]]:
    """Arguments of pytest, one choice of tests after the other until one fails: those first that are likely to notice.

    Laws of strategies whose sources are unchanged are left out; rules and traces always run.
    """
    if mutant is None:
        return [TESTS]
    before = [(noticed[name_of(mutant)],)] if name_of(mutant) in noticed else []
    folder, _, name = mutant.file.removesuffix(".py").partition("/")
    if folder != "strategies" or (name.startswith("_") and name not in SHARED):
        return [*before, (*TESTS, "-k", FIRST), (*TESTS, "-k", f"not ({FIRST})")]
    return [*before, (*TESTS, "-k", " or ".join((*SHARED.get(name, (name,)), "rules", "traces")))]


def verdict(mutant: Mutant | None, noticed: dict[str, str]) -> str:
    """The first law or trace that fails on `mutant`; empty if none does; starts with `!` if it cannot count."""
    with tempfile.TemporaryDirectory() as name:
        sources(Path(name), mutant)
        environment = {**os.environ, "PYTHONPATH": name, "HYPOTHESIS_PROFILE": "mutants", "PYTHONDONTWRITEBYTECODE": "1"}
        options = ("-x", "-q", "-rf", "--tb=line", "-p", "no:cacheprovider")
        for tests in stages(mutant, noticed):
            command = [sys.executable, "-m", "pytest", *options, *tests]
            done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1200, check=False)
            gone = done.returncode == 4 and tests[0] not in TESTS  # the test that noticed it before has another name now
            if done.returncode != 0 and not gone:
                failed = FAILED.search(done.stdout)
                counts = failed and done.returncode == 1
                return failed[1] if counts else f"! pytest ended with {done.returncode}: {done.stdout[-300:]}"
    return ""


def main() -> int:
    """Print a line for each mutant; 0 if all are caught and the unchanged sources pass."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("words", nargs="*", help="only mutants whose description holds one of these, or of this defect")
    parser.add_argument("--record", action="store_true", help=f"write {NOTICED.name}: which test noticed which mutant")
    options = parser.parse_args()
    console, begin = Console(width=150), perf_counter()
    chosen = [m for m in MUTANTS if not options.words or any(word in m.why or word == m.defect for word in options.words)]
    for mutant in chosen:
        mutated(mutant)  # a stale one is told before the minutes that the others take
    noticed: dict[str, str] = json.loads(NOTICED.read_text()) if NOTICED.exists() else {}
    found: dict[str, str] = {}
    missed = 0
    with Progress(console=console, transient=True) as progress, ThreadPoolExecutor(os.cpu_count()) as pool:
        task = progress.add_task("mutants", total=len(chosen) + 1)
        work = {pool.submit(verdict, mutant, noticed): mutant for mutant in (None, *chosen)}
        for done in as_completed(work):
            mutant, caught_by = work[done], done.result()
            progress.advance(task)
            good = bool(caught_by) == (mutant is not None) and not caught_by.startswith("!")
            missed += not good
            if mutant and good:
                found[name_of(mutant)] = caught_by
            label = f"{mutant.defect:4} {name_of(mutant)}" if mutant else "     (unchanged)"
            line = f"{'ok  ' if good else 'MISS'} {label:100} {caught_by or 'passes'}"
            console.print(line, markup=False, highlight=False, soft_wrap=True)
    console.print(f"{len(chosen)} mutants, {missed} not as wanted, {perf_counter() - begin:.0f} s")
    if options.record:
        names = {name_of(mutant) for mutant in MUTANTS}
        kept = {name: test for name, test in (noticed | found).items() if name in names}
        NOTICED.write_text(json.dumps(kept, indent=0, sort_keys=True) + "\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

"""Apply each mutant of the catalogue to a copy of the sources and see which test notices.

A mutant counts as caught only if one of the tests of its file fails (`TESTS`); one that cannot be imported does not. The
core, the strategies and their laws are copied alone, everything else with all sources. The test that noticed a mutant before
runs first: `noticed.json` names it, and is written anew with `--record`.
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
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from time import perf_counter

from rich.console import Console
from rich.progress import Progress

from .catalogue import Mutant

FOLDER = Path(__file__).parent
MODULES = [import_module(f"{__package__}.{module.name}") for module in iter_modules([str(FOLDER)]) if module.name[0] != "_"]
MUTANTS = tuple(mutant for module in MODULES for mutant in module.MUTANTS)
ROOT = Path(__file__).parents[2]
PURE = ("core", "rules", "strategies", "testing", "engine/decode.py", "core/plugins.py")
BESIDE = ("views/frames.py", "text/detokenize.py", "engine/watchdog.py")  # what laws are about, or `decode.py` imports
LAWS = ("tests/traces", "tests/property")
RULES = tuple(
    sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("tests/*/test_*") if re.search("zoo|_rules?[_.]", path.name))
)
# Which tests may notice a mutant, by how its file's name begins; the first that fits counts.
TESTS = {
    "core/trace_file": ("tests/property/test_trace_files.py", "tests/property/test_trace_saving.py"),
    "core/codec": ("tests/property/test_trace_files.py",),
    "core/words": ("tests/serve/test_serve_attach.py",),
    "core/usage": ("tests/property/test_frames.py", "tests/serve/test_serve_engine.py"),
    "views/frames": ("tests/property/test_frames.py",),
    "engine/overrides": ("tests/serve/test_serve_forks.py", "tests/api/test_session.py"),
    "serve/router/kept": ("tests/serve/test_serve_choices.py", "tests/serve/test_serve_steps.py"),
    "serve/engine_steps": ("tests/serve/test_serve_forks.py",),
    "serve/http/choices": ("tests/serve/test_serve_choices.py", "tests/serve/test_serve_streams.py"),
    "serve/router/tickets": ("tests/serve/test_serve_choices.py", "tests/serve/test_serve_steps.py"),
    **dict.fromkeys(("serve/http/page_files", "serve/http/choosable"), ("tests/serve/test_serve_choices.py",)),
    "serve/router/placement": ("tests/serve/test_serve_placement.py",),
    **dict.fromkeys(("serve/router/front", "serve/router/fleet"), ("tests/serve/test_serve_replicas.py",)),
    **dict.fromkeys(("serve/router/link", "serve/router/replica"), ("tests/serve/test_serve_deadlines.py",)),
    "simulate/": ("tests/simulate",),
    **dict.fromkeys(("batch/lines", "engine/run_lock"), ("tests/batch/test_batch_lock.py", "tests/batch/test_batch_lines.py")),
    "batch/actors": ("tests/batch/test_batch_moves.py",),
    "batch/": ("tests/batch/test_batch_lines.py", "tests/batch/test_batch_answers.py", "tests/batch/test_batch_resume.py"),
    "serve/http/errors": ("tests/serve/test_serve_bodies.py", "tests/serve/test_serve_overload.py"),
    **dict.fromkeys(("serve/http/translate", "serve/http/app"), ("tests/serve/test_serve_overload.py",)),
    "serve/": ("tests/serve/test_serve_steps.py",),
    "core/checks": ("tests/api/test_types.py", "tests/api/test_bad_input.py"),
    "rules/": RULES,
    "core/rule": RULES,
    **dict.fromkeys(
        ("driver/graphs", "driver/buckets", "driver/rehearsal", "core/rehearsal"),
        ("tests/driver/test_graphs.py", "tests/ranks/test_parting.py"),
    ),
    **dict.fromkeys(PURE, LAWS),
    "driver/history": ("tests/driver/test_device_histories.py", "tests/end_to_end/test_histories.py"),
    "driver/torch_driver": (
        "tests/driver/test_graphs.py",
        "tests/driver/test_device_histories.py",
        "tests/ranks/test_wire.py",
        "tests/api/test_memory_of_llms.py",
        "tests/driver",
    ),
    **dict.fromkeys(
        ("engine/loader.py", "models/networks/network"), ("tests/api/test_memory_of_llms.py", "tests/ranks/test_parting.py")
    ),
    "models/networks/plain": ("tests/reference/test_dmax.py", "tests/driver"),
    "models/networks": ("tests/driver/test_device_histories.py", "tests/driver"),
    **dict.fromkeys(("models/fingerprint", "models/digests"), ("tests/models/test_fingerprint.py",)),
    **dict.fromkeys(
        ("models/tokenizer_limits", "models/regex_limits", "models/reading"), ("tests/models/test_hostile_folders.py",)
    ),
    "engine/buffer_policy": ("tests/api/test_buffer_policy.py",),
    "engine/shared_decode": ("tests/api/test_buffer_policy.py", "tests/api/test_sharing.py", "tests/api/test_interrupts.py"),
    "evaluate/metrics": ("tests/evaluate/test_metrics.py", "tests/evaluate/test_intervals.py"),
    "evaluate/intervals": ("tests/evaluate/test_intervals.py",),
    "evaluate/likelihood": ("tests/evaluate/test_likelihood.py",),
    **dict.fromkeys(
        (f"evaluate/{name}" for name in ("scoring", "programs", "prompts", "documents", "_maths_worker")),
        ("tests/evaluate/test_scoring.py",),
    ),
    **dict.fromkeys(("evaluate/jail", "evaluate/_jailed", "evaluate/system_calls"), ("tests/evaluate/test_jail.py",)),
    "evaluate/items": ("tests/evaluate/test_answering.py",),
    "evaluate/answering": ("tests/evaluate/test_answering.py",),
    "evaluate/report": ("tests/evaluate/test_report.py",),
    "views/": ("tests/api/test_compare.py", "tests/page/test_report_page.py"),
    "evaluate/frontier": ("tests/evaluate/test_frontier.py",),
    **dict.fromkeys(("evaluate/compari", "evaluate/table", "evaluate/entries"), ("tests/api/test_compare.py",)),
    "evaluate/tuning": ("tests/evaluate/test_tune.py", "tests/evaluate/test_tune_parts.py"),
    **dict.fromkeys(("evaluate/space", "evaluate/load"), ("tests/evaluate/test_tune_parts.py",)),
    "evaluate/crews": ("tests/evaluate/test_workers.py",),
    "engine/json_lines": ("tests/evaluate/test_resume.py",),
    "evaluate/": ("tests/evaluate/test_books.py", "tests/evaluate/test_resume.py", "tests/evaluate"),
    "stream": ("tests/api/test_sharing.py", "tests/api/test_interrupts.py", "tests/api/test_llm.py"),
    "session": ("tests/api/test_session.py",),
    "engine/checkpoint_options": ("tests/models/test_untrusted.py", "tests/models/test_agreement.py"),
    "engine/devices": ("tests/api/test_cli.py", "tests/api"),
    "text/rendering": ("tests/api/test_rendering.py",),
    "cli/yaml_file": ("tests/api/test_option_files.py", "tests/api"),
    "driver/lowering": ("tests/driver/test_lowering.py", "tests/driver/test_graphs.py"),
    **dict.fromkeys(
        ("distributed/conductor", "distributed/crew", "distributed/wire", "distributed/interrupts"),
        ("tests/ranks/test_group.py", "tests/ranks/test_parting.py", "tests/ranks/test_rank_faults.py", "tests/ranks"),
    ),
    "engine/watchdog": ("tests/property/test_blame.py",),
    "driver/tables": ("tests/driver/test_tables.py",),
    "processes/": ("tests/processes", "tests/ranks/test_rank_faults.py"),
    "driver/": ("tests/driver",),
    "models/sharding": ("tests/ranks/test_sharding.py", "tests/ranks"),
    "distributed/ranks": ("tests/ranks/test_parting.py", "tests/ranks/test_sharding.py", "tests/ranks"),
    **dict.fromkeys(
        ("dlstep_kernels/gpu/add_up", "dlstep_kernels/commons", "distributed/symmetric"),
        ("tests/ranks/test_add_up.py", "tests/ranks/test_symmetric.py"),
    ),
    "models/compiled": ("tests/api/test_memory_of_llms.py", "tests/models/test_compiled.py"),
    "models/networks/network": ("tests/evaluate/test_likelihood.py", "tests/models"),
    "models/routing": ("tests/api/test_memory_of_llms.py", "tests/models/test_routing.py"),
    "models/": ("tests/models",),
    "dlstep_kernels/gpu/sampling": ("tests/kernels/test_triton_sampling.py",),
    **dict.fromkeys(
        ("dlstep_kernels/gpu/parts", "dlstep_kernels/gpu/named", "dlstep_kernels/gpu/head"),
        ("tests/kernels/test_triton_sampling.py",),
    ),
    "dlstep_kernels/vocabulary": ("tests/kernels/test_vocabulary.py",),
    "dlstep_kernels/sampling": ("tests/kernels/test_sampling.py",),
    "dlstep_kernels/": ("tests/kernels",),
    "text/": ("tests/api",),
    "engine/": ("tests/api", "tests/driver"),
    "": ("tests/api", "tests/driver"),
}
# Whose laws can notice a change of a file that not all strategies share; every other file is everybody's.
SHARED = {"_edit": ("multi_bd_edit", "dmax"), "_warm": ("fast_dllm_v2", "dual_cache"), "_canvas": ("dual_cache",)}
FIRST = "traces or (multi_bd and not multi_bd_edit)"
NOTICED = Path(__file__).with_name("noticed.json")
FAILED = re.compile(r"^FAILED (tests/.+?)(?: - .*)?$", re.MULTILINE)


def tests_of(mutant: Mutant) -> tuple[str, ...]:
    """Files and folders of the tests that may notice the mutant."""
    return next(tests for beginning, tests in TESTS.items() if mutant.file.startswith(beginning))


def path_of(mutant: Mutant) -> str:
    """The mutant's file below `src`."""
    return mutant.file if mutant.file.startswith("dlstep_kernels/") else f"dlstep/{mutant.file}"


def sources(folder: Path, mutant: Mutant | None, *, pure: bool) -> None:
    """Link the pure packages, or all sources, into `folder`, and apply `mutant`."""
    if pure:
        (folder / "dlstep").mkdir()
        (folder / "dlstep" / "__init__.py").write_text("")
    for name in [f"dlstep/{part}" for part in PURE + BESIDE] if pure else ("dlstep", "dlstep_kernels"):
        ignored = shutil.ignore_patterns("__pycache__")
        if name.endswith(".py"):
            os.symlink(ROOT / "src" / name, folder / name)
        else:
            shutil.copytree(ROOT / "src" / name, folder / name, ignore=ignored, copy_function=os.symlink)
    if mutant is not None:
        text = mutated(mutant)
        (folder / path_of(mutant)).unlink()
        (folder / path_of(mutant)).write_text(text)


def mutated(mutant: Mutant) -> str:
    """The text of the mutant's file with its edits. Raises ValueError for an old text that does not occur just once."""
    text = (ROOT / "src" / path_of(mutant)).read_text()
    for old, new in mutant.edits:
        if text.count(old) != 1:
            raise ValueError(f"{mutant.why}: {mutant.file} holds {text.count(old)} times {old!r}")
        text = text.replace(old, new)
    return text


def name_of(mutant: Mutant) -> str:
    """The name of the mutant in `noticed.json`: several files may have the same thing wrong with them."""
    return f"{mutant.file}: {mutant.why}"


def stages(mutant: Mutant, noticed: dict[str, str]) -> list[tuple[str, ...]]:
    """Arguments of pytest, one choice of tests after the other until one fails: those first that are likely to notice.

    Laws of strategies whose sources are unchanged are left out; rules and traces always run.
    """
    before = [(noticed[name_of(mutant)],)] if name_of(mutant) in noticed else []
    tests = tests_of(mutant)
    if tests != LAWS:
        return [*before, tests]
    folder, _, name = mutant.file.removesuffix(".py").partition("/")
    if folder != "strategies" or (name.startswith("_") and name not in SHARED):
        return [*before, (*LAWS, "-k", FIRST), (*LAWS, "-k", f"not ({FIRST})")]
    return [*before, (*LAWS, "-k", " or ".join((*SHARED.get(name, (name,)), "rule", "traces", "taking_back")))]


def verdict(mutant: Mutant | None, choices: list[tuple[str, ...]], *, pure: bool) -> str:
    """The first test that fails on `mutant`; empty if none does; starts with `!` if it cannot count."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)  # one test starts a process of another user, who must read the sources
        sources(Path(name), mutant, pure=pure)
        environment = {**os.environ, "PYTHONPATH": name, "HYPOTHESIS_PROFILE": "mutants", "PYTHONDONTWRITEBYTECODE": "1"}
        options = ("-x", "-q", "-rf", "--tb=line", "-p", "no:cacheprovider", "--timeout=240")
        if pure:  # files of traces are tested through the command, too
            options += ("--ignore-glob=tests/property/test_trace_*.py",)
        for tests in choices:
            command = [sys.executable, "-m", "pytest", *options, *tests]
            done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1200, check=False)
            gone = done.returncode == 4 and "::" in tests[0]  # the test that noticed it before has another name now
            if done.returncode != 0 and not gone:
                failed = FAILED.search(done.stdout)
                counts = failed and done.returncode == 1
                return failed[1] if counts else f"! pytest ended with {done.returncode}: {done.stdout[-300:]}"
    return ""


def main() -> int:
    """Print a line for each mutant; 0 if all are caught and the unchanged sources pass."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("words", nargs="*", help="only mutants whose file or description holds one of these, or of this defect")
    parser.add_argument("--record", action="store_true", help=f"write {NOTICED.name}: which test noticed which mutant")
    options = parser.parse_args()
    console, begin = Console(width=150), perf_counter()
    chosen = [m for m in MUTANTS if not options.words or any(word in name_of(m) or word == m.defect for word in options.words)]
    for mutant in chosen:
        mutated(mutant)  # a stale one is told before the minutes that the others take
    noticed: dict[str, str] = json.loads(NOTICED.read_text()) if NOTICED.exists() else {}
    found: dict[str, str] = {}
    missed = 0
    with Progress(console=console, transient=True) as progress, ThreadPoolExecutor(os.cpu_count()) as pool:
        # The unchanged sources pass what the mutants must not.
        passing = dict.fromkeys(tests_of(mutant) for mutant in chosen)
        work = {pool.submit(verdict, None, [tests], pure=tests == LAWS): None for tests in passing}
        work |= {pool.submit(verdict, m, stages(m, noticed), pure=tests_of(m) == LAWS): m for m in chosen}
        task = progress.add_task("mutants", total=len(work))
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

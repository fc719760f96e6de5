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
LAWS = (
    *("tests/traces", "tests/property", "tests/unit/strategies", "tests/unit/views/test_frames.py"),
    *(
        f"tests/unit/core/test_{name}.py"
        for name in ("cache", "diff", "finish", "lifecycle", "plan", "rule", "schedule", "trace")
    ),
)
RULES = (
    *sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("tests/*/test_*") if re.search("zoo|_rules?[_.]", path.name)),
    *("tests/unit/rules", "tests/unit/strategies", "tests/unit/core/test_lifecycle.py", "tests/unit/core/test_rule.py"),
)
# Which tests may notice a mutant, by how its file's name begins; the first that fits counts.
TESTS = {
    "core/trace_file": ("tests/unit/core/test_trace_file.py", "tests/unit/core/test_trace_file_saving.py"),
    "core/codec": ("tests/unit/core/test_trace_file.py",),
    "text/words": ("tests/unit/cli/test_attach.py",),
    "core/usage": ("tests/unit/views/test_frames.py", "tests/unit/serve/test_engine_loop.py"),
    "views/frames": ("tests/unit/views/test_frames.py",),
    "engine/overrides": ("tests/unit/serve/test_engine_steps.py", "tests/unit/test_session.py"),
    "serve/router/kept": ("tests/unit/serve/router/test_kept.py", "tests/unit/serve/http/test_recordings.py"),
    "serve/engine_steps": ("tests/unit/serve/test_engine_steps.py",),
    "serve/http/choices": ("tests/unit/serve/http/test_choices.py", "tests/unit/serve/http/test_answers.py"),
    "serve/router/tickets": ("tests/unit/serve/router/test_kept.py", "tests/unit/serve/http/test_recordings.py"),
    **dict.fromkeys(("serve/http/page_files", "serve/http/choosable"), ("tests/unit/serve/http/test_page_files.py",)),
    "serve/router/placement": ("tests/unit/serve/router/test_placement.py",),
    **dict.fromkeys(("serve/router/front", "serve/router/fleet"), ("tests/unit/serve/router/test_fleet.py",)),
    **dict.fromkeys(("serve/router/link", "serve/router/replica"), ("tests/unit/serve/router/test_link.py",)),
    "simulate/": ("tests/unit/simulate",),
    **dict.fromkeys(
        ("batch/lines", "engine/run_lock"),
        (
            "tests/unit/batch/test_checkpoint.py",
            "tests/unit/batch/test_lines.py",
            "tests/unit/batch/test_runner.py",
            "tests/unit/engine/test_run_lock.py",
        ),
    ),
    "batch/actors": ("tests/unit/batch/test_actors.py",),
    "batch/": (
        "tests/unit/batch/test_lines.py",
        "tests/unit/batch/test_runner.py",
        "tests/unit/batch/test_desk.py",
        "tests/unit/cli/test_batch.py",
    ),
    "serve/http/errors": (
        "tests/unit/serve/http/test_errors.py",
        "tests/unit/serve/http/test_bodies.py",
        "tests/unit/serve/http/test_schema.py",
        "tests/unit/serve/router/test_front.py",
    ),
    **dict.fromkeys(
        ("serve/http/translate", "serve/http/app"),
        ("tests/unit/serve/http/test_translate.py", "tests/unit/serve/router/test_front.py"),
    ),
    "serve/": ("tests/unit/serve/http/test_recordings.py",),
    "core/checks": ("tests/unit/core/test_checks.py", "tests/unit/test_llm_bad_input.py"),
    "rules/": RULES,
    "core/rule": RULES,
    **dict.fromkeys(
        ("driver/graphs", "driver/buckets", "driver/rehearsal", "driver/warmup_plans"),
        ("tests/unit/driver/test_graphs.py", "tests/unit/driver/test_buckets.py", "tests/unit/distributed/test_ranks.py"),
    ),
    **dict.fromkeys(PURE, LAWS),
    "driver/history": ("tests/unit/driver/test_history.py", "tests/end_to_end/test_histories.py"),
    "driver/torch_driver": (
        "tests/unit/driver/test_graphs.py",
        "tests/unit/driver/test_history.py",
        "tests/unit/distributed/test_wire.py",
        "tests/unit/test_llm_memory.py",
        "tests/unit/driver",
    ),
    **dict.fromkeys(
        ("engine/loader.py", "models/networks/network"),
        ("tests/unit/test_llm_memory.py", "tests/unit/distributed/test_ranks.py"),
    ),
    "models/networks/plain": ("tests/reference/test_dmax.py", "tests/unit/driver"),
    "models/networks": ("tests/unit/driver/test_history.py", "tests/unit/driver"),
    **dict.fromkeys(
        ("models/fingerprint", "models/digests"), ("tests/unit/models/test_digests.py", "tests/unit/models/test_fingerprint.py")
    ),
    **dict.fromkeys(
        ("models/tokenizer_limits", "models/regex_limits", "models/reading"),
        ("tests/unit/models/test_tokenizer_limits.py", "tests/unit/models/test_regex_limits.py"),
    ),
    "engine/buffer_policy": ("tests/unit/engine/test_buffer_policy.py",),
    "engine/shared_decode": (
        "tests/unit/engine/test_buffer_policy.py",
        "tests/unit/engine/test_shared_decode.py",
        "tests/unit/engine/test_call_lock.py",
    ),
    "evaluate/metrics": ("tests/unit/evaluate/test_metrics.py", "tests/unit/evaluate/test_intervals.py"),
    "evaluate/intervals": ("tests/unit/evaluate/test_intervals.py",),
    "evaluate/likelihood": ("tests/unit/evaluate/test_likelihood.py",),
    **dict.fromkeys(
        (f"evaluate/{name}" for name in ("scoring", "programs", "prompts", "documents", "_maths_worker")),
        tuple(f"tests/unit/evaluate/test_{name}.py" for name in ("scoring", "programs", "documents", "items", "maths")),
    ),
    **dict.fromkeys(("evaluate/jail", "evaluate/_jailed", "evaluate/system_calls"), ("tests/unit/evaluate/test_jail.py",)),
    "evaluate/items": ("tests/unit/evaluate/test_crews_answering.py",),
    "evaluate/report": ("tests/unit/evaluate/test_report.py", "tests/unit/cli/test_report.py"),
    "views/": (
        "tests/unit/cli/test_compare.py",
        "tests/unit/evaluate/test_comparison_html.py",
        "tests/unit/evaluate/test_pictures.py",
        "tests/end_to_end/page/test_report.py",
    ),
    **dict.fromkeys(
        ("evaluate/compari", "evaluate/table", "evaluate/entries"),
        (
            *(f"tests/unit/evaluate/test_{name}.py" for name in ("comparing", "comparison_html", "table", "entries")),
            "tests/unit/cli/test_compare.py",
        ),
    ),
    "evaluate/tuning": (
        "tests/unit/evaluate/test_tuning.py",
        "tests/unit/evaluate/test_space.py",
        "tests/unit/evaluate/test_load.py",
    ),
    **dict.fromkeys(
        ("evaluate/space", "evaluate/load"),
        ("tests/unit/evaluate/test_space.py", "tests/unit/evaluate/test_load.py", "tests/unit/cli/test_tune_load.py"),
    ),
    "evaluate/crews": ("tests/unit/evaluate/test_crews.py",),
    "engine/json_lines": ("tests/unit/evaluate/test_runner.py",),
    "evaluate/": ("tests/unit/evaluate/test_versions.py", "tests/unit/evaluate/test_runner.py", "tests/unit/evaluate"),
    "stream": (
        "tests/unit/test_stream.py",
        "tests/unit/engine/test_shared_decode.py",
        "tests/unit/engine/test_call_lock.py",
        "tests/unit/test_llm.py",
    ),
    "session": ("tests/unit/test_session.py",),
    "engine/checkpoint_options": (
        "tests/unit/models/test_check_of_untrusted.py",
        "tests/unit/models/test_check_agrees_with_loading.py",
    ),
    "engine/devices": ("tests/unit/cli/test_main.py", "tests/unit/engine"),
    **dict.fromkeys(("text/rendering", "text/_template_worker"), ("tests/unit/text/test_rendering.py",)),
    "cli/yaml_file": ("tests/unit/cli/test_yaml_file.py", "tests/unit/cli"),
    "driver/lowering": ("tests/unit/driver/test_lowering.py", "tests/unit/driver/test_graphs.py"),
    **dict.fromkeys(
        ("distributed/conductor", "distributed/crew", "distributed/wire", "distributed/interrupts"),
        (
            "tests/unit/distributed/test_conductor.py",
            "tests/unit/distributed/test_ranks.py",
            "tests/unit/distributed/test_crew.py",
            "tests/unit/distributed",
        ),
    ),
    "engine/watchdog": ("tests/unit/engine/test_watchdog.py", "tests/property/test_blame.py"),
    "driver/tables": ("tests/unit/driver/test_tables.py",),
    "processes/": ("tests/unit/processes", "tests/unit/distributed/test_crew.py"),
    "driver/": ("tests/unit/driver",),
    "models/sharding": ("tests/unit/models/test_sharding.py", "tests/unit/distributed"),
    "distributed/ranks": (
        "tests/unit/distributed/test_ranks.py",
        "tests/unit/models/test_sharding.py",
        "tests/unit/distributed",
    ),
    **dict.fromkeys(
        ("dlstep_kernels/gpu/add_up", "dlstep_kernels/commons", "distributed/symmetric"),
        (
            "tests/unit/dlstep_kernels/test_commons.py",
            "tests/unit/dlstep_kernels/gpu/test_add_up.py",
            "tests/unit/distributed/test_symmetric.py",
        ),
    ),
    "models/compiled": ("tests/unit/test_llm_memory.py", "tests/unit/models/test_compiled.py"),
    "models/networks/network": ("tests/unit/evaluate/test_likelihood.py", "tests/unit/models"),
    "models/routing": ("tests/unit/test_llm_memory.py", "tests/unit/models/test_routing.py"),
    "models/": ("tests/unit/models",),
    "dlstep_kernels/gpu/sampling": ("tests/unit/dlstep_kernels/gpu/test_sampling.py",),
    **dict.fromkeys(
        ("dlstep_kernels/gpu/parts", "dlstep_kernels/gpu/named", "dlstep_kernels/gpu/head"),
        ("tests/unit/dlstep_kernels/gpu/test_sampling.py", "tests/unit/dlstep_kernels/gpu/test_head.py"),
    ),
    "dlstep_kernels/vocabulary": ("tests/unit/dlstep_kernels/test_vocabulary.py",),
    "dlstep_kernels/sampling": ("tests/unit/dlstep_kernels/test_sampling.py",),
    "dlstep_kernels/": ("tests/unit/dlstep_kernels",),
    "text/": ("tests/unit/text", "tests/unit/test_llm.py"),
    "engine/": ("tests/unit/engine", "tests/unit/test_llm.py", "tests/unit/driver"),
    "": ("tests/unit/test_llm.py", "tests/unit/test_session.py", "tests/unit/engine", "tests/unit/cli", "tests/unit/driver"),
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

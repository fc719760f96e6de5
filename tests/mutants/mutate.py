"""Run mutmut on source files with the tests of the mirrored layout, in a copy of the checkout.

`python -m tests.mutants.mutate src/dlstep/core/state.py` prints a line with the counts and a diff
for each mutant that no test noticed.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from .mirror import PROPERTIES, ROOT, unit_tests
from .mutant import path_of

LAWS = "tests/property/test_laws.py"


def main() -> int:
    """Return 0 if mutmut ran, whatever the number of mutants that survived."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.mutate", description=__doc__)
    parser.add_argument("files", nargs="+", help="source files, such as src/dlstep/core/state.py")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="mutants at a time (default: one per core)")
    options = parser.parse_args()
    names = [Path(file).resolve().relative_to(ROOT / "src").as_posix().removeprefix("dlstep/") for file in options.files]
    tests = [test for name in names for test in unit_tests(name)]
    tests += [LAWS] if any(name.startswith(PROPERTIES) for name in names) else []
    with TemporaryDirectory() as name:
        folder = Path(name)
        listed = subprocess.run(
            ["git", "ls-files", "-zco", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True, text=True
        ).stdout
        for part in filter(lambda part: (ROOT / part).is_file(), listed.split("\0")):
            (folder / part).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / part, folder / part)
        settings = {
            "source_paths": ["src/"],
            "only_mutate": [str(path_of(name).relative_to(ROOT)) for name in names],
            "also_copy": sorted(path.name for path in folder.iterdir() if path.name != "src"),
            "pytest_add_cli_args_test_selection": sorted(set(tests)),
        }
        with (folder / "pyproject.toml").open("a", encoding="utf-8") as file:
            file.write("\n[tool.mutmut]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in settings.items()))
        return run_mutmut(folder, options.jobs)


def run_mutmut(folder: Path, jobs: int) -> int:
    """Run mutmut in a configured copy of the checkout; print the mutants that survived, and counts."""
    sources = folder / "mutants" / "src"
    sources.mkdir(parents=True)  # Python ignores entries of PYTHONPATH that do not exist when it starts
    environment = {**os.environ, "PYTHONPATH": str(sources)}  # also for processes that tests start

    def mutmut(*arguments: str, capture: bool = True) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "mutmut", *arguments]
        return subprocess.run(command, cwd=folder, env=environment, capture_output=capture, text=True, check=False)

    if (code := mutmut("run", "--max-children", str(jobs), capture=False).returncode) != 0:
        return code
    for line in mutmut("results").stdout.splitlines():
        mutant, _, result = line.strip().partition(": ")
        print(mutmut("show", mutant).stdout if result == "survived" else line)
    mutmut("export-cicd-stats")
    counts = json.loads((folder / "mutants" / "mutmut-cicd-stats.json").read_text())
    print(", ".join(f"{key} {value}" for key, value in counts.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""`dlstep laws` ends whatever a user's file does, and says what is wrong and where."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from dlstep.cli import main

from .faulty_files import ENDLESS_FILES, FATAL, FILES, rule

pytestmark = pytest.mark.full

COMMAND = (sys.executable, "-c", "from dlstep_command import main; raise SystemExit(main())", "laws")
KINDS = {**FILES, **{f"endless {kind}": faulty for kind, faulty in ENDLESS_FILES.items()}}


def saved(source, folder, name="faulty"):
    path = folder / f"{name}.py"
    path.write_text(source)
    return str(path)


def check_shown(faulty, code, text):
    """The exit code, the parts of the message and the line of the mistake, without frames of libraries."""
    assert code == faulty.code, text
    for part in faulty.message:
        assert part in text, (part, text)
    if faulty.place:
        assert re.search(rf"\bfaulty\w*\.py(:|\", line ){faulty.line}\b", text), text
    shown = re.findall(r"^(\S+\.py):\d+: in ", text, re.MULTILINE)
    assert all("faulty" in path or "dlstep/" in path for path in shown), text


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=pytest.mark.stress if kind in [*KINDS][-4:] else ()) for kind in KINDS],
)
def test_faulty_file_is_reported(kind, tmp_path, capsys):
    name = re.sub(r"\W", "_", f"faulty {kind}")  # a module is loaded once
    path, timeout = saved(KINDS[kind].source, tmp_path, name), 20 if kind in FILES else 1.5
    code = main(f"laws {path} --only progress --examples 10 --law_timeout {timeout}".split())
    check_shown(KINDS[kind], code, "".join(capsys.readouterr()))


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind == "stays in C" else pytest.mark.stress) for kind in FATAL]
)
def test_file_that_ends_the_process_leaves_the_name_of_the_law(kind, tmp_path):
    command = [*COMMAND, saved(FATAL[kind].source, tmp_path), "--only", "progress", "--law_timeout", "1.5"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout.rstrip().endswith("::progress"), done.stdout
    check_shown(FATAL[kind], done.returncode, done.stderr)


def test_laws_hold_for_a_rule_of_ones_own(own, printed):
    lines = printed(f"laws {own}/best_of_own.py --only [transparency,progress] --examples 10").split("\n")
    on = [
        f"best_of_own.py on {carrier}::{law} PASSED"
        for carrier in ("multi_bd", "dual_cache")
        for law in ("progress", "transparency")
    ]
    assert [Path(line).name for line in lines if line.endswith("PASSED")] == on


def test_failing_law_is_shown_with_its_smallest_case_and_ends_the_run(own, printed):
    text = printed(f"laws {own}/lawless.py --only [progress,order] --examples 50 --law_timeout 5", code=1)
    assert text.count("::progress FAILED") == 1 and "::order" not in text
    assert "returned no index although must is true" in text
    (case,) = re.findall(r"^E +strategy=MultiBD\((.*)\)$", text, re.MULTILINE)
    assert "block_size=1" in case and "rule=Nothing(" in case


def test_search_for_a_smaller_case_ends_before_the_time_of_the_law(tmp_path, printed):
    path = saved(rule("time.sleep(0.01); 1 // (not block_pass.number)"), tmp_path, "faulty_slow")
    text = printed(f"laws {path} --only progress --law_timeout 8", code=1)
    assert "raised ZeroDivisionError" in text and "strategy=MultiBD(" in text and "Timeout" not in text

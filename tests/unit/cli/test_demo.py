"""`dlstep demo`, with and without a terminal."""

# The console writes to a `StringIO`, and fields of rows are given by name.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false

import json
import os
import re
import subprocess
import sys
from io import StringIO

import pytest
from rich.console import Console

from dlstep import tiny
from dlstep.cli import demo
from dlstep.evaluate.comparing import EvalEntry
from dlstep.evaluate.frontier import DECODERS

from ...helpers.shadow_llm import make_llm

LABELS = [*DECODERS]


@pytest.mark.full
@pytest.mark.parametrize("problems", [2, pytest.param(8, marks=pytest.mark.stress)])
def test_the_demo_runs_without_a_terminal(problems):
    code = "from dlstep.cli import main; raise SystemExit(main())"
    command = [sys.executable, "-c", code, "demo", "--problems", str(problems), "--shown", "1"]
    plain = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "COLUMNS": "80"})
    assert "forward passes" in plain.stdout
    assert "\x1b[" not in plain.stdout
    headings = [line.partition(":")[0] for line in plain.stdout.splitlines() if line.partition(":")[0] in LABELS]
    assert headings == LABELS[1:], "each way of decoding has one heading of its own"
    table = plain.stdout.partition("held-out problems")[2].splitlines()
    assert len(table) < 24 and max(map(len, table)) <= 80, "it fits a small terminal"
    rows = json.loads(subprocess.run([*command, "--json"], capture_output=True, text=True, check=True).stdout)
    found = {(row["strategy"], row["model"], *row["options"].items()) for row in rows}
    assert ("d2f buffer 4", "tiny-d2f", ("accept_threshold", 0.5)) in found and len(found) == len(rows) == 27
    for row in rows:
        ((option, value),) = row["options"].items()
        assert any({row["strategy"].split()[0], option.split("_")[0], f"{value:g}"} <= {*line.split()} for line in table)
    assert all(row["answers"] == problems and 0.0 <= row["accuracy"] <= 1.0 for row in rows)


def test_the_demo_on_a_terminal(monkeypatch):
    """A legend with the colours, then pictures, nothing wider than 80 columns and nothing cut."""
    monkeypatch.setattr(demo, "SECONDS_PER_STEP", 0.0)
    console = Console(file=StringIO(), width=80, height=24, force_terminal=True, legacy_windows=False, color_system="standard")
    demo.print_legend(console)
    entries = [EvalEntry(name, "", make_llm().engine, {}, {}) for name in LABELS[:2]]
    demo.show_all(entries, tiny.problems(2, 0), console)
    lines = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line) for line in console.file.getvalue().splitlines()]
    for part in ("prompt", "· masked", "unmasked", "settled"):
        assert part in lines[1]
    assert max(len(line.rpartition("\r")[2]) for line in lines) <= 80
    assert any("multi_bd buffer 4: several unfinished blocks" in line for line in lines)
    assert any("request 1, ended by length" in line for line in lines)

"""Host cost is measured on the cases that it names."""

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from random import Random
from time import process_time
from typing import Any

import pytest

from benchmarks.queues import Others, begin, measure_queue, serve
from benchmarks.rule_answers import CARRIERS, rule_scripts
from benchmarks.rules import COLUMNS, RuleCost, known_forms, rates
from benchmarks.sessions import after_another, in_turns, timed
from dlstep import LLM, rules
from dlstep.bench.answers import SCRIPTS
from dlstep.bench.host import build, build_script, measure_lowering
from dlstep.bench.script import unmasked
from dlstep.cli.rows import print_rows
from dlstep.core import commit, schedule


@pytest.mark.parametrize(
    ("script", "least", "most"),
    [
        ("multi_bd", 1.9, 2.1),
        ("d2f", 1.9, 2.1),
        ("multi_bd_edit", 1.9, 2.1),
        ("multi_bd_edit_full", 3.4, 4.0),
        ("dmax", 1.9, 2.1),
        ("dmax_full", 3.4, 4.0),
    ],
)
def test_so_many_tokens_are_taken_a_step(script: str, least: float, most: float) -> None:
    state, driver = build(script, "generated", 512, 4), SCRIPTS[script].driver(Random(0))
    before, steps = sum(map(unmasked, state.running)), 64
    for _ in range(steps):
        state = commit(state, driver.run(schedule(state)))
    assert least <= (sum(map(unmasked, state.running)) - before) / steps / len(state.running) <= most


TOKENS = {"dilated": (4.5, 6.0)}  # levels of 1, 1, 2, 4, 8 and 16 positions


@pytest.mark.parametrize("form", [*rule_scripts(), *CARRIERS])
def test_rules_take_as_many_tokens_a_step_as_their_carrier(form: str) -> None:
    script = CARRIERS[form] if form in CARRIERS else rule_scripts()[form][1]
    _, tokens = rates(build_script(script, "prompt", 64, 8), script)
    least, most = TOKENS.get(form, (1.6, 2.4))
    assert least <= tokens <= most


def test_every_rule_is_measured() -> None:
    assert {form.partition(" ")[0] for form in known_forms("all")} == set(rules.own())
    assert known_forms("hierarchy") == ("hierarchy", "hierarchy remask")


def calls(others: Others, size: int) -> int:
    """Calls of functions that it takes to serve 64 requests beside `size` others."""
    state, count = begin(others, size), 0

    def called(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(called)
    try:
        serve(state, 64, prunes=others == "waiting")
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize(("others", "few", "many"), [("waiting", 50, 1000), ("ended", 0, 1000)])
def test_a_request_costs_the_same_whoever_waits_or_has_ended(others: Others, few: int, many: int) -> None:
    assert calls(others, many) <= 1.1 * calls(others, few)


def test_a_request_takes_as_long_whoever_waits_or_has_ended() -> None:
    rows = list(measure_queue((50, 1000), (0, 1000), served=64, repetitions=3))
    assert [(row.others, row.count) for row in rows] == [("waiting", 50), ("waiting", 1000), ("ended", 0), ("ended", 1000)]
    assert all(row.ratio < 1.8 for row in rows), rows


def test_sessions_in_turns_take_the_forwards_of_sessions_in_a_row() -> None:
    llm, prompts = LLM(), ["Max has 53 shells.", "Later Max buys 39 more.", "Max"]
    (turns, steps), (row, others) = (timed(llm, prompts, run, process_time) for run in (in_turns, after_another))
    assert steps == others
    assert turns < 3 * row


def test_the_table_of_rules_fits_a_narrow_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    rows = [RuleCost(form, 32768, 256, 320.0, 2.0, 1234.56, 1234.56, 1234.56, 1234.56, 4.14) for form in rule_scripts()]
    print_rows([asdict(row) for row in rows], COLUMNS)
    heading, *lines = capsys.readouterr().out.splitlines()
    assert heading.split()[-1] == "ratio" and len(lines) == len(rule_scripts())
    assert all(line.split()[-1] == "4.14" for line in lines)


def test_a_benchmark_is_a_command_of_the_checkout() -> None:
    arguments = ["benchmarks.rules", "--rule", "factor", "--batches", "1", "--lengths", "64"]
    command = [sys.executable, "-m", *arguments]
    done = subprocess.run([*command, "--json"], cwd=Path(__file__).parents[3], capture_output=True, text=True, check=True)
    (row,) = json.loads(done.stdout)
    assert (row["rule"], row["batch"], row["length"]) == ("factor", 1, 64) and done.stderr.startswith("measured 1: rule factor")
    wrong = subprocess.run(
        [*command, "--rule", "none"], cwd=Path(__file__).parents[3], capture_output=True, text=True, check=False
    )
    assert wrong.returncode == 2 and "error: --rule must be all or one of threshold, factor" in wrong.stderr


@pytest.mark.parametrize("script", SCRIPTS)
def test_lowering_of_every_strategy_is_measured(script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlstep.bench.host.STEPS", 2)
    state = build(script, "prompt", 64, 2)
    assert all(part > 0 for step in measure_lowering(state, SCRIPTS[script].driver(Random(0))) for part in step)

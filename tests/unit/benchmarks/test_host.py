"""Host cost is measured on the cases that it names."""

import json
import sys
from random import Random
from time import process_time
from typing import Any

import pytest

from benchmarks import entry, host
from benchmarks.host import build, measure_group, measure_lowering
from benchmarks.queues import Others, begin, serve
from benchmarks.rule_answers import CARRIERS, rule_scripts
from benchmarks.rules import measure_rule, rates
from benchmarks.scripts import SCRIPTS, unmasked
from benchmarks.sessions import after_another, in_turns, timed
from dlstep import LLM, rules
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
    state, driver = build(SCRIPTS[script], "generated", 512, 4), SCRIPTS[script].driver(Random(0))
    before, steps = sum(map(unmasked, state.running)), 64
    for _ in range(steps):
        state = commit(state, driver.run(schedule(state)))
    assert least <= (sum(map(unmasked, state.running)) - before) / steps / len(state.running) <= most


TOKENS = {"dilated": (4.5, 6.0)}  # levels of 1, 1, 2, 4, 8 and 16 positions


@pytest.mark.parametrize("form", [*rule_scripts(), *CARRIERS])
def test_rules_take_as_many_tokens_a_step_as_their_carrier(form: str) -> None:
    script = CARRIERS[form] if form in CARRIERS else rule_scripts()[form][1]
    _, tokens = rates(build(script, "prompt", 64, 8), script)
    least, most = TOKENS.get(form, (1.6, 2.4))
    assert least <= tokens <= most


def test_every_rule_is_measured() -> None:
    assert {form.partition(" ")[0] for form in rule_scripts()} == set(rules.own())


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


def test_sessions_in_turns_take_the_forwards_of_sessions_in_a_row() -> None:
    llm, prompts = LLM(), ["Max has 53 shells.", "Later Max buys 39 more.", "Max"]
    (turns, steps), (row, others) = (timed(llm, prompts, run, process_time) for run in (in_turns, after_another))
    assert steps == others
    assert turns < 3 * row


def test_options_are_read_and_rows_are_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(host, "REPETITIONS", 1)
    monkeypatch.setattr("sys.argv", ["host", "--batches", "[1]", "--lengths", "[64]", "--json"])

    def measure(strategy: str, batches: tuple[int, ...], lengths: tuple[int, ...]) -> list[dict[str, Any]]:
        return measure_group(strategy, "prompt", lengths[0], batches)

    with pytest.raises(SystemExit, match="0"):
        entry.run("Host cost.", measure, strategy=("multi_bd", ""), batches=((1, 8), ""), lengths=((512,), ""))
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["strategy"], row["length"], row["batch"]) == ("multi_bd", 64, 1)
    assert all(row[f"{part}_us"] > 0 for part in ("schedule", "lower", "unpack", "commit"))


def test_a_rule_is_compared_with_its_carrier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "REPETITIONS", 1)
    row = measure_rule("factor", 64, 1)
    assert row["ratio"] > 0 and row["commit_us"] > 0


@pytest.mark.parametrize("script", SCRIPTS)
def test_lowering_of_every_strategy_is_measured(script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "STEPS", 2)
    state = build(SCRIPTS[script], "prompt", 64, 2)
    assert all(part > 0 for step in measure_lowering(state, SCRIPTS[script].driver(Random(0))) for part in step)

"""Host cost is measured on the cases that it names."""

import json
from random import Random

import pytest

from benchmarks import entry, host
from benchmarks.host import build, measure_group, measure_lowering
from benchmarks.scripts import SCRIPTS


def test_options_are_read_and_rows_are_printed(monkeypatch, capsys):
    monkeypatch.setattr(host, "REPETITIONS", 1)
    monkeypatch.setattr("sys.argv", ["host", "--batches", "[1]", "--lengths", "[64]", "--json"])

    def measure(strategy, batches, lengths):
        return measure_group(strategy, "prompt", lengths[0], batches)

    entry.run("Host cost.", measure, strategy=("multi_bd", ""), batches=((1, 8), ""), lengths=((512,), ""))
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["strategy"], row["length"], row["batch"]) == ("multi_bd", 64, 1)
    assert all(row[f"{part}_us"] > 0 for part in ("schedule", "lower", "unpack", "commit"))


@pytest.mark.parametrize("script", SCRIPTS)
def test_lowering_of_every_strategy_is_measured(script, monkeypatch):
    monkeypatch.setattr(host, "STEPS", 2)
    state = build(SCRIPTS[script], "prompt", 64, 2)
    assert all(part > 0 for step in measure_lowering(state, SCRIPTS[script].driver(Random(0))) for part in step)

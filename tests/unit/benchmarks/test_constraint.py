"""The host cost of constraints is measured on requests that stay constrained."""

from benchmarks import host
from benchmarks.constraint import measure_constraint


def test_both_costs_are_measured(monkeypatch):
    monkeypatch.setattr(host, "REPETITIONS", 2)
    (row,) = measure_constraint("multi_bd", (1,), (1,))
    assert 0 < row["plain_us"] < row["constrained_us"]

"""Host cost is measured on the cases that it names."""

import json

from benchmarks import entry, host
from benchmarks.host import measure_group


def test_options_are_read_and_rows_are_printed(monkeypatch, capsys):
    monkeypatch.setattr(host, "REPETITIONS", 1)
    monkeypatch.setattr("sys.argv", ["host", "--batches", "[1]", "--lengths", "[64]", "--json"])

    def measure(strategy, batches, lengths):
        return measure_group(strategy, "prompt", lengths[0], batches)

    entry.run("Host cost.", measure, strategy=("multi_bd", ""), batches=((1, 8), ""), lengths=((512,), ""))
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["strategy"], row["length"], row["batch"]) == ("multi_bd", 64, 1)
    assert all(row[f"{part}_us"] > 0 for part in ("schedule", "lower", "unpack", "commit"))

"""A server is measured at three rates in turns; the simulation is fitted to two of them and predicts the third."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from dlstep.cli import main

from ...unit.cli.test_serve import command

SLOW, MIDDLE, FAST = 4, 8, 12  # requests a second
TURNS, SECONDS, MOST = 3, 15, 0.25
PROMISED = ("tokens_per_s", "requests_per_s", "latency_p50", "latency_p95")


@pytest.mark.stress
def test_two_rates_predict_a_third(tmp_path: Path, capsys: pytest.CaptureFixture[str], report: Callable[[str], None]) -> None:
    """Medians of three rounds are within a quarter. Needs an otherwise idle machine."""
    rows: dict[int, list[object]] = {SLOW: [], MIDDLE: [], FAST: []}
    with command(tmp_path, "tiny-bd", "--num_threads", "1") as server:
        for _ in range(TURNS):
            arguments = ["--rates", str(list(rows)), "--seconds", str(SECONDS), "--warm", "true", "--json"]
            assert main(["bench", "serve", server.url, *arguments]) == 0
            for rate, row in zip(rows, json.loads(capsys.readouterr().out), strict=True):
                rows[rate].append(row)
    files = {rate: tmp_path / f"{rate}.json" for rate in rows}
    for rate, path in files.items():
        path.write_text(json.dumps(rows[rate]))
    fit = ["--fit", str(files[SLOW]), str(files[FAST]), "--against", str(files[MIDDLE])]
    assert main(["simulate", *fit, "--replicas", "1", "--fewest", "20", "--requests", "1", "--json"]) == 0
    told = {each["figure"]: each for each in json.loads(capsys.readouterr().out)["against"]}
    said = ", ".join(f"{name} {100 * each['error']:+.1f} %" for name, each in told.items())
    report(f"{MIDDLE} requests a second, predicted from {SLOW} and {FAST}: {said}")
    assert max(abs(told[name]["error"]) for name in PROMISED) <= MOST, told

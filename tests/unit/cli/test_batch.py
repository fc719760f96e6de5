"""Killed with -9 at any moment and started again, a batch has the answers of an unbroken run, byte for byte."""

import json
from pathlib import Path
from random import Random

import pytest

from dlstep.cli import main

from ..batch.batches import answers_file, killed, lines_of, run, stories, written
from .test_main_process import run as run_process

pytestmark = pytest.mark.full

COUNT = 2000
LINES = lines_of(stories(COUNT))


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    """The output of a run that nothing broke off."""
    out = tmp_path_factory.mktemp("unbroken") / "out.jsonl"
    run(LINES, out)
    return out


@pytest.mark.parametrize("kills", [1, pytest.param(30, marks=pytest.mark.stress)])
def test_killed_at_random_moments_the_answers_are_the_same(unbroken, tmp_path, kills, report):
    whole, random = unbroken.read_bytes(), Random(kills)
    out = tmp_path / "out.jsonl"
    grown = [killed(LINES, out, random.randrange(1, len(whole) // kills)) for _ in range(kills)]
    assert not out.exists()
    rows = run(LINES, out)
    assert out.read_bytes() == whole
    assert [row["custom_id"] for row in rows] == [f"story-{number}" for number in range(COUNT)]
    assert all(row["response"]["status_code"] == 200 for row in rows)
    report(f"{COUNT} requests, killed {kills} times, after {', '.join(map(str, grown))} bytes of answers: equal bytes")


def test_the_command_answers_and_says_what_failed(tmp_path, capsys):
    rows = [*stories(3), {"custom_id": "wrong", "method": "POST", "url": "/v1/completions", "body": {"prompt": 5}}]
    given, out = written(tmp_path / "in.jsonl", rows), tmp_path / "out.jsonl"
    assert main(["batch", str(given), str(out)]) == 1
    assert capsys.readouterr().err == f"dlstep: 1 of 4 answers are errors, see response.status_code in {out}\n"
    assert [json.loads(line)["response"]["status_code"] for line in out.read_text().splitlines()] == [200, 200, 200, 400]
    assert answers_file(out).read_text().count("\n") == 4


@pytest.mark.parametrize("command", ["batch", "eval"])
def test_a_rule_that_never_returns_ends_the_command_and_answers_so_far_stay(command, tmp_path):
    rows = stories(2)
    rows[1]["body"]["dlstep"] = {"endless": True}
    given, out = written(tmp_path / "in.jsonl", rows), tmp_path / "out"
    own = {"batch": f"{given} {out}", "eval": f"--out {out} --dataset_limit 1 --grid '{{endless: [false, true]}}'"}
    rule = Path(__file__).parents[1] / "batch" / "endless_rule.py"
    line = f"{command} {own[command]} --rule {rule} --max_num_reqs 1 --engine_timeout 2 --progress false"
    done = run_process(line)
    assert done.returncode == 1 and "Timeout (0:00:02)!" in done.stderr and "in chosen" in done.stderr
    answers = answers_file(out) if command == "batch" else out / "answers.jsonl"
    assert answers.read_text().count("\n") == 1

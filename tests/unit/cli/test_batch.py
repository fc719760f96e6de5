"""Killed with -9 at any moment and started again, a batch has the answers of an unbroken run, byte for byte."""

import json
import shutil
import subprocess
from pathlib import Path
from random import Random

import pytest

from dlstep.cli import main

from ..batch.batches import answers_file, killed, lines_of, run, stories, written
from .test_main_process import DLSTEP

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


def copied(unbroken, folder):
    """A copy of an output and its folder."""
    shutil.copytree(unbroken.parent, folder, dirs_exist_ok=True)
    return folder / unbroken.name


@pytest.mark.stress
def test_mistakes_are_told_and_nothing_is_lost(unbroken, tmp_path, capsys):
    out = copied(unbroken, tmp_path / "copy")
    given = written(tmp_path / "in.jsonl", stories(COUNT))
    before = out.read_bytes()

    def errors(*arguments):
        assert main(["batch", *map(str, arguments), "--num_threads", "1", "--progress", "false"]) == 2
        return capsys.readouterr().err.splitlines()[-1]

    fewer = written(tmp_path / "fewer.jsonl", stories(COUNT)[3:])
    text = errors(fewer, out, "--max_num_reqs", "32")
    assert "has answers to 3 requests that are not in the input: the input has changed" in text and "give another OUT" in text
    assert "engine.seed 0, and now it is 1: give another OUT" in errors(given, out, "--seed", "1")
    assert "engine.strategy" in errors(given, out, "--accept_threshold", "0.5")
    assert "engine.fingerprint" in errors(given, out, "--dtype", "bfloat16")
    assert "served_model_name tiny-bd, and now it is other" in errors(given, out, "--served_model_name", "other").replace(
        "'", ""
    )
    assert "is both input and output" in errors(given, given)
    assert "No such file" in errors(tmp_path / "none.jsonl", out)
    assert "has no effect without --ray" in errors(given, out, "--actors", "2")
    lost = tmp_path / "other.jsonl"
    lost.write_text("precious\n")
    assert "exists and is not the output of a batch" in errors(given, lost) and lost.read_text() == "precious\n"
    cut = tmp_path / "cut.jsonl"
    cut.write_bytes(given.read_bytes()[:-20])
    assert f"line {COUNT} holds no JSON" in errors(cut, out) and out.read_bytes() == before


def test_the_command_answers_and_says_what_failed(tmp_path, capsys):
    rows = [*stories(3), {"custom_id": "wrong", "method": "POST", "url": "/v1/completions", "body": {"prompt": 5}}]
    given, out = written(tmp_path / "in.jsonl", rows), tmp_path / "out.jsonl"
    assert main(["batch", str(given), str(out)]) == 1
    assert capsys.readouterr().err == f"dlstep: 1 of 4 answers are errors, see response.status_code in {out}\n"
    assert [json.loads(line)["response"]["status_code"] for line in out.read_text().splitlines()] == [200, 200, 200, 400]
    assert not answers_file(out).exists()
    with pytest.raises(SystemExit, match="0"):
        main(["batch", "--help"])
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("INPUT OUTPUT", "--ray", "--actors", "--accept_threshold", "resume"))


@pytest.mark.parametrize("command", ["batch", "eval"])
def test_a_rule_that_never_returns_ends_the_command_and_answers_so_far_stay(command, tmp_path):
    rows = stories(2)
    rows[1]["body"]["dlstep"] = {"endless": True}
    given, out = written(tmp_path / "in.jsonl", rows), tmp_path / "out"
    own = {
        "batch": [str(given), str(out)],
        "eval": ["--out", str(out), "--dataset_limit", "1", "--grid", '{"endless": [false, true]}'],
    }
    rule = Path(__file__).parents[1] / "batch" / "endless_rule.py"
    arguments = ["--rule", str(rule), "--max_num_reqs", "1", "--engine_timeout", "2", "--progress", "false"]
    line = [*DLSTEP, command, *own[command], *arguments]
    done = subprocess.run(line, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and "Timeout (0:00:02)!" in done.stderr and "in chosen" in done.stderr
    answers = answers_file(out) if command == "batch" else out / "answers.jsonl"
    assert answers.read_text().count("\n") == 1

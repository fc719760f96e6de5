"""`dlstep simulate`: what it prints and what it refuses."""

import json

import pytest

from dlstep.cli import main

BASE = ["simulate", "--total_rate", "60", "--fewest", "150", "--seconds", "1"]


def test_the_command_answers_how_many_replicas(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*BASE, "--target", "p95=0.12"]) == 0
    lines = capsys.readouterr().out.splitlines()
    tried = {int(line.split()[0]): float(line.split()[4]) for line in lines if line[:1].isdigit() and line.split()[1] == "150"}
    answer = min(count for count, p95 in tried.items() if p95 <= 120)
    assert answer > 1 and tried[answer - 1] > 120
    assert lines[-1].startswith(f"p95 <= 0.12 s with 60 requests a second (150 in all) takes {answer} replicas: p95 0.1")
    assert "; with one fewer p95 0." in lines[-1]
    assert main([*BASE, "--target", "p95=0.12", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["replicas"] == answer and printed["total"] and {row["replicas"] for row in printed["curve"]} == set(tried)
    assert main([*BASE, "--replicas", "[1,2]"]) == 0
    assert "60 requests a second in all" in capsys.readouterr().out


def test_the_command_says_that_no_number_suffices(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*BASE, "--target", "p95=0.01"]) == 1
    assert "No number of replicas reaches p95 <= 0.01 s: a request that never waits for others takes p95 0." in (
        capsys.readouterr().out
    )
    assert main([*BASE, "--target", "p95=0.12", "--most_replicas", "1", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["replicas"] is None
    assert main([*BASE, "--target", "p95=0.12", "--most_replicas", "1"]) == 1
    assert "No number of replicas up to 1 reaches p95 <= 0.12 s" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--target", "p95=1"], "--target does nothing without --total_rate"),
        (["--seconds", "5"], "--seconds does nothing without --total_rate"),
        (["--total_rate", "5", "--most_replicas", "5"], "--most_replicas does nothing without --target"),
        (["--total_rate", "5", "--rate", "5"], "--rate has no effect with --total_rate"),
        (["--total_rate", "5", "--target", "p95=1", "--replicas", "3"], "--replicas has no effect with --target"),
        (["--total_rate", "0"], "--total_rate must be above 0"),
        *[
            (["--total_rate", "5", "--target", text], "--target takes seconds for p50, p95, p99, such as p95=0.5")
            for text in ("p95", "p95=0", "p95=-1", "p95=nan", "p90=1", "p95=1e3", "p95=1,", "95=1")
        ],
        (["--total_rate", "5", "--target", "p95=1,p95=2"], "--target names p95 twice"),
    ],
)
def test_targets_that_mean_nothing_are_refused(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_table_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(
            ["simulate", "--replicas", "1", "--system_prompts", "3", "--system_tokens", "32", "--rate", "30", "--fewest", "100"]
        )
        == 0
    )
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "A forward pass takes 5 ms + 20 us a row; a request 0 ms outside of the engine."
    line = out[-1].split()
    assert line[:2] == ["1", "100"] and 0.2 < float(line[-2]) < 0.5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--against", "x"], "--against does nothing without --fit"),
        (["--fit", "x", "--row_us", "3"], "--row_us has no effect with --fit"),
        (["--replicas", "[0]"], "--replicas takes numbers that are at least 1"),
        (["--rate", "0"], "--rate must be above 0"),
        (["--system_prompts", "3"], "--system_prompts and --system_tokens go together"),
        (["--delay_ms", "-1"], "--delay_ms must not be below 0"),
        (["--forward_ms", "-1"], "StepCost.forward must be a number of seconds that is not below 0"),
        (["--max_model_len", "40"], "--max_model_len 40 is less than the 128 tokens"),
        (["--options", '{"blocks": 3}'], "MultiBD has no option 'blocks'"),
        (["--gpus", "2"], "--gpus does nothing without --shape"),
        (["--shape", "sdar-8b", "--rate", "2"], "--rate has no effect with --shape"),
        (["--shape", "llada2-mini"], "llada2-mini has experts"),
        (["--shape", "dream-7b", "--gpus", "8"], "dream-7b has 28 heads"),
    ],
)
def test_what_cannot_be_done_is_said(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", *arguments]) == 2
    assert message in capsys.readouterr().err

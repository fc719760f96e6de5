"""`dlstep bench`: options that it refuses."""

from pathlib import Path

import pytest

from .failing import Captured, failure


def test_bench_refuses_options_that_do_nothing(capsys: Captured) -> None:
    for option in (["--profile", "trace.json"], ["--compile_layers", "true"], ["--enforce_eager"], ["--batches", "[4]"]):
        assert f"{option[0]} does nothing without --shape" in failure(["bench", "decode", *option], capsys)


def test_bench_refuses_what_does_not_go_together(capsys: Captured) -> None:
    assert "--batches has no effect with --memory" in failure(["bench", "host", "--memory", "--batches", "[4]"], capsys)
    assert "--strategy has no effect with --memory" in failure(["bench", "host", "--memory", "--strategy", "d2f"], capsys)


@pytest.mark.parametrize(
    ("arguments", "asked", "module"),
    [
        (["tune", "--share", "0.5"], "tune", "tuner"),
        (["tune-kernels"], "tune-kernels", "tune_kernels"),
        (["fingerprint", "--gib", "4"], "fingerprint", "fingerprint"),
        (["host", "--json", "--queue"], "host --queue", "queues"),
        (["host", "--rule=all"], "host --rule", "rules"),
        (["decode", "--sessions", "8"], "decode --sessions", "sessions"),
    ],
)
def test_bench_names_the_new_command_of_what_moved(arguments: list[str], asked: str, module: str, capsys: Captured) -> None:
    new = f"`dlstep bench {asked}` is now `python -m benchmarks.{module}`, run in a checkout of the repository"
    assert new in failure(["bench", *arguments], capsys)
    assert (Path(__file__).parents[3] / "benchmarks" / f"{module}.py").is_file()

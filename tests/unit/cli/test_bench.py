"""`dlstep bench`: options that it refuses."""

from .failing import Captured, failure


def test_bench_refuses_options_that_do_nothing(capsys: Captured) -> None:
    for option in (["--profile", "trace.json"], ["--compile_layers", "true"], ["--enforce_eager"], ["--batches", "[4]"]):
        assert f"{option[0]} does nothing without --shape" in failure(["bench", "decode", *option], capsys)


def test_bench_refuses_what_does_not_go_together(capsys: Captured) -> None:
    assert "--batches has no effect with --memory" in failure(["bench", "host", "--memory", "--batches", "[4]"], capsys)
    assert "--strategy has no effect with --memory" in failure(["bench", "host", "--memory", "--strategy", "d2f"], capsys)

"""`dlstep bench`: options that it refuses."""

from .failing import Captured, failure


def test_bench_refuses_options_that_do_nothing(capsys: Captured) -> None:
    for option in (["--profile", "trace.json"], ["--compile_layers", "true"], ["--enforce_eager"], ["--batches", "[4]"]):
        assert f"{option[0]} does nothing without --shape" in failure(["bench", "decode", *option], capsys)


def test_bench_refuses_what_does_not_go_together(capsys: Captured) -> None:
    assert "--batches does nothing beside --queue" in failure(["bench", "host", "--queue", "--batches", "[4]"], capsys)
    assert "--memory does nothing beside --queue" in failure(["bench", "host", "--queue", "--memory"], capsys)
    assert "--strategy does nothing beside --rule" in failure(["bench", "host", "--rule", "all", "--strategy", "d2f"], capsys)
    assert "--rule must be all or one of threshold, factor" in failure(["bench", "host", "--rule", "none"], capsys)
    assert "--sessions must be at least 1" in failure(["bench", "decode", "--sessions", "0"], capsys)
    assert "not --shape" in failure(["bench", "decode", "--sessions", "2", "--shape", "sdar-8b"], capsys)

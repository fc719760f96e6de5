"""The command `dlstep`: what it prints where, and its exit codes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from shadow_llm import make_llm

from dlstep import EngineConfig, SamplingParams, Trace
from dlstep.cli import main
from dlstep.cli.main import COMMANDS
from dlstep.cli.options import ENGINE_FIELDS, SAMPLING_FIELDS, SAMPLING_HELP, field_help

QUESTION = "Max has 53 shells. Later Max buys 39 more. How many shells does Max have?"
Captured = pytest.CaptureFixture[str]


def failure(arguments: list[str], capsys: Captured) -> str:
    """The one line that a wrong request gives on stderr."""
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("dlstep: error: ")
    return err


def test_generate_prints_the_right_answer(capsys: Captured) -> None:
    assert main(["generate", QUESTION]) == 0
    out, err = capsys.readouterr()
    assert out.count("\n") == 1
    assert "92" in out
    assert "tokens per forward, ended by stop" in err


def test_generate_prints_json_alone_on_stdout(capsys: Captured) -> None:
    assert main(["generate", QUESTION, f"{QUESTION}\n", "--json", "--buffer_size", "1"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == 2
    assert rows[0]["token_ids"] == rows[1]["token_ids"]  # the missing newline is added
    assert rows[0]["finish_reason"] == "stop"
    assert rows[0]["tokens_per_forward"] == len(rows[0]["token_ids"]) / rows[0]["nfe"]


def test_generate_writes_a_profile(capsys: Captured, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    assert main(["generate", QUESTION, "--max_tokens", "8", "--profile", str(path)]) == 0
    named = {event.get("name", "") for event in json.loads(path.read_text())["traceEvents"]}
    assert {f"dlstep {part}" for part in ("run", "follow", "gather", "lower", "forward", "sample", "unpack")} <= named
    assert any("scaled_dot_product" in name for name in named)
    capsys.readouterr()
    assert "--profile" in failure(["generate", QUESTION, "--profile", str(tmp_path / "nowhere" / "trace.json")], capsys)


def test_bench_refuses_options_that_do_nothing(capsys: Captured) -> None:
    for option in (["--profile", "trace.json"], ["--compile_layers", "true"], ["--enforce_eager"], ["--batches", "[4]"]):
        assert f"{option[0]} does nothing without --shape" in failure(["bench", "decode", *option], capsys)


def test_bench_refuses_what_does_not_go_together(capsys: Captured) -> None:
    assert "--batches does nothing beside --queue" in failure(["bench", "host", "--queue", "--batches", "[4]"], capsys)
    assert "--memory does nothing beside --queue" in failure(["bench", "host", "--queue", "--memory"], capsys)
    assert "--sessions must be at least 1" in failure(["bench", "decode", "--sessions", "0"], capsys)
    assert "not --shape" in failure(["bench", "decode", "--sessions", "2", "--shape", "sdar-8b"], capsys)


def test_a_config_file_gives_options_and_the_command_line_overrides_them(capsys: Captured, tmp_path: Path) -> None:
    path = tmp_path / "options.yaml"
    path.write_text("model: tiny-bd\nmax_tokens: 3\nignore_eos: true\nstop: [never, there]\nnum_pages: 100\n")
    assert main(["generate", QUESTION, "--json", "--config", str(path)]) == 0
    assert len(json.loads(capsys.readouterr().out)[0]["token_ids"]) == 3
    assert main(["generate", QUESTION, "--json", "--config", str(path), "--max_tokens", "5"]) == 0
    assert len(json.loads(capsys.readouterr().out)[0]["token_ids"]) == 5
    path.write_text("max_token: 3\n")
    assert "max_token" in failure(["generate", QUESTION, "--config", str(path)], capsys)


def test_a_rejected_request_is_told_and_exits_with_one(capsys: Captured) -> None:
    assert main(["generate", "5" * 600, QUESTION, "--json"]) == 1
    out, err = capsys.readouterr()
    rejected, good = json.loads(out)
    assert rejected["finish_reason"] == "rejected"
    assert "max_model_len=512" in rejected["error"]
    assert good["finish_reason"] == "stop"
    assert "dlstep: rejected: request 0: the prompt has 601 tokens" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["generate", ""], "the prompt is empty"),
        (["nonsense"], "invalid choice: 'nonsense'"),
        (["generate", "a", "--nonsense", "1"], "unrecognized arguments: --nonsense"),
        (["generate", "a", "--max_tokens", "0"], "SamplingParams.max_tokens must be at least 1, got 0"),
        (["generate", "a", "--max-tokens=0"], "SamplingParams.max_tokens must be at least 1, got 0"),
        (["generate", "a", "--temperature", "-1"], "SamplingParams.temperature must be at least 0.0, got -1.0"),
        (["generate", "a", "--temperature", "-1"], "temperature must be at least 0.0, got -1.0"),
        (["generate", "a", "--block_size", "big"], "block_size"),
        (["generate", "a", "--decoding_strategy", "nonsense"], "'nonsense' is unknown: choose from d2f, diffusion_gemma"),
        (["generate", "a", "--model", "/nonsense"], "no checkpoint folder at '/nonsense'"),
        (["generate", "a", "--sampling_mode", "edits"], "sampling_mode must be one of naive, edit"),
        (["generate", "a", "--num_pages", "2"], "at least"),
        (["generate", "a", "--max_model_len", "9999"], "max_model_len must be at most 512"),
        (["generate", "a", "--config", "/nonsense.yaml"], "/nonsense.yaml"),
        (["replay", "/nonsense.jsonl"], "/nonsense.jsonl"),
        (["demo", "--problems", "0"], "--problems must be at least 1, got 0"),
    ],
)
def test_a_wrong_request_is_one_line_and_exits_with_two(arguments: list[str], message: str, capsys: Captured) -> None:
    assert message in failure(arguments, capsys)


def test_strategies_are_listed_with_their_options(capsys: Captured) -> None:
    assert main(["strategies"]) == 0
    out = capsys.readouterr().out
    assert "multi_bd" in out
    assert "d2f" in out
    assert main(["strategies", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["multi_bd"]["model"] == "tiny-bd"
    assert rows["d2f"]["options"]["buffer_size"] == 4


@pytest.fixture
def trace_path(tmp_path: Path) -> Path:
    """A saved decode of two requests, one of them aborted."""
    session = make_llm().session()
    session.submit(QUESTION, SamplingParams(max_tokens=20, ignore_eos=True))
    other = session.submit("other")
    session.step()
    session.abort(other)
    session.run()
    session.trace.save(tmp_path / "decode.jsonl")
    return tmp_path / "decode.jsonl"


def test_a_trace_is_replayed_without_a_model(trace_path: Path, capsys: Captured) -> None:
    assert main(["replay", str(trace_path)]) == 0
    assert "of 2 requests, 0 of them unfinished: every plan is as recorded" in capsys.readouterr().out
    assert main(["replay", str(trace_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["add"], found["abort"], found["rebuild"], found["divergence"]) == (2, 1, 0, None)


def test_a_trace_that_diverges_exits_with_one(trace_path: Path, capsys: Captured) -> None:
    trace = Trace.load(trace_path)
    Trace(trace.first, (trace.events[0], *trace.events[2:])).save(trace_path)  # the second request never came
    assert main(["replay", str(trace_path)]) == 1
    assert capsys.readouterr().out.startswith("diverged: event 1, step 0: ")
    trace_path.write_text("{}\n")
    assert "not a line of a trace" in failure(["replay", str(trace_path)], capsys)


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_help_teaches_with_examples(command: str, capsys: Captured) -> None:
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    assert stop.value.code == 0
    out = capsys.readouterr().out
    assert f"examples:\n  dlstep {command}" in out


def test_every_option_has_a_help_text() -> None:
    texts = field_help(EngineConfig)
    assert all(texts[field.name] for field in ENGINE_FIELDS)
    assert {field.name for field in SAMPLING_FIELDS} == set(SAMPLING_HELP)


def test_the_demo_runs_without_a_terminal() -> None:
    code = "from dlstep.cli import main; raise SystemExit(main())"
    command = [sys.executable, "-c", code, "demo", "--problems", "8", "--shown", "1"]
    plain = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "forwards" in plain.stdout
    assert "\x1b[" not in plain.stdout
    rows = json.loads(subprocess.run([*command, "--json"], capture_output=True, text=True, check=True).stdout)
    assert {(row["model"], row["blocks"], row["option"], row["value"]) for row in rows} >= {
        ("tiny-bd", 1, "accept_threshold", 0.9),
        ("tiny-d2f", 4, "accept_threshold", 0.5),
        ("tiny-canvas", 1, "entropy_bound", 0.1),
    }
    assert all(row["problems"] == 8 and 0.0 <= row["answer"] <= 1.0 for row in rows)

"""The command `dlstep`: what it prints where, and its exit codes."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from shadow_llm import make_llm

from dlstep import LLM, EngineConfig, Request, Samples, SamplingParams, Trace, tiny
from dlstep.bench.accuracy import Accuracy
from dlstep.bench.frontier import DECODERS, Decoder, Row
from dlstep.cli import demo, main
from dlstep.cli.inspect import strategy_rows
from dlstep.cli.main import COMMANDS
from dlstep.cli.options import ENGINE_FIELDS, SAMPLING_FIELDS, SAMPLING_HELP
from dlstep.core import Add, Fail, Prune, Rebuild
from dlstep.engine.option_help import field_help

QUESTION = "Max has 53 shells. Later Max buys 39 more. How many shells does Max have?"
LABELS = [decoder.label for decoder in DECODERS]
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


def test_an_empty_answer_is_told_with_a_remedy(capsys: Captured) -> None:
    assert main(["generate", QUESTION, "--decoding_strategy", "dual_cache", "--max_tokens", "300"]) == 0
    out, err = capsys.readouterr()
    assert out == "\n"
    assert "0 tokens" in err and "--max_tokens" in err


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
    assert "--batches does nothing beside --memory" in failure(["bench", "host", "--memory", "--batches", "[4]"], capsys)
    assert "--strategy does nothing beside --memory" in failure(["bench", "host", "--memory", "--strategy", "d2f"], capsys)


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
    assert (Path(__file__).parents[2] / "benchmarks" / f"{module}.py").is_file()


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
        (["generate", "a", "--max_tokens", "x"], "--max_tokens takes a whole number, got 'x'"),
        (["generate", "a", "--temperature", "x"], "--temperature takes a number, got 'x'"),
        (["generate", "a", "--ignore_eos", "maybe"], "--ignore_eos takes true or false, got 'maybe'"),
        (["generate", "a", "--block_size", "big"], "--block_size takes a whole number, got 'big'"),
        (["generate", "a", "--stop_token_ids", "x"], "--stop_token_ids takes a whole number or a list like [1,2], got 'x'"),
        (
            ["generate", "a", "--stop_token_ids", "[1,x]"],
            "--stop_token_ids takes a whole number or a list like [1,2], got '[1,x]'",
        ),
        (["generate", "a", "--seed", ""], "--seed takes a whole number or null, got ''"),
        (["generate", "a", "--config", "{stop: 7}"], "--stop takes a text or a list like [one,two], got 7"),
        (["generate", "a", "--config", "{1: 2}"], "--config: `dlstep generate` has no option 1"),
        (["generate", "a", "--config", "{config: a.yaml}"], "--config: `dlstep generate` has no option 'config'"),
        (["bench", "serve", "u", "--options", "x"], "--options takes a mapping like {name: value}, got 'x'"),
        (["models", "--json", "check"], "dlstep models check needs a path"),
        (["demo", "--problems", "x"], "--problems takes a whole number, got 'x'"),
        (["bench", "host", "--batches", "x"], "--batches takes a list like [1,2] or null, got 'x'"),
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


def diverged(path: Path, trace: Trace, capsys: Captured) -> str:
    """The line that a replay of a trace prints, which parts from what was recorded."""
    trace.save(path)
    assert main(["replay", str(path)]) == 1
    out = capsys.readouterr().out
    assert out.startswith("diverged: event ") and out.count("\n") == 1 and len(out) < 400
    assert "line" not in out
    return out


def test_a_replay_says_in_words_where_it_parts(trace_path: Path, capsys: Captured) -> None:
    trace = Trace.load(trace_path)
    steps = [number for number, event in enumerate(trace.events) if isinstance(event, Samples)]
    first, second = steps[1], steps[2]
    samples = trace.events[first]
    assert isinstance(samples, Samples)
    tokens = samples.rows[0].tokens
    other = replace(samples.rows[0], tokens=(*tokens[:-1], (tokens[-1] + 1) % 20 + 20))
    tampered = (*trace.events[:first], Samples(samples.plan, (other,)), *trace.events[first + 1 :])
    out = diverged(trace_path, Trace(trace.first, tampered), capsys)
    assert f"event {second}, step 2: the samples of event {first}, or its plan, are not those" in out
    lost = Trace(trace.first, (*trace.events[:first], Rebuild(), *trace.events[first:]))
    assert "the trace begins or forgets the device, the recorded decode does not" in diverged(trace_path, lost, capsys)
    later = Trace(trace.first, (*trace.events[: steps[0]], *trace.events[first:]))
    assert f"event {steps[0]}, step 0: " in diverged(trace_path, later, capsys)
    began = Trace(replace(trace.first, line=5), trace.events)
    assert "the recorded decode begins or forgets the device" in diverged(trace_path, began, capsys)
    plan = replace(samples.plan, spans=(replace(samples.plan.spans[0], seed=3),))
    seeded = (*trace.events[:first], Samples(plan, samples.rows), *trace.events[first + 1 :])
    found = diverged(trace_path, Trace(trace.first, seeded), capsys)
    assert f"event {first}, step 1: span 0 of request 0: seed is " in found and "now, 3 was recorded" in found
    wanted = replace(samples.plan.spans[0], draws=(*samples.plan.spans[0].draws[:-1], 77))
    drawn = (*trace.events[:first], Samples(replace(samples.plan, spans=(wanted,)), samples.rows))
    place = len(wanted.draws) - 1
    assert f"draws entry {place} is " in diverged(trace_path, Trace(trace.first, drawn), capsys)


def test_every_event_of_a_trace_is_counted(trace_path: Path, capsys: Captured) -> None:
    trace = Trace.load(trace_path).extended(Prune())
    state = trace.state
    for event in (Add(Request(7, (5,))), Fail(7, "gone")):
        trace = trace.extended(event)
    trace.save(trace_path)
    assert state.done and main(["replay", str(trace_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {name: found[name] for name in ("add", "adopt", "abort", "fail", "rebuild", "prune")} == {
        "add": 3, "adopt": 0, "abort": 1, "fail": 1, "rebuild": 0, "prune": 1,
    }  # fmt: skip


@pytest.mark.parametrize("arguments", [["strategies"], ["strategies", "--matrix"]])
def test_lists_of_strategies_fit_80_columns(arguments: list[str], capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80 and "\N{HORIZONTAL ELLIPSIS}" not in out
    for row in strategy_rows():
        assert re.search(rf"\b{row.name}\b", out)
        if arguments == ["strategies"]:
            assert all(f"{name}={value}" in out for name, value in row.options.items())


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


@pytest.mark.parametrize("problems", [2, pytest.param(8, marks=pytest.mark.stress)])
def test_the_demo_runs_without_a_terminal(problems: int) -> None:
    code = "from dlstep.cli import main; raise SystemExit(main())"
    command = [sys.executable, "-c", code, "demo", "--problems", str(problems), "--shown", "1"]
    plain = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "COLUMNS": "80"})
    assert "forwards" in plain.stdout
    assert "\x1b[" not in plain.stdout
    headings = [line.partition(":")[0] for line in plain.stdout.splitlines() if line.partition(":")[0] in LABELS]
    assert headings == LABELS[1:], "each way of decoding has one heading of its own"
    table = plain.stdout.partition("held-out problems")[2].splitlines()
    assert len(table) < 24 and max(map(len, table)) <= 80, "it fits a small terminal"
    assert all(any(label.split()[0] in line for line in table) for label in LABELS)
    assert plain.stderr.count("measured ") == 27
    rows = json.loads(subprocess.run([*command, "--json"], capture_output=True, text=True, check=True).stdout)
    assert {(row["model"], row["blocks"], row["option"], row["value"]) for row in rows} >= {
        ("tiny-bd", 1, "accept_threshold", 0.9),
        ("tiny-d2f", 4, "accept_threshold", 0.5),
        ("tiny-canvas", 1, "entropy_bound", 0.1),
    }
    assert all(row["problems"] == problems and 0.0 <= row["answer"] <= 1.0 for row in rows)


def test_the_demo_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """At once a legend with the colours, then pictures and a table, nothing wider than 80 columns and nothing cut."""
    monkeypatch.setattr(demo, "SECONDS_PER_STEP", 0.0)
    monkeypatch.setattr(demo, "SHOWN", DECODERS[1:2])
    console = Console(file=StringIO(), width=80, height=24, force_terminal=True, legacy_windows=False, color_system="standard")
    shown: list[str] = []

    def model(self: Decoder, value: float, device: str | None = None) -> LLM:
        shown.append(console.file.getvalue())
        return make_llm()

    monkeypatch.setattr(Decoder, "model", model)
    demo.show_all(tiny.problems(2, 0), None, console)
    (before,) = shown
    for phase in ("prompt", "masked", "draft", "open", "held", "final"):
        assert phase in before, "the legend is there before anything is loaded"
    lines = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line) for line in console.file.getvalue().splitlines()]
    assert max(len(line.rpartition("\r")[2]) for line in lines) <= 80
    assert any("multi_bd buffer 4: several unfinished blocks" in line for line in lines)
    assert any("request 1, finished: length" in line for line in lines)


def test_the_table_of_the_demo_cuts_no_name() -> None:
    figures = Accuracy(500, 1.0, 0.987, 12.34, 12.34, 100.0, 10, 1.0)
    rows = [Row(each.strategy, each.options, "m", each.knob, value, figures) for each in DECODERS for value in each.values]
    console = Console(file=StringIO(), width=80)
    demo.print_table(rows, console)
    out = console.file.getvalue()
    assert "\N{HORIZONTAL ELLIPSIS}" not in out and max(map(len, out.splitlines())) <= 80
    assert len(out.splitlines()) < 24
    for each in DECODERS:
        assert f" {each.strategy} " in out
        assert f"{each.knob.partition('_')[0]} {' '.join(map(str, each.values))}" in out
    assert "100 100 100   12.34 12.34 12.34" in out

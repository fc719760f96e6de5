"""The command `dlstep`: config files, wrong requests, and help."""

import json
from pathlib import Path

import pytest

from dlstep.cli import main
from dlstep.cli.main import COMMANDS

from .failing import Captured, failure

QUESTION = "Max has 53 shells. Later Max buys 39 more. How many shells does Max have?"


def test_a_config_file_gives_options_and_the_command_line_overrides_them(capsys: Captured, tmp_path: Path) -> None:
    path = tmp_path / "options.yaml"
    path.write_text("model: tiny-bd\nmax_tokens: 3\nignore_eos: true\nstop: [never, there]\nnum_pages: 100\n")
    assert main(["generate", QUESTION, "--json", "--config", str(path)]) == 0
    assert len(json.loads(capsys.readouterr().out)[0]["token_ids"]) == 3
    assert main(["generate", QUESTION, "--json", "--config", str(path), "--max_tokens", "5"]) == 0
    assert len(json.loads(capsys.readouterr().out)[0]["token_ids"]) == 5
    path.write_text("max_token: 3\n")
    assert "max_token" in failure(["generate", QUESTION, "--config", str(path)], capsys)


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


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_help_teaches_with_examples(command: str, capsys: Captured) -> None:
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    assert stop.value.code == 0
    out = capsys.readouterr().out
    assert f"examples:\n  dlstep {command}" in out

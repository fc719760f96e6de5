"""The command `dlstep`: config files, wrong requests, and help."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from dlstep.cli import main
from dlstep.cli.main import COMMANDS, parsed

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


def test_without_arguments_five_things_are_listed_each_with_a_command_that_can_be_given(capsys: Captured) -> None:
    assert main([]) == 0
    shown = capsys.readouterr()
    assert shown.err == "" and max(map(len, shown.out.splitlines())) <= 80
    lines = [shlex.split(line) for line in shown.out.replace("\\\n", "").splitlines() if line.startswith("  dlstep ")]
    assert len(lines) == len({line[1] for line in lines}) == 5
    for _, *arguments in lines:
        parsed(arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nonsense"], "dlstep has no command 'nonsense': `dlstep --help` lists all"),
        (["genrate"], "dlstep has no command 'genrate': did you mean generate?"),
        (["bench", "x"], "dlstep has no command 'bench x': did you mean bench decode?"),
        (["models", "chek"], "dlstep has no command 'models chek': did you mean models check?"),
        (["--print_config"], "unrecognized arguments: --print_config"),
        (["generate", "a", "--nonsense", "1"], "unrecognized arguments: --nonsense"),
        (["generate", "a", "--steps", "32"], "--steps 32: here it is --rule='quota' with steps_per_block"),
        (["generate", "a", "--mem-fraction-static", "1"], "here it is --gpu_memory_utilization"),
        (["generate", "a", "--max-tokens=0"], "error: --max_tokens: must be at least 1, got 0"),
        (["generate", "a", "--steps_per_block", "3"], "give one of them as well, as --rule quota"),
        (["generate", "a", "--rule", "early_commit"], "it needs a canvas, as of decoding_strategy='dual_cache'"),
        (["generate", "a", "--temperature", "x"], "--temperature: must be a number, got 'x'"),
        (["generate", "a", "--ignore_eos", "maybe"], "--ignore_eos: must be True or False, got 'maybe'"),
        (["generate", "a", "--block_size", "big"], "--block_size: must be a whole number of 64 bits, got 'big'"),
        (
            ["generate", "a", "--stop_token_ids", "[1,x]"],
            "each a whole number of 64 bits, got [1, 'x']",
        ),
        (["generate", "a", "--seed", ""], "--seed: must be a whole number of 64 bits or None, got ''"),
        (
            ["generate", "a", "--config", "{stop: 7}"],
            "--stop: must be a list of items that are each a text that UTF-8 can hold, got [7]",
        ),
        (["generate", "a", "--config", "{1: 2}"], "--config: `dlstep generate` has no option 1"),
        (["generate", "a", "--config", "{config: a.yaml}"], "--config: `dlstep generate` has no option 'config'"),
        (["models", "check", "--json"], "dlstep models check needs a path"),
        (["generate", "a", "--sampling_mode", "edits"], "sampling_mode: must be one of 'naive', 'edit'"),
        (["replay", "/nonsense.jsonl"], "/nonsense.jsonl"),
    ],
)
def test_a_wrong_request_is_one_line_and_exits_with_two(arguments: list[str], message: str, capsys: Captured) -> None:
    assert message in failure(arguments, capsys)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_teaches_with_examples_in_80_columns(command: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as stop:
        main([*command.split(), "--help"])
    assert stop.value.code == 0
    out = capsys.readouterr().out
    assert f"examples:\n  dlstep {command}" in out
    assert not [line for line in out.splitlines() if len(line) > 80]
    assert not re.search(r"\bNone\b", out), "YAML and the command line have `null`"


@pytest.mark.parametrize(
    "arguments", [[], ["--help"], ["--version"], *([command, "--help"] for command in ("demo", "doctor", "generate"))], ids=str
)
def test_help_and_version_import_no_array_library(arguments: list[str]) -> None:
    allowed = ("numpy",) if arguments[:1] == ["demo"] else ()
    code = f"""
import sys
from dlstep.cli import main
try:
    main({arguments!r})
except SystemExit:
    pass
assert not {{"torch", "numpy", "transformers"}} - {{*{allowed!r}}} & sys.modules.keys()
"""
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)

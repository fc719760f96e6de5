"""The command `dlstep`: config files, wrong requests, and help."""

import json
import re
import shlex
import subprocess
import sys

import pytest

from dlstep.cli import main
from dlstep.cli.main import COMMANDS, parsed


def test_a_config_file_gives_options_and_the_command_line_overrides_them(printed, tmp_path):
    path = tmp_path / "options.yaml"
    path.write_text("model: tiny-bd\nmax_tokens: 3\nignore_eos: true\nstop: [never, there]\nnum_pages: 100\n")
    for options, length in (("", 3), ("--max_tokens 5", 5)):
        (row,) = json.loads(printed(f"generate 'Max has 53 shells.' --json --config {path} {options}"))
        assert len(row["token_ids"]) == length


def test_without_arguments_five_things_are_listed_each_with_a_command_that_can_be_given(capsys):
    assert main([]) == 0
    shown = capsys.readouterr()
    assert shown.err == "" and max(map(len, shown.out.splitlines())) <= 80
    lines = [shlex.split(line) for line in shown.out.replace("\\\n", "").splitlines() if line.startswith("  dlstep ")]
    assert len(lines) == len({line[1] for line in lines}) == 5
    for _, *arguments in lines:
        parsed(arguments)


@pytest.mark.parametrize(
    "line, message",
    [
        ("nonsense", "dlstep has no command 'nonsense': `dlstep --help` lists all"),
        ("genrate", "dlstep has no command 'genrate': did you mean generate?"),
        ("models chek", "dlstep has no command 'models chek': did you mean models check?"),
        ("--print_config", "unrecognized arguments: --print_config"),
        ("generate a --nonsense 1", "unrecognized arguments: --nonsense"),
        ("generate a --steps 32", "here it is --rule='quota'"),
        ("generate a --mem-fraction-static 1", "here it is --gpu_memory_utilization"),
        ("generate a --config '{1: 2}'", "--config: `dlstep generate` has no option 1"),
        ("generate a --config '{config: a.yaml}'", "--config: `dlstep generate` has no option 'config'"),
        ("generate a --config '{stop: 7}'", "error: --stop: "),
        ("generate a --ignore_eos maybe", "error: --ignore_eos: "),
        ("generate a --block_size big", "error: --block_size: "),
        ("generate a --steps_per_block 3", "error: --steps_per_block: "),
        ("generate a --rule early_commit", "error: --decoding_strategy: "),
        ("generate a --max_num_seqs 4", "unrecognized arguments: --max_num_seqs 4: here it is --max_num_reqs"),
        ("generate a --trust-remote-code true", ": leave it out, code of checkpoints is never run"),
        ("generate a --decoding_strategy dual_cache --cache all", "error: --cache: "),
        ("generate a --decoding_strategy dmax --rule quota", "error: --rule: "),
        ("models check --json", "dlstep models check needs PATH"),
        ("replay /nonsense.jsonl", "/nonsense.jsonl"),
    ],
)
def test_a_wrong_request_is_one_line_and_exits_with_two(line, message, failure):
    assert message in failure(line)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_teaches_with_examples_in_80_columns(command, capsys, monkeypatch):
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
def test_help_and_version_import_no_array_library(arguments):
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

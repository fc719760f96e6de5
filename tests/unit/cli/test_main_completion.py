"""Scripts for completion by shells, which know every command and option."""

import shutil
import subprocess
from contextlib import redirect_stdout
from io import StringIO

import pytest

from dlstep import rules, strategies
from dlstep.cli import main
from dlstep.cli.main import COMMANDS

pytest.importorskip("shtab", reason="the extra dlstep[completion] is not installed")
CHECKS = {"bash": ["-n"], "zsh": ["-n"], "fish": ["--no-execute"]}


@pytest.fixture(scope="module")
def script():
    """The script for bash."""
    with redirect_stdout(StringIO()) as out:
        main(["--print_completion", "bash"])
    return out.getvalue()


@pytest.mark.parametrize("shell", CHECKS)
def test_the_script_is_one_of_the_shell(shell, tmp_path, capsys):
    assert main(["--print_completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(word in script for command in COMMANDS for word in command.split())
    for word in ("--decoding_strategy", "--max_tokens", *rules.own(), *strategies.own()):
        assert word.removeprefix("--") in script, word
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed: its syntax is not checked")
    path = tmp_path / "script"
    path.write_text(script)
    subprocess.run([shell, *CHECKS[shell], str(path)], check=True)


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize(
    "line, found",
    [
        ("dlstep gen", "generate"),
        ("dlstep generate --decoding_str", "--decoding_strategy"),
        ("dlstep generate --rule thr", "threshold"),
        ("dlstep models che", "check"),
        ("dlstep demo --js", "--json"),
    ],
)
def test_bash_completes_commands_options_and_values(line, found, script):
    last = len(line.split()) - 1
    call = f"COMP_WORDS=({line}); COMP_CWORD={last}; _shtab_dlstep; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    done = subprocess.run(["bash", "-c", f"{script}\n{call}"], check=True, capture_output=True, text=True)
    assert {word.strip() for word in done.stdout.splitlines()} == {found}

"""The command as a process of its own: wrong requests and closed pipes."""

import os
import subprocess
import sys

import pytest

from dlstep.cli import main

DLSTEP = [sys.executable, "-c", "from dlstep.cli import main; raise SystemExit(main())"]


def run(*arguments, **options):
    """The command with these arguments; `options` are environment variables."""
    environment = {**os.environ, "COLUMNS": "80", **options}
    return subprocess.run([*DLSTEP, *arguments], capture_output=True, text=True, check=False, timeout=900, env=environment)


@pytest.mark.parametrize(
    "field, arguments",
    [
        ("device", ["--device", "xyz"]),
        ("num_pages", ["--num_pages", "2000000000", "--page_size", "2000000000"]),
    ],
)
def test_device_and_sizes_are_checked_before_weights_load(field, arguments, capsys, monkeypatch):
    monkeypatch.setattr("dlstep.models.load_checkpoint", None)
    assert main(["generate", "a", *arguments]) == 2
    assert f"error: --{field}: " in capsys.readouterr().err


CLOSED = {
    "a table": ["strategies"],
    "json": ["strategies", "--json"],
    "help": ["generate", "--help"],
    "an answer": ["generate", "a prompt", "--max_tokens", "4"],
    "the version": ["--version"],
}


@pytest.mark.skipif(sys.platform == "win32", reason="pipes of Windows are closed in another way")
@pytest.mark.parametrize("case", CLOSED)
def test_a_closed_pipe_is_silent(case):
    """As `dlstep ... | head -0`: the reader is gone before anything is written."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [*DLSTEP, *CLOSED[case]], stdout=writer, stderr=subprocess.PIPE, text=True, check=False, timeout=900
        )
    finally:
        os.close(writer)
    assert done.returncode in (0, 141)  # the parser of options itself ignores that nobody reads its help
    assert "ipe" not in done.stderr and "Traceback" not in done.stderr and "Exception" not in done.stderr
    if case != "an answer":
        assert done.stderr == ""


@pytest.mark.skipif(sys.platform == "win32", reason="pipes of Windows are closed in another way")
def test_errors_that_nobody_reads_are_silent_as_well():
    reader, writer = os.pipe()
    os.close(reader)
    try:
        code = subprocess.run([*DLSTEP, "nonsense"], stdout=writer, stderr=writer, check=False, timeout=900).returncode
    finally:
        os.close(writer)
    assert code == 141

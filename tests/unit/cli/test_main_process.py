"""The command as a process of its own: wrong requests and closed pipes."""

import os
import shlex
import subprocess
import sys

import pytest

DLSTEP = [sys.executable, "-c", "from dlstep.cli import main; raise SystemExit(main())"]


def run(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE):
    """A command line in a process of its own, to its end."""
    return subprocess.run([*DLSTEP, *shlex.split(line)], stdout=stdout, stderr=stderr, text=True, check=False, timeout=900)


@pytest.mark.parametrize(
    "field, options", [("device", "--device xyz"), ("num_pages", "--num_pages 2000000000 --page_size 2000000000")]
)
def test_device_and_sizes_are_checked_before_weights_load(field, options, failure, monkeypatch):
    monkeypatch.setattr("dlstep.models.load_checkpoint", None)
    assert f"error: --{field}: " in failure(f"generate a {options}")


@pytest.fixture
def closed():
    """A pipe whose reader is gone before anything is written, as in `dlstep ... | head -0`."""
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


@pytest.mark.full
@pytest.mark.skipif(sys.platform == "win32", reason="pipes of Windows are closed in another way")
@pytest.mark.parametrize(
    "line", ["strategies", "strategies --json", "generate --help", "generate 'a prompt' --max_tokens 4", "--version"]
)
def test_a_closed_pipe_is_silent(line, closed):
    done = run(line, stdout=closed)
    assert done.returncode in (0, 141)  # the parser of options itself ignores that nobody reads its help
    assert "ipe" not in done.stderr and "Traceback" not in done.stderr and "Exception" not in done.stderr
    assert "prompt" in line or not done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="pipes of Windows are closed in another way")
def test_errors_that_nobody_reads_are_silent_as_well(closed):
    assert run("nonsense", stdout=closed, stderr=closed).returncode == 141

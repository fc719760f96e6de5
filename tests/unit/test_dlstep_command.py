"""Ctrl-C ends the console script quietly, also while modules are imported."""

import os
import pty
import subprocess
import sys

import pytest

# Sends SIGINT at the import of the module that the first argument names, in whatever thread that happens.
CODE = """
import os, signal, sys
module = sys.argv.pop(1)
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
from dlstep_command import main
raise SystemExit(main())
"""


def run(module, *arguments):
    """The exit code and the output on a terminal of a command that is interrupted when it imports `module`."""
    ours, its = pty.openpty()
    command = [sys.executable, "-c", CODE, module, *arguments]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "24"}
    with subprocess.Popen(command, stdin=its, stdout=its, stderr=its, env=environment, start_new_session=True) as process:
        os.close(its)
        parts = []
        while True:
            try:
                parts.append(os.read(ours, 1 << 16))
            except OSError:  # the terminal is closed
                break
            if not parts[-1]:
                break
    os.close(ours)
    return process.returncode, b"".join(parts).decode()


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such terminals on Windows")
@pytest.mark.parametrize(
    "module, arguments",
    [
        ("dlstep.core.state", ["--version"]),
        ("torch._C", ["generate", "a prompt"]),
        ("torch", ["demo"]),
    ],
)
def test_an_interrupt_during_an_import_is_quiet(module, arguments):
    code, out = run(module, *arguments)
    assert code == 130, out
    assert "Traceback" not in out and "Error" not in out and "Exception" not in out
    assert out.rfind("\x1b[?25h") >= out.rfind("\x1b[?25l"), "the cursor is shown"

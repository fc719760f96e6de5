"""The sandbox of programs that a model wrote."""

import pytest

from dlstep.core import DlstepError
from dlstep.evaluate import programs
from dlstep.evaluate.programs import Programs


@pytest.mark.parametrize(
    "program, passes",
    [
        ("assert sum([1, 2]) == 3", True),
        ("assert sum([1, 2]) == 4", False),
        ("open('/tmp/a', 'w').write('1'); assert open('/tmp/a').read() == '1'", True),
        ("def f(:", False),
        ("exit(0)", False),
        ("import os; os._exit(0)", False),
        ("import os; os.kill(0, 9)", False),
        ("bytearray(2 << 30)", False),
        ("open('/tmp/large', 'wb').write(bytes(1 << 27))", False),
        ("open('/usr/a', 'w')", False),
        ("open('/etc/passwd')", False),
        ("import socket; socket.create_connection(('127.0.0.1', 22))", False),
        ("import socket; socket.getaddrinfo('localhost.localdomain', 80)", False),
        ("print('{}'); import sys; sys.stdin.read()", True),
    ],
)
def test_a_program_passes_if_it_ends_without_an_exception(sandboxed, program, passes):
    assert sandboxed.passes(program) is passes
    assert sandboxed.passes("pass"), "the next program runs"


def test_a_program_that_does_not_end_is_stopped(monkeypatch, sandboxed):
    monkeypatch.setattr(programs, "SECONDS", 0.5)
    own = Programs()
    assert not own.passes("while True: pass")
    assert own.passes("pass")


def test_no_file_outside_is_seen(sandboxed, tmp_path):
    (tmp_path / "secret").write_text("1")
    assert not sandboxed.passes(f"open({str(tmp_path / 'secret')!r})")
    unsafe = Programs()
    unsafe.unsafe = True
    assert unsafe.passes(f"open({str(tmp_path / 'secret')!r})")


def test_pass_at_1_is_the_share_of_programs_that_pass(sandboxed):
    candidates = [["def f(n): return 2 * n", "def f(n): return 1"], ["def f(n): return n * n"] * 2]
    figures, verdicts = sandboxed.compute(["assert f(2) == 4", "assert f(2) == 4"], candidates)
    assert figures == {"pass@1": 0.75} and verdicts == {0: [True, False], 1: [True, True]}


def test_without_bubblewrap_programs_are_refused_with_the_option_that_runs_them(monkeypatch):
    monkeypatch.setattr(programs.shutil, "which", lambda name: None)
    with pytest.raises(DlstepError, match=r"bubblewrap is not installed: install .* or give --confirm_run_unsafe_code true"):
        Programs().check()

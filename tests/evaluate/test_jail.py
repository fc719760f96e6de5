"""Hostile programs harm nothing: each is contained, and the jail runs the next program."""

import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dlstep.core import DlstepError
from dlstep.evaluate import jail as jails
from dlstep.evaluate.jail import WAYS, Jail, Limits, find_jail

SAY = "raise type({0}, (Exception,), {{}})()"  # programs have no other way to say something
FLOOD = f"""
import os, time
made = 0
for _ in range(32):
    try:
        process = os.fork()
    except OSError:
        break
    if process == 0:
        time.sleep(60)
    made += 1
{SAY.format("f'made_{made}'")}
"""
NETWORK = """
import socket
for address in (("127.0.0.1", {port}), ("10.0.0.1", 80), ("1.1.1.1", 53)):
    try:
        socket.create_connection(address, 1).close()
    except OSError:
        continue
    raise ConnectionError
"""
READ = """
import os
for path in {paths}:
    try:
        os.listdir(path) if os.path.isdir(path) else open(path).read()
    except OSError:
        continue
    raise RuntimeError(path)
"""
WRITE = """
import os
for folder in ("/", "/usr", "/usr/lib", "/dev", "/dev/shm", {outside!r}):
    try:
        open(folder + "/{name}", "w").close()
    except OSError:
        continue
    raise RuntimeError(folder)
open("/tmp/{name}", "w").write("a")
"""
LOOP = "while True: pass"
INSIDE = Path(jails.__file__).with_name("_jailed.py")
HELD_BY_NO_PROCESS = """
import ctypes
libc = ctypes.CDLL(None)
assert libc.shmget(0, ctypes.c_size_t(1 << 20), 0o1600) == -1, "memory that stays when it is let go"
assert libc.msgget(0, 0o1600) == -1, "messages"
assert libc.memfd_create(b"held", 0) == -1, "a file in memory outside of /tmp"
"""
NAMESPACES = """
import ctypes, signal
libc = ctypes.CDLL(None)
stack = ctypes.create_string_buffer(1 << 16)
begin = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(lambda nothing: 0)
for user in (1 << 28, 1 << 28 | 1 << 17):
    assert libc.unshare(user) == -1
    assert libc.clone(begin, ctypes.c_void_p(ctypes.addressof(stack) + (1 << 16)), user | signal.SIGCHLD, None) == -1
"""
ORDINARY = """
import asyncio, os, subprocess, tempfile, threading
thread = threading.Thread(target=print)
thread.start()
thread.join()
subprocess.run(["/bin/true"], check=True)
asyncio.run(asyncio.sleep(0.01))
with tempfile.TemporaryDirectory() as folder:
    open(folder + "/a", "w").write("a")
open("/dev/null", "w").write("a")
if os.fork():
    os.wait()
"""
KILL = """
import os, signal
for process in (1, {pid}):
    for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGINT):
        try:
            os.kill(process, number)
        except OSError:
            pass
"""


@pytest.fixture(params=list(WAYS), scope="module")
def held(request: pytest.FixtureRequest) -> Jail:
    """A jail of each kind, where it can be had."""
    try:
        return Jail(request.param, Limits(seconds=2.0))
    except ValueError as error:
        pytest.skip(str(error))


def test_a_program_passes_or_says_what_it_raised(held: Jail) -> None:
    assert held.run(["a = 1", "import dataclasses\nassert a == 1"]) == "passed"
    assert held.run(["assert False"]) == "AssertionError"
    assert held.run(["raise SystemExit"]) == "SystemExit"
    assert held.run(["import os; os._exit(0)"]) == "ended early, code 0"
    assert held.run(["import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"]) == "signal 11"


def test_what_depends_on_the_order_of_sets_is_judged_alike(held: Jail) -> None:
    assert held.run([SAY.format("repr(set('abcdefgh'))")]) == held.run([SAY.format("repr(set('abcdefgh'))")])


def test_a_flood_of_processes_is_stopped(held: Jail) -> None:
    made = held.run([FLOOD])
    assert made.startswith("made_") and int(made.removeprefix("made_")) < held.limits.processes
    assert held.run(["pass"]) == "passed"


@pytest.mark.parametrize("program", [LOOP, "import time; time.sleep(60)", f"import os\nif os.fork() == 0:\n    {LOOP}"])
def test_an_endless_loop_ends(held: Jail, program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mark = f"# {secrets.token_hex(16)}"  # tests beside this one have jails of their own
    (tmp_path / "_jailed.py").write_text(f"{INSIDE.read_text()}{mark}")
    monkeypatch.setattr(jails, "files", {"dlstep.evaluate": tmp_path}.get)  # where the text is looked up
    begin = time.monotonic()
    assert held.run([program]) == ("passed" if "fork" in program else "timeout")
    assert time.monotonic() - begin < held.limits.seconds + jails.START
    assert not [name for name in os.listdir("/proc") if name.isdigit() and marked(name, mark)], "no process is left"


def marked(process: str, mark: str) -> bool:
    """Whether a process runs a text with a mark in it."""
    try:
        return mark.encode() in Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return False


def test_the_clock_ends_a_program_before_its_processor_time_does(held: Jail) -> None:
    says = SAY.format("'_'.join(map(str, ('limits', *resource.getrlimit(resource.RLIMIT_CPU))))")
    _, first, last = held.run([f"import resource\n{says}"]).split("_")
    assert held.limits.seconds + 1 <= int(first) < int(last), "a loop is a timeout, and never signal 9"


def test_ten_gigabytes_are_refused(held: Jail) -> None:
    assert held.run(["held = bytearray(10 << 30)"]) == "MemoryError"
    assert held.run(["pass"]) == "passed"


def test_nothing_outside_is_written(held: Jail, tmp_path: Path) -> None:
    assert held.run([WRITE.format(outside=str(tmp_path), name="dlstep-evil")]) == "passed"
    assert not list(tmp_path.iterdir()) and not Path("/tmp/dlstep-evil").exists()
    assert held.run(["assert not __import__('os').path.exists('/tmp/dlstep-evil')"]) == "passed", "nothing stays for the next"


def test_a_file_is_not_larger_than_allowed(held: Jail) -> None:
    program = "file = open('/tmp/large', 'wb')\nfor _ in range(100): file.write(bytes(1 << 20)); file.flush()"
    assert held.run([program]) == "OSError"


def test_there_is_no_network(held: Jail) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        assert held.run([NETWORK.format(port=server.getsockname()[1])]) == "passed"


def test_what_is_not_pythons_is_not_read(held: Jail, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("42")
    paths = [str(tmp_path / "secret"), str(Path(__file__).parent), "/etc/shadow", "/proc/1/environ"]
    assert held.run([READ.format(paths=paths)]) == "passed"


def test_other_processes_are_out_of_reach(held: Jail) -> None:
    assert held.run([KILL.format(pid=os.getpid())]) == "passed"


def test_memory_that_no_limit_of_a_process_counts_is_refused(held: Jail) -> None:
    assert held.run([HELD_BY_NO_PROCESS]) == "passed"


def test_a_program_makes_no_namespaces(held: Jail) -> None:
    assert held.run([NAMESPACES]) == "passed"


def test_threads_processes_and_files_of_ordinary_programs_pass(held: Jail) -> None:
    assert held.run([ORDINARY]) == "passed"


def test_programs_of_a_user_who_is_not_root_are_held_as_well(held: Jail) -> None:
    if os.geteuid() != 0:
        pytest.skip("all other tests are of a user who is not root")
    script = f"""
import json, sys
from dlstep.evaluate import jail
if jail.__file__ != {jails.__file__!r}:
    sys.exit("another dlstep: ModuleNotFoundError")
held = jail.Jail({held.way!r}, jail.Limits(seconds=2.0))
print(json.dumps([held.run([program]) for program in json.load(sys.stdin)]))
"""
    writes, kills = WRITE.format(outside="/var/tmp", name="dlstep-evil"), KILL.format(pid=os.getpid())
    programs = json.dumps([writes, kills, HELD_BY_NO_PROCESS, NAMESPACES, ORDINARY, "assert False"])
    alone = [shutil.which("setpriv") or "setpriv", "--reuid", "1023", "--regid", "1023", "--clear-groups", sys.executable, "-B"]
    told = subprocess.run([*alone, "-c", script], check=False, input=programs, capture_output=True, text=True, cwd="/")
    if any(word in told.stderr for word in ("Permission", "ModuleNotFoundError", "makes no jail here")):
        pytest.skip(f"only root can read this project or make jails here: {told.stderr[-200:]}")
    assert json.loads(told.stdout) == ["passed"] * 5 + ["AssertionError"], told.stderr


def test_where_there_is_no_jail_a_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(name: str) -> None:
        del name

    monkeypatch.setattr(shutil, "which", nothing)
    with pytest.raises(DlstepError, match=r"--run_code needs a way to contain programs.*: bwrap is not installed"):
        find_jail()


def test_a_jail_that_does_not_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    broken: Callable[[str, Limits], list[str]] = lambda root, limits: ["--no-such-option"]  # noqa: E731
    monkeypatch.setitem(WAYS, "unshare", broken)
    with pytest.raises(ValueError, match="unshare makes no jail here" if shutil.which("unshare") else "not installed"):
        Jail("unshare")


def test_a_jail_without_libseccomp_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "_jailed.py").write_text(INSIDE.read_text().replace("libseccomp.so.2", "libseccomp.so.none"))
    monkeypatch.setattr(jails, "files", {"dlstep.evaluate": tmp_path}.get)
    with pytest.raises(ValueError, match="libseccomp is not installed" if shutil.which("unshare") else "not installed"):
        Jail("unshare")

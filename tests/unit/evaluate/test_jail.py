"""Hostile programs harm nothing: each is contained, for root and for other users, and honest ones run."""

import json
import os
import random
import re
import shutil
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from dlstep.core import DlstepError
from dlstep.evaluate import jail as jails, system_calls
from dlstep.evaluate.jail import Jail, JailLimits, find_jail, parent_of_groups

from .attacks import all_attacks

ROOT = Path(__file__).parents[3]
SAY = "raise type({0}, (Exception,), {{}})()"  # programs have no other way to say something
SHARE = 12  # one of so many attacks is tried by `make test`, and these; `make stress` tries all
ALWAYS = """memory: one block; memory: shmget(0, 1 << 20, 0o1600); keyrings: keyctl(11, KEY, None, 0); processes: fork
namespaces: clone(0x10000000 | 17, None, None, None, None); files: written elsewhere; files: many empty ones; network: TCP
network: pairs of other kinds; forgery: json is replaced; forgery: an exception called passed; forgery: the end by sys.exit
forgery: words on descriptors; forgery: a child goes on; time: a sleep""".replace("\n", "; ")
EVERY = pytest.mark.parametrize("every", [SHARE, pytest.param(1, marks=pytest.mark.stress)])
ORDINARY = """
import asyncio, ctypes, decimal, multiprocessing, os, queue, random, re, shutil, sqlite3, subprocess, tempfile, threading, time
thread = threading.Thread(target=print)
thread.start()
thread.join()
subprocess.run(["/bin/true"], check=True)
assert subprocess.run("echo a | cat", shell=True, capture_output=True, text=True).stdout == "a\\n"
asyncio.run(asyncio.sleep(0.01))
assert asyncio.run(asyncio.to_thread(int, "3")) == 3
with tempfile.TemporaryDirectory() as folder:
    open(folder + "/a", "w").write("a")
    shutil.copytree(folder, folder + "2")
open("/dev/null", "w").write("a")
receiver, sender = multiprocessing.Pipe()
process = multiprocessing.get_context("fork").Process(target=sender.send, args=("a",))
process.start()
assert receiver.recv() == "a"
process.join()
assert sqlite3.connect(":memory:").execute("select 1").fetchone() == (1,)
assert time.localtime().tm_year > 2000 and random.SystemRandom().random() < 1 and os.cpu_count()
assert os.environ["HOME"] == "/tmp" == os.getcwd()
type, Exception, json, name = 3, 4, 5, 6  # its own names are no concern of what runs it
"""


def ordinary_user() -> list[str]:
    """Arguments in front of a command that runs it as a user with no rights, who can look into the folders of Python."""
    prefix = Path(sys.base_prefix).resolve()
    around = [each for each in reversed(prefix.parents) if not each.stat().st_mode & stat.S_IXOTH]
    shown = ["--perms", "0755", "--tmpfs", str(around[0]), "--ro-bind", str(prefix), str(prefix)] if around else []
    opened = [part for each in around[1:] for part in ("--perms", "0755", "--dir", str(each))]
    user = str(200_000 + random.randrange(1 << 20))
    rights = ["--reuid", user, "--regid", user, "--clear-groups", "--bounding-set=-all", "--inh-caps=-all"]
    return ["bwrap", "--dev-bind", "/", "/", *shown[:4], *opened, *shown[4:], "--cap-add", "ALL", "--", "setpriv", *rights]


def run_as(user: list[str], *command: str, given: str = "") -> subprocess.CompletedProcess[str]:
    """Run Python as a user, with this project's sources and tests."""
    paths = os.pathsep.join((str(Path(jails.__file__).parents[2]), str(ROOT)))
    environment = os.environ | {"PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [*user, sys.executable, *command], check=False, input=given, capture_output=True, text=True, env=environment
    )


@pytest.fixture(scope="module")
def held() -> Jail:
    """A jail with little time."""
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")
    return Jail(JailLimits(seconds=20.0))


@EVERY
@pytest.mark.parametrize("user", ["root", "other"])
def test_attacks_are_contained(held: Jail, user: str, every: int) -> None:
    if os.geteuid() != 0 and user == "root":
        pytest.skip("only root can try attacks as root")
    names = list(all_attacks())
    assert len(names) > 200
    chosen = {*ALWAYS.split("; "), *names[len(user) :: every]}  # other ones for each user
    tried = [name for name in names if every == 1 or name in chosen]
    assert chosen <= set(names)
    prefix = ordinary_user() if os.geteuid() == 0 and user == "other" else []
    process = run_as(prefix, "-m", "tests.unit.evaluate.attacking", given=json.dumps(tried))
    assert process.returncode == 0, process.stderr[-2000:]
    result = json.loads(process.stdout)
    assert (result["user"] == 0) == (user == "root") and result["jail"] == jails.__file__
    assert [name for name, _, _ in result["verdicts"]] == tried
    assert not [line for line in result["verdicts"] if line[2] != "contained"]
    assert not result["left"], "processes are left"


def test_a_program_passes_or_says_what_it_raised(held: Jail) -> None:
    assert held.run(["a = 1", "import dataclasses\nassert a == 1"]) == "passed"
    assert held.run(["assert False"]) == "AssertionError"
    assert held.run([]) == "passed"
    assert held.run(["a = 1", "assert a == 2", "a = 1"]) == "AssertionError"


def test_what_depends_on_the_order_of_sets_is_judged_alike(held: Jail) -> None:
    assert held.run([SAY.format("repr(set('abcdefgh'))")]) == held.run([SAY.format("repr(set('abcdefgh'))")])


def test_threads_processes_and_files_of_ordinary_programs_pass(held: Jail) -> None:
    assert held.run([ORDINARY, "assert name == 6"]) == "passed"


def test_the_clock_ends_a_program_before_its_processor_time_does(held: Jail) -> None:
    says = SAY.format("'_'.join(map(str, ('limits', *resource.getrlimit(resource.RLIMIT_CPU))))")
    _, first, last = held.run([f"import resource\n{says}"]).split("_")
    assert held.limits.seconds + 1 <= int(first) < int(last), "a loop is a timeout, and never signal 9"


def test_nothing_stays_for_the_next_program(held: Jail) -> None:
    assert held.run(["open('/tmp/evil', 'w').write('a')"]) == "passed"
    assert held.run(["assert not __import__('os').listdir('/tmp')"]) == "passed"


def test_even_with_sockets_a_program_has_no_network(held: Jail, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system_calls, "ALLOWED", system_calls.ALLOWED + " socket connect bind")
    jail = Jail()
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind(f"\0dlstep-{os.getpid()}")
        abstract.listen()
        reach = f"socket.create_connection(('127.0.0.1', {server.getsockname()[1]}), 1)"
        assert jail.run([f"import socket\n{reach}"]) in ("OSError", "ConnectionRefusedError")
        connect = f"socket.socket(socket.AF_UNIX).connect({abstract.getsockname()!r})"
        assert jail.run([f"import socket\n{connect}"]) == "ConnectionRefusedError"


def refusal(user: list[str]) -> str:
    """Return the message for a user who can make no jail."""
    process = run_as(
        user, "-c", "from dlstep.evaluate.jail import find_jail\ntry: find_jail()\nexcept Exception as error: print(error)"
    )
    assert process.returncode == 0, process.stderr[-2000:]
    return process.stdout.rstrip("\n")


def assert_one_sentence(text: str) -> None:
    """Check that a refusal is one sentence with a reason and a remedy."""
    assert re.fullmatch(
        r"--run_code [^\n]*cannot be made here \([^\n]+\): install bubblewrap and libseccomp \(`apt [^\n.]*", text
    ), text


@pytest.mark.parametrize("rights", ["--bounding-set=-all", "--bounding-set=-sys_admin", "--bounding-set=-setuid"])
def test_root_without_capabilities_is_refused(held: Jail, rights: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give capabilities up")
    assert_one_sentence(refusal(["setpriv", rights, "--inh-caps=-all"]))


@pytest.mark.parametrize("uid", ["0", "1000"])
def test_a_user_who_may_make_no_namespaces_is_refused(held: Jail, uid: str) -> None:
    alone = ["bwrap", "--unshare-user", "--uid", uid, "--disable-userns", "--dev-bind", "/", "/", "--"]
    assert_one_sentence(refusal(alone))


def test_where_bubblewrap_is_missing_a_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(DlstepError) as refused:
        find_jail()
    assert_one_sentence(str(refused.value))
    assert "bubblewrap is not installed" in str(refused.value)


def test_where_libseccomp_is_missing_a_sentence_says_so(held: Jail, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system_calls, "LIBRARY", "libseccomp.so.none")
    with pytest.raises(DlstepError) as refused:
        find_jail()
    assert_one_sentence(str(refused.value))
    assert "libseccomp is not installed" in str(refused.value)


@pytest.mark.parametrize(
    ("broken", "reason"),
    [("import sys; sys.exit('torn')", "torn"), ("print(1)", "not confined"), ("print('?')", "Expecting value")],
)
def test_a_jail_that_does_not_hold_is_refused(
    held: Jail, broken: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "_jailed.py").write_text(broken)
    monkeypatch.setattr(jails, "files", {"dlstep.evaluate": tmp_path}.get)  # where the text is looked up
    with pytest.raises(ValueError, match=reason):
        Jail()


def test_a_jail_that_fails_later_is_no_verdict(held: Jail, monkeypatch: pytest.MonkeyPatch) -> None:
    jail = Jail()
    monkeypatch.setattr(jail, "_command", ["/bin/false"])
    with pytest.raises(DlstepError, match="bubblewrap makes no jail here"):
        jail.run(["pass"])


def test_the_nearest_group_that_can_be_limited_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jails, "CONTROL_GROUPS", tmp_path)
    monkeypatch.setattr(jails, "OWN", tmp_path / "own")
    (tmp_path / "own").write_text("1:memory:/a\n0::/a/b/c\n")
    assert parent_of_groups() is None, "no groups of version 2"
    for path, controllers in (("", "memory pids"), ("a", "memory pids io"), ("a/b", "pids"), ("a/b/c", "")):
        (tmp_path / path).mkdir(exist_ok=True)
        (tmp_path / path / "cgroup.subtree_control").write_text(controllers + "\n")
        (tmp_path / path / "cgroup.procs").write_text("")
    assert parent_of_groups() == tmp_path / "a"
    (tmp_path / "a" / "cgroup.procs").unlink()
    assert parent_of_groups() == tmp_path
    (tmp_path / "own").write_text("1:memory:/a\n")
    assert parent_of_groups() is None, "groups of version 1 alone"


def test_all_processes_together_have_one_limit_of_memory(held: Jail) -> None:
    if (parent := parent_of_groups()) is None:
        pytest.skip("no control groups of version 2 can be made here, so each process has a limit of its own")
    jail = Jail(JailLimits(seconds=20.0, memory=1 << 28))
    take = "held = bytearray(b'a' * (100 << 20))"
    assert jail.run([take]) == "passed"
    many = f"import os, time\nfor _ in range(5):\n    if os.fork() == 0: break\n{take}\ntime.sleep(5)"
    assert jail.run([many]) in ("out of memory", "signal 9", "MemoryError")
    assert not list(parent.glob("dlstep-jail-*"))

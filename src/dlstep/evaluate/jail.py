"""Jails for programs that a model wrote: Linux namespaces made with bubblewrap, with limits.

A program in a jail has no network and sees no process outside. It can read the folders of the
system and of Python, and write to a small in-memory file system that is deleted with the jail. It
can only make the system calls of `system_calls`. This process watches the program and writes its
verdict from outside the jail. If no jail can be made, no program is run.
"""

import base64
import json
import os
import secrets
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from ..core import DlstepError
from .system_calls import compiled_filter

SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/sbin")  # read by every program
SPACES = "--unshare-pid --unshare-net --unshare-ipc --unshare-uts --unshare-cgroup-try --die-with-parent --new-session"
DEVICES = ("null", "zero", "random", "urandom")
FIRST_UID, MORE_UIDS = 1 << 30, 1 << 29  # unused ids: the kernel counts processes by user
# With a fixed hash seed, an answer that depends on the order of a set always gets the same verdict.
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8", "PYTHONHASHSEED": "0"}
# A jail has a control group (version 2) if possible: limits for all of its processes together.
CONTROL_GROUPS, OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
ENDING = 2.0  # seconds to wait until the killed processes have ended and their group can be removed
START = 30.0  # seconds that a jail may take before its program starts, on a busy machine
LONGEST = 4000  # bytes of a report
OTHER_PROCESSES = 3  # of bubblewrap and of the shell that joins a control group
REMEDY = (
    "install bubblewrap and libseccomp (`apt install bubblewrap libseccomp2` or `dnf install bubblewrap libseccomp`) and run "
    "as root with all capabilities or as a user who may make namespaces, or omit --run_code"
)
PASSED, TIMEOUT, FORGED = "passed", "timeout", "forged report"
# The last part must raise an exception whose random name is sent after the program's parts. It
# imports what it needs, so that it works for any globals of the program.
CONTROL = "raise __import__('builtins').type({!r}, (__import__('builtins').Exception,), {{}})"


@dataclass(frozen=True, slots=True)
class JailLimits:
    """Limits of one program; `memory` is per process, `files` for all files together, in bytes."""

    seconds: float = 10.0
    memory: int = 1 << 30
    processes: int = 8
    files: int = 1 << 26
    inodes: int = 1 << 12
    open_files: int = 64

    @property
    def by_name(self) -> dict[str, int]:
        """The limits of a process, by the names of `resource`; CPU time exceeds `seconds`."""
        return {
            "RLIMIT_CPU": int(self.seconds) + 2, "RLIMIT_AS": self.memory, "RLIMIT_NPROC": self.processes,
            "RLIMIT_FSIZE": self.files, "RLIMIT_NOFILE": self.open_files, "RLIMIT_CORE": 0,
        }  # fmt: skip


def python() -> tuple[str, str]:
    """Return the interpreter outside virtual environments, and the folder that it needs."""
    prefix = os.path.realpath(sys.base_prefix)
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return str(Path(prefix) / "bin" / name), prefix


def arguments(limits: JailLimits) -> list[str]:
    """Return the arguments of bubblewrap for this user, which precede a program's command."""
    # The process mounts its folder for files; as root, it then switches to a separate user id.
    user = ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"] if os.geteuid() == 0 else ["--unshare-user"]
    # Parent folders of Python and the devices; by default only their owner could read them.
    ways = [*reversed(Path(python()[1]).parents), Path("/dev")][1:]
    passed = [part for folder in ways for part in ("--perms", "0755", "--dir", str(folder))]
    shown = [part for folder in (*SYSTEM, python()[1]) for part in ("--ro-bind-try", folder, folder)]
    devices = [part for name in DEVICES for part in ("--dev-bind", f"/dev/{name}", f"/dev/{name}")]
    made = ["--perms", "1777", "--size", str(limits.files), "--tmpfs", "/tmp", "--remount-ro", "/", "--chdir", "/tmp", "--"]
    return [*user, "--cap-add", "CAP_SYS_ADMIN", *SPACES.split(), *passed, *shown, *devices, *made]


def parent_of_groups() -> Path | None:
    """Return the nearest parent group in which this process may make limited groups, or None.

    Root has such a group under systemd. Other users have one under their own service manager, for
    example with `systemd-run --user --scope`.
    """
    try:
        path = next(line for line in OWN.read_text().splitlines() if line.startswith("0::/")).removeprefix("0::/")
        own = CONTROL_GROUPS / path
        for group in (own, *own.parents):
            controllers = (group / "cgroup.subtree_control").read_text().split()
            writable = all(os.access(file, os.W_OK) for file in (group, group / "cgroup.procs"))
            if writable and {"memory", "pids"} <= set(controllers):
                return group
    except (OSError, StopIteration):  # past the root of all groups, or no groups of version 2
        pass
    return None


@contextmanager
def control_group(parent: Path | None, memory: int, processes: int) -> Iterator[Path | None]:
    """Yield a group whose processes share `memory` bytes, and kill them at the end.

    Yield None without a parent. Raises OSError if the group cannot be made or removed.
    """
    if parent is None:
        yield None
        return
    group = parent / f"dlstep-jail-{secrets.token_hex(8)}"
    group.mkdir()
    try:
        (group / "memory.max").write_text(str(memory))
        (group / "pids.max").write_text(str(processes))
        if (group / "memory.swap.max").exists():
            (group / "memory.swap.max").write_text("0")
        yield group
    finally:
        (group / "cgroup.kill").write_text("1")
        deadline = time.monotonic() + ENDING
        while True:
            try:
                group.rmdir()
                break
            except OSError:  # its processes are still ending
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.002)


class Jail:
    """A runner of programs, each in a new jail. Raises ValueError if no jail can be made."""

    def __init__(self, limits: JailLimits = JailLimits()) -> None:
        command = shutil.which("bwrap")
        if not sys.platform.startswith("linux") or command is None:
            raise ValueError("bubblewrap is not installed")
        self.limits = limits
        inside = files("dlstep.evaluate").joinpath("_jailed.py").read_text(encoding="utf-8")
        self._command = [command, *arguments(limits), python()[0], "-PsS", "-c", inside]
        self._job = {"files": limits.files, "inodes": limits.inodes, "limits": limits.by_name}
        self._job["filter"] = base64.b64encode(compiled_filter()).decode()
        for self._groups in dict.fromkeys((parent_of_groups(), None)):  # a group may not be usable
            try:
                verdict = self.run(["pass"])
                break
            except DlstepError as error:
                verdict = str(error)
        if verdict != PASSED:
            raise ValueError(verdict)

    def run(self, parts: list[str]) -> str:
        """Run the parts of a program in a new jail. Return how the program ended.

        The result is `passed`, the name of an exception, `timeout`, or what ended the program.
        Raises DlstepError if the jail itself fails.
        """
        limits = self.limits
        uid = FIRST_UID + secrets.randbelow(MORE_UIDS) if os.geteuid() == 0 else None
        most = limits.memory + limits.files, limits.processes + OTHER_PROCESSES
        with TemporaryFile() as errors:
            try:
                with control_group(self._groups, *most) as group, self._started(group, errors) as process:
                    try:
                        if ask(process, self._job | {"uid": uid}, time.monotonic() + START) is not None:
                            raise ValueError("the process is not confined")
                        return verdict_of(process, parts, limits.seconds, group)
                    finally:
                        process.kill()
            except (OSError, EOFError, ValueError) as error:
                errors.seek(0)
                message = " ".join(errors.read(LONGEST).decode(errors="replace").split())
                raise DlstepError(f"bubblewrap makes no jail here: {message or error}") from None

    def _started(self, group: Path | None, errors: IO[bytes]) -> subprocess.Popen[bytes]:
        """Start the process of a jail in its control group."""
        join = [] if group is None else ["/bin/sh", "-c", 'echo 0 > "$0" && exec "$@"', str(group / "cgroup.procs")]
        process = subprocess.Popen(
            [*join, *self._command], bufsize=0, env=ENVIRONMENT, cwd="/", start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
        )  # fmt: skip
        assert process.stdin is not None
        os.set_blocking(process.stdin.fileno(), False)
        return process


def verdict_of(process: subprocess.Popen[bytes], parts: list[str], seconds: float, group: Path | None) -> str:
    """Send the parts of a program and then the control, and return how the program ended."""
    deadline, name = time.monotonic() + seconds, secrets.token_hex(16)
    try:
        for part in parts:
            raised = ask(process, part, deadline)
            if isinstance(raised, str):  # a program may give its exceptions any name
                return raised if raised.isidentifier() and raised not in (PASSED, TIMEOUT) else f"exception {raised!r}"
            if raised is not None:
                return FORGED
        return PASSED if ask(process, CONTROL.format(name), deadline) == name else FORGED
    except TimeoutError:
        return TIMEOUT
    except ValueError:
        return FORGED
    except EOFError:
        code = process.wait()
    if group is not None and "oom_kill 0\n" not in (group / "memory.events").read_text():
        return "out of memory"
    number = code - 128  # bubblewrap reports a signal as 128 + number
    if number == signal.SIGXCPU:
        return TIMEOUT
    return f"signal {number}" if number in set(signal.Signals) else f"ended early, code {code}"


def ask(process: subprocess.Popen[bytes], question: object, deadline: float) -> object:
    """Send a line to the process in a jail and return its answer.

    Raises TimeoutError at the `deadline` of `time.monotonic`, EOFError if the jail ends, and
    ValueError for an answer that is no line of JSON or longer than `LONGEST`.
    """
    assert process.stdin is not None and process.stdout is not None
    to_jail, from_jail = process.stdin.fileno(), process.stdout.fileno()
    unsent, answer = json.dumps(question).encode() + b"\n", b""
    poll = select.poll()
    poll.register(to_jail, select.POLLOUT)
    poll.register(from_jail, select.POLLIN)
    while not answer.endswith(b"\n"):
        ready = dict(poll.poll(max(0.0, deadline - time.monotonic()) * 1000))
        if not ready:
            raise TimeoutError("the jail did not answer in time")
        if from_jail in ready:
            chunk = os.read(from_jail, LONGEST)
            answer += chunk
            if not chunk:
                raise EOFError("the jail ended too early")
            if len(answer) > LONGEST:
                raise ValueError("the report of the jail is too long")
        if to_jail in ready:
            try:
                unsent = unsent[os.write(to_jail, unsent) :]
            except BrokenPipeError:
                unsent = b""
            if not unsent:
                poll.unregister(to_jail)
    try:
        return json.loads(answer)
    except RecursionError:
        raise ValueError("the report of the jail is nested too deeply") from None


def find_jail(limits: JailLimits = JailLimits()) -> Jail:
    """Return a jail. Raises DlstepError with the reason and the remedy if none can be made."""
    try:
        return Jail(limits)
    except ValueError as error:
        raise DlstepError(f"--run_code needs a jail on Linux, which cannot be made here ({error}): {REMEDY}") from None

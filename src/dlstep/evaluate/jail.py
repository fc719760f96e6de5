"""Programs that a model wrote, run where they can harm nothing: in namespaces of Linux, made by bubblewrap, with limits.

A jail has no network, sees no process outside, reads the system's folders and Python's, and writes to a small file system in
memory that ends with it. It makes only the system calls of `system_calls`. What watches a program and writes its verdict is
this process, outside of the jail. Without a way to make a jail, nothing is run.
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
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from ..core import DlstepError
from .control_groups import control_group, out_of_memory, parent_of_groups
from .system_calls import compiled_filter

SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/sbin")  # read by every program
SPACES = "--unshare-pid --unshare-net --unshare-ipc --unshare-uts --unshare-cgroup-try --die-with-parent --new-session"
DEVICES = ("null", "zero", "random", "urandom")
FIRST_UID, MORE_UIDS = 1 << 30, 1 << 29  # user ids that nobody has, so that the kernel counts the processes of one jail alone
# Sets of strings have one order, so that an answer that depends on it is judged alike each time.
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8", "PYTHONHASHSEED": "0"}
START = 30.0  # seconds that a jail may take before its program starts, on a busy machine
LONGEST = 4000  # bytes of a report
OTHER_PROCESSES = 3  # of bubblewrap and of the shell that joins a control group, beside the program's
REMEDY = (
    "install bubblewrap and libseccomp (`apt install bubblewrap libseccomp2` or `dnf install bubblewrap libseccomp`), run as "
    "root with all capabilities or as a user who may make namespaces, or leave --run_code out"
)
PASSED, TIMEOUT, FORGED = "passed", "timeout", "forged report"
# The last part must fail by a name that is drawn only after the program has ended, and finds its names whatever a program's
# own globals are.
CONTROL = "raise __import__('builtins').type({!r}, (__import__('builtins').Exception,), {{}})"


@dataclass(frozen=True, slots=True)
class Limits:
    """Most of what one program may take; `memory` and `files` are bytes, of each process and of all files together."""

    seconds: float = 10.0
    memory: int = 1 << 30
    processes: int = 8
    files: int = 1 << 26
    inodes: int = 1 << 12
    open_files: int = 64

    @property
    def by_name(self) -> dict[str, int]:
        """The limits of a process, by the names of `resource`; that of its processor comes well after `seconds`."""
        return {
            "RLIMIT_CPU": int(self.seconds) + 2,
            "RLIMIT_AS": self.memory,
            "RLIMIT_NPROC": self.processes,
            "RLIMIT_FSIZE": self.files,
            "RLIMIT_NOFILE": self.open_files,
            "RLIMIT_CORE": 0,
        }


NO_LIMITS_CHANGED = Limits()


def python() -> tuple[str, str]:
    """The interpreter outside virtual environments, and the folder that it needs."""
    prefix = os.path.realpath(sys.base_prefix)
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return str(Path(prefix) / "bin" / name), prefix


def arguments(limits: Limits) -> list[str]:
    """Return the arguments of bubblewrap, as root and as any other user, in front of a program's command."""
    # The program's process mounts its folder for files; as root it then gives up root itself, to a user id of this jail alone.
    user = ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"] if os.geteuid() == 0 else ["--unshare-user"]
    # Folders on the way to Python and to devices, which only their owner could look into otherwise.
    ways = [*reversed(Path(python()[1]).parents), Path("/dev")][1:]
    passed = [part for folder in ways for part in ("--perms", "0755", "--dir", str(folder))]
    shown = [part for folder in (*SYSTEM, python()[1]) for part in ("--ro-bind-try", folder, folder)]
    devices = [part for name in DEVICES for part in ("--dev-bind", f"/dev/{name}", f"/dev/{name}")]
    made = ["--perms", "1777", "--size", str(limits.files), "--tmpfs", "/tmp", "--remount-ro", "/", "--chdir", "/tmp", "--"]
    return [*user, "--cap-add", "CAP_SYS_ADMIN", *SPACES.split(), *passed, *shown, *devices, *made]


class Jail:
    """Runs programs in jails, one for each. Raises ValueError where that cannot be had."""

    def __init__(self, limits: Limits = NO_LIMITS_CHANGED) -> None:
        command = shutil.which("bwrap")
        if not sys.platform.startswith("linux") or command is None:
            raise ValueError("bubblewrap is not installed")
        self.limits, self._groups = limits, parent_of_groups()
        inside = files("dlstep.evaluate").joinpath("_jailed.py").read_text(encoding="utf-8")
        self._command = [command, *arguments(limits), python()[0], "-PsS", "-c", inside]
        self._job = {"files": limits.files, "inodes": limits.inodes, "limits": limits.by_name}
        self._job["filter"] = base64.b64encode(compiled_filter()).decode()
        for self._groups in dict.fromkeys((parent_of_groups(), None)):  # a group that looks usable may not be
            try:
                found = self.run(["pass"])
                break
            except DlstepError as error:
                found = str(error)
        if found != PASSED:
            raise ValueError(found)

    def run(self, parts: list[str]) -> str:
        """Run the parts of a program one after the other in a new jail, and return how the program ended.

        The result is `passed`, the name of an exception, `timeout`, or what ended the program. Raises DlstepError if the jail
        itself fails.
        """
        limits = self.limits
        uid = FIRST_UID + secrets.randbelow(MORE_UIDS) if os.geteuid() == 0 else None
        with TemporaryFile() as complaint:
            try:
                most = limits.memory + limits.files, limits.processes + OTHER_PROCESSES
                with control_group(self._groups, *most) as group, self._started(group, complaint) as process:
                    try:
                        if ask(process, self._job | {"uid": uid}, time.monotonic() + START) is not None:
                            raise ValueError("the process is not confined")
                        return verdict_of(process, parts, limits.seconds, group)
                    finally:
                        process.kill()
            except (OSError, EOFError, ValueError) as error:
                raise DlstepError(f"bubblewrap makes no jail here: {read(complaint) or error}") from None

    def _started(self, group: Path | None, complaint: IO[bytes]) -> subprocess.Popen[bytes]:
        """Start the process of a jail in its control group."""
        join = [] if group is None else ["/bin/sh", "-c", 'echo 0 > "$0" && exec "$@"', str(group / "cgroup.procs")]
        process = subprocess.Popen(
            [*join, *self._command],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaint,
            env=ENVIRONMENT,
            cwd="/",
            start_new_session=True,
        )
        assert process.stdin is not None
        os.set_blocking(process.stdin.fileno(), False)
        return process


def verdict_of(process: subprocess.Popen[bytes], parts: list[str], seconds: float, group: Path | None) -> str:
    """Send the parts of a program and then the control, and return how the program ended."""
    deadline, name = time.monotonic() + seconds, secrets.token_hex(16)
    try:
        for part in parts:
            raised = ask(process, part, deadline)
            if isinstance(raised, str):  # a program may call its exceptions what it likes
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
    if out_of_memory(group):
        return "out of memory"
    number = code - 128  # as bubblewrap reports signals
    if number == signal.SIGXCPU:
        return TIMEOUT
    return f"signal {number}" if number in set(signal.Signals) else f"ended early, code {code}"


def ask(process: subprocess.Popen[bytes], question: object, deadline: float) -> object:
    """Send a line to the process in a jail and return its answer.

    Raises TimeoutError at the `deadline` of `time.monotonic`, EOFError if the jail ends, ValueError if the answer is no line of
    JSON, or longer than `LONGEST`.
    """
    assert process.stdin is not None and process.stdout is not None
    asked, told = process.stdin.fileno(), process.stdout.fileno()
    unsent, heard = json.dumps(question).encode() + b"\n", b""
    poll = select.poll()
    poll.register(asked, select.POLLOUT)
    poll.register(told, select.POLLIN)
    while not heard.endswith(b"\n"):
        ready = dict(poll.poll(max(0.0, deadline - time.monotonic()) * 1000))
        if not ready:
            raise TimeoutError("it takes too long")
        if told in ready:
            chunk = os.read(told, LONGEST)
            heard += chunk
            if not chunk:
                raise EOFError("it ends too early")
            if len(heard) > LONGEST:
                raise ValueError("its report is too long")
        if asked in ready:
            try:
                unsent = unsent[os.write(asked, unsent) :]
            except BrokenPipeError:
                unsent = b""
            if not unsent:
                poll.unregister(asked)
    try:
        return json.loads(heard)
    except RecursionError:
        raise ValueError("its report is nested too deeply") from None


def read(file: IO[bytes]) -> str:
    """Return the beginning of a file as text in one line."""
    file.seek(0)
    return " ".join(file.read(LONGEST).decode(errors="replace").split())


def find_jail(limits: Limits = NO_LIMITS_CHANGED) -> Jail:
    """Return a jail. Raises DlstepError with the reason and the remedy where there can be none."""
    try:
        return Jail(limits)
    except ValueError as error:
        raise DlstepError(f"--run_code needs a jail on Linux, which cannot be made here ({error}): {REMEDY}") from None

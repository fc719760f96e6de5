"""Programs that a model wrote, run where they can harm nothing: in namespaces of Linux of their own, with limits.

A jail has no network, sees no process outside, reads the system's folders and Python's, and writes to a small file system in
memory that ends with it. Without a way to make one, nothing is run.
"""

import json
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO

from ..core import DlstepError

SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/sbin")  # read by every program
DEVICES = ("null", "zero", "random", "urandom")
FIRST_UID, MORE_UIDS = 1 << 30, 1 << 29  # user ids that nobody has, so that the kernel counts the processes of one jail alone
# Sets of strings have one order, so that an answer that depends on it is judged alike each time.
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8", "PYTHONHASHSEED": "0"}
START = 10.0  # seconds beyond a program's own that a jail may take
LONGEST = 1000  # bytes of a verdict

# Arguments: a folder for the new root, bytes of its files, the prefix of Python, then the command.
UNSHARED = r"""
set -e
root=$1 size=$2 prefix=$3
shift 3
mount -t tmpfs -o size=1m,mode=755 jail "$root"
for folder in SYSTEM "$prefix"; do
    if [ -L "$folder" ]; then cp -P "$folder" "$root$folder"
    elif [ -d "$folder" ]; then
        mkdir -p "$root$folder"
        mount --bind "$folder" "$root$folder"
        mount -o remount,bind,ro,nosuid "$root$folder"
    fi
done
mkdir "$root/dev" "$root/tmp" "$root/out" "$root/proc"
for device in DEVICES; do
    : > "$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
mount -t tmpfs -o "size=$size,mode=1777,nosuid,nodev" jail "$root/tmp"
cd "$root"
mount -t proc proc "$root/proc"
pivot_root . out
umount -l /out
umount /proc
rmdir /out
mount -o remount,bind,ro /
cd /tmp
exec "$@"
""".replace("SYSTEM", " ".join(SYSTEM)).replace("DEVICES", " ".join(DEVICES))


@dataclass(frozen=True, slots=True)
class Limits:
    """Most of what one program may take; `memory` and `files` are bytes, of each process and of all files together."""

    seconds: float = 10.0
    memory: int = 1 << 30
    processes: int = 8
    files: int = 1 << 26
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


def unshared(root: str, limits: Limits) -> list[str]:
    """Arguments in front of a program's command, for `unshare` and `mount` of util-linux."""
    user: list[str] = []
    less = ["setpriv", "--no-new-privs"]
    if os.geteuid() != 0:  # who is root in a name space only could otherwise mount its folders anew, to write to them
        user, less = ["--user", "--map-root-user"], [*less, "--bounding-set", "-all", "--inh-caps", "-all"]
    spaces = ["--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "--kill-child"]
    return [*user, *spaces, "sh", "-c", UNSHARED, "sh", root, str(limits.files), python()[1], *less]


def bubblewrapped(root: str, limits: Limits) -> list[str]:
    """Arguments in front of a program's command, for bubblewrap."""
    del root
    # The first process of the jail gives up root itself, to a user id that only this jail has.
    user = ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"] if os.geteuid() == 0 else ["--unshare-user"]
    spaces = ["--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--die-with-parent", "--as-pid-1"]
    # Folders on the way to Python, which only their owner can look into unless it is said.
    passed = [part for folder in reversed(Path(python()[1]).parents) for part in ("--perms", "0755", "--dir", str(folder))][4:]
    shown = [part for folder in (*SYSTEM, python()[1]) for part in ("--ro-bind-try", folder, folder)]
    made = [
        "--dev",
        "/dev",
        "--remount-ro",
        "/dev",
        "--perms",
        "1777",
        "--size",
        str(limits.files),
        "--tmpfs",
        "/tmp",
        "--remount-ro",
        "/",
        "--chdir",
        "/tmp",
    ]
    return [*user, *spaces, *passed, *shown, *made, "--new-session", "--"]


WAYS: dict[str, Callable[[str, Limits], list[str]]] = {"bwrap": bubblewrapped, "unshare": unshared}


class Jail:
    """Runs programs, one at a time, by one of `WAYS`. Raises ValueError where that cannot be had."""

    def __init__(self, way: str, limits: Limits = NO_LIMITS_CHANGED) -> None:
        command = shutil.which(way)
        if not sys.platform.startswith("linux") or command is None:
            raise ValueError(f"{way} is not installed")
        self.way, self.limits, self._command = way, limits, command
        found = self.run(["pass"])
        if found != "passed":
            raise ValueError(f"{way} makes no jail here: {found}")

    def run(self, parts: list[str]) -> str:
        """How a program ends: `passed`, the name of an exception, `timeout`, or what ended it.

        Raises DlstepError if the jail itself fails.
        """
        uid = FIRST_UID + secrets.randbelow(MORE_UIDS) if os.geteuid() == 0 else None
        limits = self.limits
        job = {"parts": parts, "limits": limits.by_name, "uid": uid, "seconds": limits.seconds, "token": secrets.token_hex(16)}
        inside = [python()[0], "-PsS", "-c", files("dlstep.evaluate").joinpath("_jailed.py").read_text(encoding="utf-8")]
        with TemporaryDirectory(prefix="dlstep-jail-") as root, TemporaryFile() as told, TemporaryFile() as complaint:
            process = subprocess.Popen(
                [self._command, *WAYS[self.way](root, limits), *inside],
                stdin=subprocess.PIPE,
                stdout=told,
                stderr=complaint,
                env=ENVIRONMENT,
                cwd="/",
                start_new_session=True,
            )
            try:
                process.communicate(json.dumps(job).encode(), timeout=limits.seconds + START)
            except subprocess.TimeoutExpired:
                return "timeout"
            finally:
                process.kill()
                process.wait()
            verdict, words = (read(file) for file in (told, complaint))
        if process.returncode != 0 or not verdict:
            return f"no verdict, exit code {process.returncode}: {words}"
        return verdict


def read(file: IO[bytes]) -> str:
    """The beginning of a file as text in one line."""
    file.seek(0)
    return " ".join(file.read(LONGEST).decode(errors="replace").split())


def find_jail(limits: Limits = NO_LIMITS_CHANGED) -> Jail:
    """The first way that works here. Raises DlstepError with the reasons of all where none does."""
    reasons: list[str] = []
    for way in WAYS:
        try:
            return Jail(way, limits)
        except ValueError as error:
            reasons.append(str(error))
    raise DlstepError(
        f"--run_code needs a way to contain programs, and there is none here: {'; '.join(reasons)}. Install bubblewrap and "
        "libseccomp on a Linux that lets users make namespaces, or leave --run_code out"
    )

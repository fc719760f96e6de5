"""The lock on the folder of a run, so that two processes never write the same files."""

import errno
import json
import os
import socket
import warnings
from pathlib import Path
from typing import Any

from ..core import DlstepError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

LOCK = "lock"
HELD = (errno.EAGAIN, errno.EACCES)
NO_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK)  # errors of file systems without locks


class RunLock:
    """An exclusive lock on the folder of a run, held until `close` or until the process ends.

    The kernel holds the lock (`flock`), so `kill -9` also releases it, and a stopped process keeps
    it. The file is never deleted, or two processes could lock two different files of that name.

    Args:
        folder: the folder of the run; created if it does not exist.

    Raises:
        ValueError: another process holds the lock. The message names its pid and host.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / LOCK
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            self._lock()
        except BaseException:
            os.close(self._file)
            raise

    def _lock(self) -> None:
        if fcntl is None:
            return
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in HELD:
                raise ValueError(_refusal(self._path)) from error
            if error.errno not in NO_LOCKS:
                raise
            warnings.warn(
                f"the file system of {self._path} has no locks ({error.strerror}): make sure that no other process writes to "
                f"{self._path.parent}",
                stacklevel=3,
            )
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode() + b"\n", 0)

    def check(self) -> None:
        """Raise DlstepError if the folder was deleted or replaced, so that the lock is void."""
        try:
            same = os.path.samestat(os.fstat(self._file), self._path.stat())
        except FileNotFoundError:
            same = False
        if not same:
            raise DlstepError(
                f"{self._path.parent} was deleted or replaced while this process wrote to it, so its output is not written; "
                "run the same command again"
            )

    def close(self) -> None:
        """Release the lock."""
        os.close(self._file)


def check_free(folder: Path) -> None:
    """Raise ValueError if another process holds this folder's lock. Call before slow work."""
    if (folder / LOCK).exists():
        RunLock(folder).close()


def _refusal(path: Path) -> str:
    """Return the message for a lock that another process holds: who holds it and what to do."""
    holder = _holder(path)
    if holder is None:
        return f"{path.parent} is in use by another process: wait until it ends, or write to another output"
    pid, host = holder
    if host != socket.gethostname():
        return (
            f"{path.parent} is in use by process {pid} on {host}: wait until it ends, end it there, or write to another output"
        )
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return f"process {pid}, which wrote to {path.parent}, has ended, but a process that it started still runs: end that one"
    except PermissionError:
        pass
    return (
        f"{path.parent} is in use by process {pid}: wait until it ends, end it with `kill {pid}` (`kill -9 {pid}` if it is "
        "stopped) and run this command again, or write to another output"
    )


def _holder(path: Path) -> tuple[int, str] | None:
    """Return the pid and the host in a lock file; None while the holder is still writing them."""
    try:
        content: Any = json.loads(path.read_bytes())
        pid, host = content["pid"], content["host"]
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None
    return (pid, host) if isinstance(pid, int) and pid > 0 and isinstance(host, str) else None

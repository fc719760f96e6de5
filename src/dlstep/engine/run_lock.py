"""The lock on the folder of a run, so that two processes never write the same files."""

import os
from pathlib import Path

from filelock import FileLock, Timeout

from ..core import DlstepError

LOCK = "lock"


class RunLock:
    """An exclusive lock on the folder of a run, held until `close` or until the process ends.

    The kernel holds the lock, so `kill -9` also releases it, and a stopped process keeps it.

    Args:
        folder: the folder of the run; created if it does not exist.

    Raises:
        ValueError: another process holds the lock.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / LOCK
        self._lock = FileLock(self._path, thread_local=False)
        try:
            self._lock.acquire(blocking=False)
        except Timeout:
            raise ValueError(
                f"{folder} is in use by another process: wait until it ends, end it (`fuser {self._path}` finds it) and run "
                "this command again, or write to another output"
            ) from None
        self._locked = self._path.stat()

    def check(self) -> None:
        """Raise DlstepError if the folder was deleted or replaced, so that the lock is void."""
        try:
            same = os.path.samestat(self._locked, self._path.stat())
        except FileNotFoundError:
            same = False
        if not same:
            raise DlstepError(
                f"{self._path.parent} was deleted or replaced while this process wrote to it, so its output is not written; "
                "run the same command again"
            )

    def close(self) -> None:
        """Release the lock."""
        self._lock.release()


def check_free(folder: Path) -> None:
    """Raise ValueError if another process holds this folder's lock. Call before slow work."""
    if (folder / LOCK).exists():
        RunLock(folder).close()

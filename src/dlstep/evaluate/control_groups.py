"""Limits for all processes of a jail together, by control groups (version 2) where this process may make some."""

import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CONTROL_GROUPS, OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
ENDING = 2.0  # seconds that killed processes may take until their group can be removed


def parent_of_groups() -> Path | None:
    """Return the nearest group around this process in which it may make groups with limits; None where there is none.

    Root has such a group under systemd, and other users under their own service manager, as `systemd-run --user --scope` does.
    """
    try:
        path = next(line for line in OWN.read_text().splitlines() if line.startswith("0::/")).removeprefix("0::/")
        own = CONTROL_GROUPS / path
        for group in (own, *own.parents):
            controllers = (group / "cgroup.subtree_control").read_text().split()
            writable = all(os.access(file, os.W_OK) for file in (group, group / "cgroup.procs"))
            if writable and {"memory", "pids"} <= set(controllers):
                return group
    except (OSError, StopIteration):  # above the root of all groups, or no groups of version 2
        pass
    return None


@contextmanager
def control_group(parent: Path | None, memory: int, processes: int) -> Iterator[Path | None]:
    """Make a group whose processes have at most `memory` bytes together, and kill them at the end. Raises OSError."""
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


def out_of_memory(group: Path | None) -> bool:
    """Return whether the kernel has killed a process of the group because of its limit of memory."""
    return group is not None and "oom_kill 0\n" not in (group / "memory.events").read_text()

"""Limits for all processes of a jail together, by control groups (version 2) if this process may make them."""

import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CONTROL_GROUPS, OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
ENDING = 2.0  # seconds to wait until the killed processes have ended and their group can be removed


def parent_of_groups() -> Path | None:
    """Return the nearest parent group of this process in which it may make groups with limits; None if there is none.

    Root has such a group under systemd. Other users have one under their own service manager, for example with
    `systemd-run --user --scope`.
    """
    try:
        path = next(line for line in OWN.read_text().splitlines() if line.startswith("0::/")).removeprefix("0::/")
        own = CONTROL_GROUPS / path
        for group in (own, *own.parents):
            controllers = (group / "cgroup.subtree_control").read_text().split()
            writable = all(os.access(file, os.W_OK) for file in (group, group / "cgroup.procs"))
            if writable and {"memory", "pids"} <= set(controllers):
                return group
    except (OSError, StopIteration):  # past the root of all groups, or a system without groups of version 2
        pass
    return None


@contextmanager
def control_group(parent: Path | None, memory: int, processes: int) -> Iterator[Path | None]:
    """Yield a new group whose processes share at most `memory` bytes, and kill them at the end; None without a parent.

    Raises OSError if the group cannot be made or removed.
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


def out_of_memory(group: Path | None) -> bool:
    """Return whether the kernel has killed a process of the group because of the group's memory limit."""
    return group is not None and "oom_kill 0\n" not in (group / "memory.events").read_text()

"""Runs attacks on jails, as the user who starts it.

Names of attacks come as JSON on stdin; verdicts, changes outside and processes that are left go to stdout.
"""

import ctypes
import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace

from dlstep.evaluate import jail as jails
from dlstep.evaluate.jail import Jail, JailLimits

from .attacks import PRELUDE, all_attacks, number_of

LIMITS = {"memory": 1 << 28, "files": 1 << 24}
SESSION, JOIN, READ, DESCRIBE = -3, 1, 11, 6  # of keyctl
ENDING = 5.0  # seconds that killed processes may take


@contextmanager
def outside() -> Iterator[SimpleNamespace]:
    """Make the targets of attacks; `state()` describes them, and never changes unless an attack works."""
    libc = ctypes.CDLL(None)
    add_key, keyctl = number_of("add_key"), number_of("keyctl")
    libc.syscall(ctypes.c_long(keyctl), ctypes.c_long(JOIN), None)
    libc.syscall.restype = ctypes.c_long
    key = libc.syscall(ctypes.c_long(add_key), b"user", b"canary", b"alive", ctypes.c_long(5), ctypes.c_long(SESSION))

    def key_state(command: int, which: int) -> str:
        held = ctypes.create_string_buffer(1000)
        size = libc.syscall(ctypes.c_long(keyctl), ctypes.c_long(command), ctypes.c_long(which), held, ctypes.c_long(1000))
        return held.raw[: max(size, 0)].hex()

    with ExitStack() as held, tempfile.TemporaryDirectory(prefix="dlstep-outside-", ignore_cleanup_errors=True) as folder:
        (Path(folder) / "secret").write_text("42")
        Path(folder).chmod(0o777)
        process = held.enter_context(subprocess.Popen(["sleep", "7200"]))
        held.callback(process.kill)
        abstract = "\0" + secrets.token_hex(8)
        listening = [held.enter_context(socket.create_server(("127.0.0.1", 0)))]
        for address in (f"{folder}/socket", abstract):
            listening.append(held.enter_context(socket.socket(socket.AF_UNIX)))
            listening[-1].bind(address)
            listening[-1].listen()

        def connected(server: socket.socket) -> bool:
            server.setblocking(False)
            try:
                server.accept()[0].close()
            except BlockingIOError:
                return False
            return True

        def state() -> list[object]:
            status = Path(f"/proc/{process.pid}/status").read_text()
            seen = {line for line in status.splitlines() if line.startswith(("State", "TracerPid"))}
            mounts = Path("/proc/self/mounts").read_text()
            files = {path.name: path.read_text() for path in Path(folder).iterdir() if path.is_file()}
            evil = [path for place in ("/tmp", "/dev/shm", "/") for path in os.listdir(place) if "evil" in path]
            keys = [key_state(READ, key), key_state(READ, SESSION), key_state(DESCRIBE, SESSION)] if key > 0 else []
            segments = [line for line in Path("/proc/sysvipc/shm").read_text().splitlines() if " 1048576 " in line]
            modes = [os.stat(path).st_mode for path in ("/dev/null", "/usr", "/usr/bin/env", "/tmp")]
            calls = [connected(server) for server in listening]
            return [
                seen,
                mounts,
                files,
                evil,
                keys,
                segments,
                modes,
                calls,
                socket.gethostname(),
                os.getpriority(os.PRIO_PROCESS, 0),
            ]

        constants = {"PORT": listening[0].getsockname()[1], "PATH_SOCKET": f"{folder}/socket", "ABSTRACT_SOCKET": abstract}
        constants |= {"PID": process.pid, "FOLDER": folder, "KEY": key}
        prelude = PRELUDE + "".join(f"{name} = {value!r}\n" for name, value in constants.items())
        yield SimpleNamespace(prelude=prelude, state=state, process=process.pid)


def left_over(mark: str, known: set[int]) -> list[str]:
    """Return the command lines of jailed processes that still run.

    Root finds them by `mark` in their environment, which others cannot read: these list all their processes but the known ones.
    """
    found: list[str] = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if os.geteuid() == 0:
                mine = mark.encode() in (folder / "environ").read_bytes()
            else:
                mine = f"Uid:\t{os.geteuid()}\t" in (folder / "status").read_text() and int(folder.name) not in known
            if mine:
                found.append((folder / "cmdline").read_text()[:200])
        except OSError:
            continue
    return found


def main() -> None:
    """Run the attacks, two at a time."""
    attacks, mark = all_attacks(), secrets.token_hex(16)
    jails.ENVIRONMENT["MARK"] = mark
    with outside() as target:
        quick, patient = (Jail(JailLimits(seconds=seconds, **LIMITS)) for seconds in (1.0, 30.0))
        before = target.state()

        def run(name: str) -> list[str]:
            attack = attacks[name]
            jail = quick if "timeout" in attack.verdicts else patient
            verdict = jail.run([target.prelude, attack.program])
            after = target.state()
            changed = [f"{one} is now {other}" for one, other in zip(before, after, strict=True) if one != other]
            return [name, verdict, "contained" if attack.allows(verdict) and not changed else f"not contained: {changed}"]

        with ThreadPoolExecutor(2) as pool:
            printed = list(pool.map(run, json.load(sys.stdin)))
        deadline = time.monotonic() + ENDING
        while left := left_over(mark, {os.getpid(), target.process}):
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)
    json.dump({"user": os.geteuid(), "verdicts": printed, "left": left, "jail": jails.__file__}, sys.stdout)


if __name__ == "__main__":
    main()

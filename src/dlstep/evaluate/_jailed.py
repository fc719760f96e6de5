"""The process of a program in a jail: set irrevocable limits, then run the parts of a program.

`jail.py` passes the text of this file to `python -PsS -c`, so it imports only the standard library.
It reads lines of JSON on stdin: first the job (`files`, `inodes`, `limits` by the names of
`resource`, `uid` to switch to or null, `filter`), then the parts. It answers each line with a line
on stdout: null, or the name of the exception.
"""

import base64
import ctypes
import errno
import json
import os
import resource
import sys
import types
from typing import Any

LONGEST = 200  # characters of the name of an exception
SPARE = 1 << 20  # bytes for a report
MOUNT_FLAGS = 2 | 4  # MS_NOSUID, MS_NODEV
SET_DUMPABLE, SET_SECCOMP, BY_FILTER = 4, 22, 2  # of prctl
CAPABILITIES = (0x20080522, 0)  # version 3, this process


class Filter(ctypes.Structure):
    """A filter of system calls, `struct sock_fprog`."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def check(result: int, what: str, *allowed: int) -> None:
    """End the process if a C library call failed with an error number that is not `allowed`."""
    if result and ctypes.get_errno() not in allowed:
        sys.exit(f"{what}: {os.strerror(ctypes.get_errno())}")


def confine(job: dict[str, Any]) -> None:
    """Mount the folder for files, then drop all privileges and set all limits."""
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"size={job['files']},nr_inodes={job['inodes']},mode=1777".encode()
    # If a security module forbids the mount, bubblewrap's own mount remains, with a limit on bytes
    # but none on inodes.
    check(libc.mount(b"jail", b"/tmp", b"tmpfs", ctypes.c_ulong(MOUNT_FLAGS), options), "mount", errno.EPERM, errno.EACCES)
    os.chdir("/tmp")
    if job["uid"] is not None:
        os.setgroups([])
        os.setresgid(job["uid"], job["uid"], job["uid"])
        os.setresuid(job["uid"], job["uid"], job["uid"])
    check(libc.capset((ctypes.c_uint32 * 2)(*CAPABILITIES), (ctypes.c_uint32 * 6)()), "capset")
    for name, most in job["limits"].items():
        later = name == "RLIMIT_CPU"  # SIGXCPU at the soft limit, SIGKILL at the hard one
        resource.setrlimit(getattr(resource, name), (most, most + later))
    check(libc.prctl(SET_DUMPABLE, 0, 0, 0, 0), "prctl")
    program = base64.b64decode(job["filter"])
    check(libc.prctl(SET_SECCOMP, BY_FILTER, ctypes.byref(Filter(len(program) // 8, program)), 0, 0), "seccomp")


def main() -> None:
    """Confine the process, then run the parts; the program's streams are `/dev/null`."""
    first = os.getpid()
    with os.fdopen(os.dup(0), "rb") as requests, os.fdopen(os.dup(1), "wb", 0) as answers:
        confine(json.loads(requests.readline()))
        with open(os.devnull, "r+b", 0) as nowhere:
            for number in range(3):
                os.dup2(nowhere.fileno(), number)
        answers.write(b"null\n")
        module = sys.modules["answer"] = types.ModuleType("answer")
        for line in requests:
            raised, spare = None, bytearray(SPARE)
            try:
                exec(compile(json.loads(line), "answer", "exec"), module.__dict__)
            except BaseException as error:  # noqa: BLE001 - `exit()` is a failure, too
                del spare  # the program may have used all other memory
                raised = type(error).__name__[:LONGEST]
            if os.getpid() != first:  # child processes that the program forked reach this line, too
                os._exit(0)
            answers.write(json.dumps(raised).encode() + b"\n")


if __name__ == "__main__":
    main()

"""The first process of a jail: runs one program in a child with limits, and says on stdout how that ended.

`jail.py` hands the text of this file to `python -PsS -c`, so it imports nothing but the standard library. The job comes as
JSON on stdin: `parts` of the program, `limits` by the names of `resource`, `uid` to become or null, `seconds`, `token`.
When this process ends, the kernel ends every other one in its namespace.
"""

import ctypes
import errno
import json
import os
import resource
import select
import signal
import sys
import types
from typing import Any, NoReturn

LONGEST = 200  # bytes of a verdict
# System calls that are refused: those that hold memory which no limit of a process counts, and those that make namespaces.
REFUSED = {
    errno.EPERM: (b"shmget", b"msgget", b"semget", b"memfd_create", b"memfd_secret", b"io_uring_setup", b"unshare", b"setns"),
    errno.ENOSYS: (b"clone3",),  # its arguments cannot be looked into; libraries take `clone` then
}
NEW_USER = 0x10000000  # the flag of `clone` for a user namespace, in which everybody may do what root does
ALLOWED, REFUSED_WITH = 0x7FFF0000, 0x00050000  # of libseccomp's seccomp.h
MASKED_EQUAL = 7


class Comparison(ctypes.Structure):
    """A condition on an argument of a system call, `scmp_arg_cmp` of libseccomp."""

    _fields_ = (("arg", ctypes.c_uint), ("op", ctypes.c_int), ("mask", ctypes.c_uint64), ("value", ctypes.c_uint64))


def refuse_system_calls(seccomp: ctypes.CDLL) -> None:
    """Refuse the system calls of `REFUSED` from here on, for this process and all that it starts. Raises OSError."""
    seccomp.seccomp_init.restype = ctypes.c_void_p
    rules = ctypes.c_void_p(seccomp.seccomp_init(ALLOWED))
    new_user = ctypes.byref(Comparison(0, MASKED_EQUAL, NEW_USER, NEW_USER))
    refused = [(number, name, 0, None) for number, names in REFUSED.items() for name in names]
    for number, name, conditions, condition in (*refused, (errno.EPERM, b"clone", 1, new_user)):
        call = seccomp.seccomp_syscall_resolve_name(name)
        if call >= 0 and seccomp.seccomp_rule_add_array(rules, REFUSED_WITH | number, call, conditions, condition):
            raise OSError(name)
    if seccomp.seccomp_load(rules):
        raise OSError("seccomp_load")


def run(parts: list[str]) -> None:
    """Run the parts of a program one after the other, in a module of its own."""
    module = types.ModuleType("answer")
    sys.modules["answer"] = module
    for part in parts:
        exec(compile(part, "answer", "exec"), module.__dict__)


def child(job: dict[str, Any], said: int, seccomp: ctypes.CDLL) -> NoReturn:
    """Take the limits on, run the program, and write the token and the verdict: who has not run to the end knows neither."""
    os.setsid()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nowhere, number)
    for name, most in job["limits"].items():
        later = name == "RLIMIT_CPU"  # the first of its limits is a timeout; at the second, the kernel kills without a word
        resource.setrlimit(getattr(resource, name), (most, most + later))
    if job["uid"] is not None:
        os.setgroups([])
        os.setresgid(job["uid"], job["uid"], job["uid"])
        os.setresuid(job["uid"], job["uid"], job["uid"])
    refuse_system_calls(seccomp)
    token, first = job.pop("token"), os.getpid()
    try:
        run(job["parts"])
    finally:  # `exit()` in an answer ends here, too, and is no pass
        error = sys.exc_info()[0]
        if os.getpid() == first:  # processes that a program made come by here, too
            os.write(said, (token + ("passed" if error is None else error.__name__)).encode()[:LONGEST])
        os._exit(0)


def verdict_of(job: dict[str, Any]) -> str:
    """How the program ended: `passed`, the name of an exception, `timeout`, or a signal or an exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process of a namespace gets only signals that it handles
    try:
        seccomp = ctypes.CDLL("libseccomp.so.2")
    except OSError:
        sys.exit("libseccomp is not installed")
    heard, said = os.pipe()
    started = os.fork()
    if not started:
        os.close(heard)
        try:
            child(job, said, seccomp)
        finally:
            os._exit(70)
    if not select.select([os.pidfd_open(started)], [], [], job["seconds"])[0]:
        return "timeout"
    status = os.waitpid(started, 0)[1]
    os.set_blocking(heard, False)
    try:
        told = os.read(heard, LONGEST).decode(errors="replace")
    except BlockingIOError:
        told = ""
    if told.startswith(job["token"]):
        return told.removeprefix(job["token"])
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return "timeout" if number == signal.SIGXCPU else f"signal {number}"
    return f"ended early, code {os.WEXITSTATUS(status)}"


if __name__ == "__main__":
    print(verdict_of(json.load(sys.stdin)), end="", flush=True)
    os._exit(0)

"""The first process of a jail: runs one program in a child with limits, and says on stdout how that ended.

`jail.py` hands the text of this file to `python -I -S -c`, so it imports nothing but the standard library. The job comes as
JSON on stdin: `parts` of the program, `limits` by the names of `resource`, `uid` to become or null, `seconds`, `token`.
When this process ends, the kernel ends every other one in its namespace.
"""

import json
import os
import resource
import select
import signal
import sys
import types
from typing import Any, NoReturn

LONGEST = 200  # bytes of a verdict


def run(parts: list[str]) -> None:
    """Run the parts of a program one after the other, in a module of its own."""
    module = types.ModuleType("answer")
    sys.modules["answer"] = module
    for part in parts:
        exec(compile(part, "answer", "exec"), module.__dict__)


def child(job: dict[str, Any], said: int) -> NoReturn:
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
    token = job.pop("token")
    try:
        run(job["parts"])
    finally:  # `exit()` in an answer ends here, too, and is no pass
        error = sys.exc_info()[0]
        os.write(said, (token + ("passed" if error is None else error.__name__)).encode()[:LONGEST])
        os._exit(0)


def verdict_of(job: dict[str, Any]) -> str:
    """How the program ended: `passed`, the name of an exception, `timeout`, or a signal or an exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process of a namespace gets only signals that it handles
    heard, said = os.pipe()
    started = os.fork()
    if not started:
        os.close(heard)
        try:
            child(job, said)
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

"""Hostile programs for the jail: each tries one thing, and fails an assertion if that works.

`attacks.txt` has programs, `attacked_calls.txt` system calls. A program finds the names of `PRELUDE`, and `PORT`,
`PATH_SOCKET`, `ABSTRACT_SOCKET`, `PID`, `FOLDER` and `KEY`: a TCP port, two sockets, a process, a folder with a file `secret`,
and a key of the session keyring, all outside of the jail.
"""

import ctypes
import re
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
NEWER = {"memfd_secret": 447, "process_mrelease": 448}  # numbers that older versions of libseccomp do not know
PRELUDE = """
import ctypes, errno, fcntl, glob, mmap, os, resource, signal, socket, struct, subprocess, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)

def refused(number, *arguments):
    given = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    result = libc.syscall(ctypes.c_long(number), *given)
    assert result == -1, result
    return ctypes.get_errno()

def fails(call, *arguments, **named):
    try:
        made = call(*arguments, **named)
    except (OSError, ValueError, MemoryError, RuntimeError, ImportError):
        return
    raise AssertionError(f"{call} gave {made}")

def tries(call, *arguments):
    try:
        return call(*arguments)
    except OSError:
        return None

def until_it_fails(call, most):
    made = []
    while len(made) <= most:
        try:
            made.append(call(len(made)))
        except (OSError, MemoryError, RuntimeError):
            return made
    raise AssertionError(f"more than {most}")

def descriptors():
    found = []
    for number in range(64):
        try:
            fcntl.fcntl(number, fcntl.F_GETFD)
            found.append(number)
        except OSError:
            pass
    return found

def child(work):
    if (process := os.fork()) == 0:
        try:
            work()
        finally:
            os._exit(0)
    return process
"""


@dataclass(frozen=True, slots=True)
class Attack:
    """A program, and how it may end; `not passed` is any verdict but `passed`."""

    name: str
    program: str
    verdicts: tuple[str, ...] = ("passed",)

    def allows(self, verdict: str) -> bool:
        """Return whether a verdict is an honest one."""
        return verdict in self.verdicts or ("not passed" in self.verdicts and verdict != "passed")


STRANGE_NAME = "a\nnull\u202e" * 100
DEEP = ("SyntaxError", "MemoryError", "RecursionError")
TEXTS = (  # programs that no text file can hold
    Attack("text: a null byte", "a = 1\x00", ("SyntaxError", "ValueError")),
    Attack("text: half of a pair", "a = '\ud800'", ("UnicodeEncodeError",)),
    Attack("text: nested", "(" * 5000 + ")" * 5000, DEEP),
    Attack("text: nested operators", "-" * 200_000 + "1", (*DEEP, "signal 11")),
    Attack("text: long", "a = 1\n" * 500_000, ("passed", "MemoryError", "timeout")),
    Attack("text: one huge literal", "a = '" + "a" * (1 << 23) + "'"),
    Attack(
        "forgery: a name that is no word",
        f"raise type({STRANGE_NAME!r}, (Exception,), {{}})",
        (f"exception {STRANGE_NAME[:200]!r}",),
    ),
)


def number_of(name: str) -> int:
    """Return the number of a system call."""
    number: int = ctypes.CDLL("libseccomp.so.2").seccomp_syscall_resolve_name(name.encode())
    assert number >= 0 or name in NEWER, name
    return number if number >= 0 else NEWER[name]


def all_attacks() -> dict[str, Attack]:
    """Return every attack by its name."""
    found = list(TEXTS)
    for line in (HERE / "attacked_calls.txt").read_text().splitlines()[1:]:
        call = re.fullmatch(r"[a-z]+: (\w+)\((.*)\)", line)
        assert call is not None, line
        found.append(Attack(line, f"refused({number_of(call[1])}, {call[2]})"))
    for block in (HERE / "attacks.txt").read_text().split("\n== ")[1:]:
        title, _, program = block.partition("\n")
        name, *verdicts = title.split(" | ")
        found.append(Attack(name, program, tuple(verdicts)))
    attacks = {attack.name: attack for attack in found}
    assert len(attacks) == len(found), "two attacks have one name"
    return attacks

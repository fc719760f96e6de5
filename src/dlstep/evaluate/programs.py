"""Programs that a model wrote, run in one sandbox made with bubblewrap, and their pass@k.

A program in the sandbox has no network, sees no other process, can read the folders of the system
and of Python, and can write to a small file system in memory. Its time and memory are limited.
"""

import json
import os
import select
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import comb
from pathlib import Path
from statistics import fmean
from typing import Any

from ..core import DlstepError

SECONDS = 10.0  # of a program
PATIENCE = 10.0  # seconds after that until the process that runs programs is taken for stopped
SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/sbin")
SPACES = "--unshare-all --die-with-parent --new-session --cap-drop ALL --dev /dev --perms 1777 --size 67108864 --tmpfs /tmp"
RUNNER = Path(__file__).with_name("_programs.py")
# With a fixed hash seed, a program that depends on the order of a set always gets the same verdict.
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8", "PYTHONHASHSEED": "0"}


class Programs:
    """A process that runs programs, in a sandbox unless `unsafe`; it starts with the first program.

    The method `compute` is that of the metric `code_eval` on the Hugging Face hub, which lm_eval's tasks call.
    """

    def __init__(self) -> None:
        self.unsafe = False
        self._process: subprocess.Popen[bytes] | None = None

    def passes(self, program: str) -> bool:
        """Return whether a program ends in time without an exception.

        Raises DlstepError with the remedy if there is no sandbox.
        """
        if self._process is None:
            self._process = self._started()
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps(program).encode() + b"\n")
            process.stdin.flush()
            # A program can stop its parent by a signal, which then never answers.
            ready, _, _ = select.select([process.stdout], [], [], SECONDS + PATIENCE)
            answer = process.stdout.readline() if ready else b""
        except BrokenPipeError:
            answer = b""
        if answer not in (b"true\n", b"false\n"):  # the program ended or stopped the process that runs it
            self.close()
        return answer == b"true\n"

    def check(self) -> None:
        """Raise DlstepError with the remedy if programs cannot be run."""
        if not self.passes("pass"):
            raise DlstepError(refusal("bubblewrap makes no sandbox here"))

    def compute(
        self, references: Sequence[str], predictions: Sequence[Sequence[str]], k: Sequence[int] = (1,)
    ) -> tuple[dict[str, float], dict[int, list[bool]]]:
        """Return the estimates of pass@k (Chen et al., 2021, arXiv 2107.03374), and all verdicts by problem."""
        verdicts = {
            number: [self.passes(f"{program}\n{tests}") for program in programs]
            for number, (tests, programs) in enumerate(zip(references, predictions, strict=True))
        }
        return {f"pass@{most}": fmean(pass_at(own, most) for own in verdicts.values()) for most in k}, verdicts

    def close(self) -> None:
        """End the process, if there is one."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _started(self) -> "subprocess.Popen[bytes]":
        command = [] if self.unsafe else sandbox()
        python = f"python{sys.version_info.major}.{sys.version_info.minor}"
        return subprocess.Popen(
            [*command, str(Path(os.path.realpath(sys.base_prefix)) / "bin" / python), "-I", str(RUNNER), str(SECONDS)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=ENVIRONMENT, cwd="/tmp",
        )  # fmt: skip


def sandbox() -> list[str]:
    """Return the command that precedes that of the sandboxed process. Raises DlstepError without bubblewrap."""
    command = shutil.which("bwrap")
    if command is None:
        raise DlstepError(refusal("bubblewrap is not installed"))
    folders = (*SYSTEM, os.path.realpath(sys.base_prefix), str(RUNNER))
    shown = [part for folder in folders for part in ("--ro-bind-try", folder, folder)]
    return [command, *SPACES.split(), *shown, "--remount-ro", "/", "--chdir", "/tmp", "--"]


def refusal(reason: str) -> str:
    """Return the error message for a missing sandbox."""
    return (
        f"this task runs programs that the model wrote, in a sandbox, but {reason}: install bubblewrap (`apt install "
        "bubblewrap` or `dnf install bubblewrap`) and let this user make namespaces, or give --confirm_run_unsafe_code true, "
        "which runs the programs without a sandbox"
    )


def pass_at(verdicts: Sequence[bool], most: int) -> float:
    """Return the chance that one of `most` of these programs passes."""
    return 1 - comb(verdicts.count(False), most) / comb(len(verdicts), most)


PROGRAMS = Programs()


@contextmanager
def as_code_eval() -> Iterator[None]:
    """Make lm_eval's code tasks use `PROGRAMS` as the metric `code_eval`, which they load from the hub when imported."""
    import evaluate  # pyright: ignore[reportMissingImports]

    library: Any = evaluate
    hub = library.load
    library.load = lambda name, *rest, **more: PROGRAMS if name == "code_eval" else hub(name, *rest, **more)
    try:
        yield
    finally:
        library.load = hub

"""Programs that a model wrote, each run in a sandbox made with bubblewrap.

A program in the sandbox has no network, sees no other process, can read the folders of the system
and of Python, and can write to a small file system in memory. Its time and memory are limited.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from math import ceil
from pathlib import Path
from statistics import fmean
from typing import Any

from ..core import DlstepError

SECONDS = 10.0  # of a program
PASSED = 42  # the exit code of the process of a program that passed
SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/sbin")
SPACES = "--unshare-all --die-with-parent --new-session --cap-drop ALL --dev /dev --perms 1777 --size 67108864 --tmpfs /tmp"
RUNNER = Path(__file__).with_name("_programs.py")
# With a fixed hash seed, a program that depends on the order of a set always gets the same verdict.
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8", "PYTHONHASHSEED": "0"}


class Programs:
    """Runs programs, in a sandbox unless `unsafe`.

    The method `compute` is that of the metric `code_eval` on the Hugging Face hub, which lm_eval's tasks call.
    """

    unsafe = False

    def passes(self, program: str) -> bool:
        """Return whether a program ends in time without an exception.

        Raises DlstepError with the remedy if there is no sandbox.
        """
        command = [] if self.unsafe else sandbox()
        python = f"python{sys.version_info.major}.{sys.version_info.minor}"
        command += [str(Path(os.path.realpath(sys.base_prefix)) / "bin" / python), "-I", str(RUNNER)]
        process = subprocess.Popen(
            [*command, str(ceil(SECONDS)), str(PASSED)], start_new_session=True, env=ENVIRONMENT, cwd="/tmp",
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        with suppress(subprocess.TimeoutExpired):
            process.communicate(program.encode(), SECONDS)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # also what the program started; the sandbox dies with its parent
        return process.wait() == PASSED

    def check(self) -> None:
        """Raise DlstepError with the remedy if programs cannot be run."""
        if not self.passes("pass"):
            raise DlstepError(refusal("bubblewrap makes no sandbox here"))

    def compute(
        self, references: Sequence[str], predictions: Sequence[Sequence[str]], k: Sequence[int] = (1,)
    ) -> tuple[dict[str, float], dict[int, list[bool]]]:
        """Return pass@1, whatever `k` is: a problem has one answer. Return all verdicts by problem, too."""
        verdicts = {
            number: [self.passes(f"{program}\n{tests}") for program in programs]
            for number, (tests, programs) in enumerate(zip(references, predictions, strict=True))
        }
        return {"pass@1": fmean(fmean(own) for own in verdicts.values())}, verdicts


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

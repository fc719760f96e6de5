"""Runs commands, each in a process of its own forked off this one, which has loaded dlstep and torch. JSON in, JSON out.

`dlstep ...` runs the entry point of the console script, `python FILE` and `python -m MODULE` what Python would run.
"""

import importlib
import json
import os
import runpy
import sys
from importlib.metadata import distribution
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryFile


def executed(arguments: list[str]) -> None:
    """Become the command. Raises SystemExit with its exit code, if it has one."""
    program, *rest = arguments
    if program == "dlstep":
        (script,) = distribution("dlstep").entry_points.select(group="console_scripts", name="dlstep")
        sys.argv, sys.path[0] = arguments, str(Path(sys.executable).parent)
        sys.exit(script.load()())
    assert program == "python", f"{program} is no command of the page"
    if rest[0] == "-m":
        sys.argv, sys.path[0] = rest[1:], os.getcwd()
        runpy.run_module(rest[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv, sys.path[0] = rest, os.getcwd()
        with open(rest[0], encoding="utf-8") as file:
            code = compile(file.read(), rest[0], "exec")
        vars(sys.modules["__main__"]).update(__file__=rest[0])
        exec(code, vars(sys.modules["__main__"]))


def answering(arguments: list[str], folder: str, output: int) -> None:
    """Become the command, in a folder, with what it prints in the file `output`."""
    os.chdir(folder)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(output, stream.fileno())
    executed(arguments)


def forked(arguments: list[str], folder: str) -> tuple[int | None, str]:
    """Exit code and output of the command."""
    with TemporaryFile("w+", encoding="utf-8") as output:
        child = get_context("fork").Process(target=answering, args=(arguments, folder, output.fileno()))
        child.start()
        child.join()
        output.seek(0)
        return child.exitcode, output.read()


if __name__ == "__main__":
    jobs = json.loads(sys.stdin.read())
    package = importlib.import_module("dlstep")
    for loaded in ("dlstep.cli", "dlstep.driver", "dlstep.models", "dlstep.testing.laws"):
        importlib.import_module(loaded)
    print(json.dumps({"package": package.__file__, "jobs": [forked(*job) for job in jobs]}))

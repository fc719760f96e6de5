"""Runs the blocks of a page in this process: Python in one namespace, `dlstep` through its entry point, one folder for all.

What is not run as pasted, because a machine without an accelerator and without a network has to run it:

- Names of models of the hub lead to a hub on the loopback address with a random tiny network of their family, and
  `/path/to/checkpoint` is the folder of an embedded model. `cuda` is the CPU where there is no device.
- `dlstep serve` is parsed. The first line behind it that asks port 8000 starts a server with these options in a thread.
- `pip install`, `make` and Python programs of the repository are not run: the package, target or file must exist.
- In the quick form, commands whose output the page does not show get the options of `QUICK`.
"""

import io
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from dataclasses import fields
from functools import cache
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from packaging.requirements import Requirement

from dlstep import LLM, tiny
from dlstep.cli.main import main, parsed
from dlstep.engine.config import engine_config
from dlstep.serve.settings import ServeOptions

from ..helpers.serving import served
from ..helpers.tiny_families import write_checkpoint
from .blocks import ROOT, Block, is_printed

PYTHON, SHELL = ("python",), ("", "sh", "bash", "shell")
ADDRESS = re.compile(r"(?:127\.0\.0\.1|localhost):8000")
VARIABLE = re.compile(r"[A-Z_]+=\S*")
# Options that make a command fast; a later option of the same name overrides an earlier one.
QUICK = {
    "demo": "--problems 1 --shown 1",
    "eval": "--dataset_limit 2",
    "compare": "--problems 1",
    "laws": "--examples 2",
}
# Published names of models, and the family of each.
PUBLISHED = {
    r"Dream-org/DreamReasoner\S*": "dream_reasoner",
    r"Dream-org/Dream-\S+": "dream",
    r"apple/DiffuCoder-\S+": "diffucoder",
    r"ByteDance-Seed/Stable-DiffCoder\S*": "stable_diffcoder",
    r"(?:GSAI-ML|inclusionAI)/LLaDA-\S+": "llada",
    r"Efficient-Large-Model/Fast_dLLM_v2\S+": "fast_dllm_v2",
    r"JetLM/SDAR-\w+-A\w+B\S*": "sdar_moe",
    r"JetLM/SDAR-\S+": "sdar",
    r"inclusionAI/LLaDA2\.1-mini\S*": "llada2dot1_mini",
    r"inclusionAI/LLaDA2\.\S+": "llada2_mini",
    r"Zigeng/DMax\S*": "llada2_mini_dmax",
    r"google/diffusiongemma\S*": "diffusion_gemma",
}


def family_of(name: str) -> str | None:
    return next((family for pattern, family in PUBLISHED.items() if re.fullmatch(pattern, name)), None)


class Checkpoints(Mapping[str, Path]):
    """Folders of models by their published names, each written when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __getitem__(self, name: str) -> Path:
        family, path = family_of(name), self.folder / name
        if family is None:
            raise KeyError(name)
        if not path.exists():
            # As wide as short answers need; the networks have two layers.
            name = "max_sequence_length" if family == "llada" else "max_position_embeddings"
            write_checkpoint(path, family, **{name: 1024})
        return path

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and family_of(name) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


class Tee(io.StringIO):
    """A stream whose text also goes to another one, as both streams of a program go to one terminal."""

    def __init__(self, other: io.StringIO) -> None:
        super().__init__()
        self.other = other

    def write(self, text: str, /) -> int:
        self.other.write(text)
        return super().write(text)


@cache
def requirements() -> tuple[set[str], set[str]]:
    """Return the packages that pyproject.toml names, and its extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    named = [*project["dependencies"], *(text for texts in extras.values() for text in texts)]
    return {Requirement(text).name.lower() for text in named} | {"dlstep"}, set(extras)


def check_packages(words: list[str]) -> None:
    """Raise AssertionError unless this project or its requirements are all that is installed, with extras that exist."""
    names, extras = requirements()
    files = {after for flag, after in pairwise(words) if flag in ("-c", "-r")}
    assert all((ROOT / file).is_file() for file in files)
    for word in words:
        if not word.startswith("-") and word not in files:
            wanted = Requirement(re.sub(r"^\.", "dlstep", word))
            assert wanted.name.lower() in names, f"pyproject.toml does not name {wanted.name}"
            assert wanted.name != "dlstep" or wanted.extras <= extras, f"there is no extra {wanted.extras - extras}"


def check_targets(words: list[str]) -> None:
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert not {word for word in words if "=" not in word} - set(targets), f"Makefile has no target {words}"


def commands(text: str) -> list[str]:
    """Return the lines of a shell block, continued ones joined, without comments on their own."""
    joined = text.replace("\\\n", " ").splitlines()
    return [line for line in joined if line.strip() and not line.lstrip().startswith("#")]


class PageRunner:
    """The folder, the Python names and the server that the blocks of one page share."""

    def __init__(self, folder: Path, stack: ExitStack, *, exact: bool) -> None:
        self.folder, self.stack, self.exact = folder, stack, exact
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self.engine: dict[str, Any] = {}  # options of the last `dlstep serve`
        self.url = ""

    def run(self, block: Block) -> None:
        """Run a block and compare what it prints with the page. Raises AssertionError."""
        both = io.StringIO()
        out, err = Tee(both), Tee(both)
        with redirect_stdout(out), redirect_stderr(err):
            if block.language in PYTHON:
                self.python(block)
            else:
                self.shell(block)
        if block.printed is not None:
            shown = any(is_printed(block.printed, text) for text in (both.getvalue(), out.getvalue()))
            assert shown, f"{block.place} prints\n{both.getvalue()}"

    def python(self, block: Block) -> None:
        """Run Python. If it raises what the page shows at the end of the output, print the exception's line."""
        code = self.replaced(block.text).replace('device="cuda"', f'device="{device()}"')
        try:
            # With empty lines in front, a traceback has the lines of the page.
            exec(compile("\n" * block.line + code, block.page, "exec"), self.names)
        except Exception as error:  # the page shows it, or else it is raised again
            last = f"{type(error).__name__}: {error}"
            if block.printed is None or not block.printed.rstrip().endswith(" ".join(last.split())[-40:]):
                raise
            print(last)

    def shell(self, block: Block) -> None:
        """Run the commands of a block. An error that the page shows is the only failure allowed."""
        shown = block.printed or ""
        allowed = {0}
        if re.search(r"^dlstep: (error|rejected): ", shown, re.MULTILINE):
            allowed = {0, 1, 2}  # a request, or the command, fails
        elif "\n  broken  " in shown or " FAILED\n" in shown:
            allowed = {1}
        for line in commands(block.text):
            code = self.command(line, block)
            assert code in allowed, f"{block.place}: {line} ends with {code}"

    def command(self, line: str, block: Block) -> int:
        """Run one command; return its exit code."""
        words = shlex.split(line, comments=True)
        with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
            while words and VARIABLE.fullmatch(words[0]):
                name, _, value = words.pop(0).partition("=")
                patch.setenv(name, value)
            if ">" in words[:-1]:
                place = words.index(">")
                file = stack.enter_context((self.folder / words[place + 1]).open("w", encoding="utf-8"))
                stack.enter_context(redirect_stdout(file))
                del words[place : place + 2]
            match words:
                case ["pip" | "pip3", "install", *packages]:
                    check_packages(packages)
                case ["source", ".venv/bin/activate"]:
                    pass
                case ["make", *targets]:
                    check_targets(targets)
                case ["python" | "python3", file, *arguments] if not file.startswith("-"):
                    self.program(file, arguments)
                case ["python" | "python3", "-m", "pytest", *arguments]:
                    return subprocess.run([sys.executable, "-m", "pytest", *arguments], check=False).returncode
                case ["python" | "python3", "-m", module, *_]:
                    assert module == "venv" or (find_spec(module) and (ROOT / module.partition(".")[0]).is_dir()), module
                case ["curl", *_]:
                    words = [self.replaced(word) for word in words]
                    done = subprocess.run([*words, "-sS", "--fail-with-body"], capture_output=True, text=True, check=False)
                    print(done.stdout, end="")
                    assert not done.returncode, done.stderr
                case ["dlstep", *arguments]:
                    return self.dlstep([argument for argument in arguments if argument != "&"], block)
                case _:
                    raise AssertionError(f"{block.place}: no test can run `{line}`: write `<!-- not run: REASON -->` above it")
        return 0

    def program(self, file: str, arguments: list[str]) -> None:
        if (ROOT / file).is_file():  # a measurement for developers
            return
        argv, sys.argv = sys.argv, [file, *arguments]
        try:
            runpy.run_path(str(self.folder / file), run_name="__main__")
        finally:
            sys.argv = argv

    def dlstep(self, arguments: list[str], block: Block) -> int:
        """Run `dlstep`; of `serve`, keep the options for the server that a later line needs."""
        arguments = [self.replaced(argument) for argument in on_this_machine(arguments)]
        if arguments[:1] == ["serve"] and "--help" not in arguments and "dlstep: error" not in (block.printed or ""):
            options = vars(parsed(arguments)[0])
            own = {"config", "open", "buffer_policy", *(field.name for field in fields(ServeOptions))}
            self.engine = {name: value for name, value in options.items() if name not in own}
            return 0
        if not self.exact and block.printed is None:
            searches = {"--target", "--shape", "--throughput"} & {*arguments}
            arguments += [] if searches else QUICK.get(arguments[0], "").split()
        try:
            return main(arguments)
        except SystemExit as stop:  # --help, --version
            return int(stop.code or 0)

    def replaced(self, text: str) -> str:
        """Return a text with a checkpoint that exists, and with the address of a server that runs."""
        text = text.replace("/path/to/checkpoint", str(tiny.path("tiny-bd")))
        return ADDRESS.sub(lambda _: self.server(), text)

    def server(self) -> str:
        """Return host and port of the server, which starts when they are first needed."""
        if not self.url:
            engine = LLM.from_config(engine_config(self.engine | {"tensor_parallel_size": 1})).engine
            self.url = self.stack.enter_context(served(engine)).url.removeprefix("http://")
        return self.url


def device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def on_this_machine(arguments: list[str]) -> list[str]:
    """Return the arguments with a device that exists."""
    return [device() if argument == "cuda" else argument for argument in arguments]


def check_command_lines(block: Block) -> None:
    """Parse the commands of `dlstep` in a block that is not run: their options must exist."""
    for line in commands(block.text):
        if not line.startswith("dlstep "):
            continue
        words = shlex.split(line, comments=True)[1:]
        words = words[: min((words.index(mark) for mark in (">", "|", "&") if mark in words), default=len(words))]
        if "--config" in words:  # a file that only the reader has
            place = words.index("--config")
            del words[place : place + 2]
        parsed(words)

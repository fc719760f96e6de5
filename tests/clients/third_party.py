"""Helpers of the tests of clients: a separate environment for each client, and waiting for servers."""

import hashlib
import os
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import httpx2

from dlstep import LLM

HERE = Path(__file__).parent
ENVIRONMENTS = HERE.parents[1] / ".venv-clients"
DLSTEP = [sys.executable, "-c", "from dlstep.cli import main; raise SystemExit(main())"]
MODEL = "tiny-bd"
TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}"  # the embedded models have none
KEY = "sesame"
START = 180.0  # seconds; torch and transformers are loaded on a busy machine
CLIENT = 900.0  # seconds that a client may take


def environment(name: str, *, beside: bool = False) -> Path:
    """The commands of a client, in a virtual environment with the pinned versions, made once for each list of them.

    `beside`: it also has all packages of the environment that the tests run in.
    """
    requirements = HERE / f"requirements-{name}.txt"
    folder, digest = ENVIRONMENTS / name, hashlib.sha256(requirements.read_bytes()).hexdigest()
    stamp = folder / "stamp"
    if not stamp.exists() or stamp.read_text() != digest:
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        if beside:
            (packages,) = folder.glob("lib/python*/site-packages")
            (packages / "beside.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
        install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", str(requirements)]
        subprocess.run([str(folder / "bin/python"), *install], check=True)
        stamp.write_text(digest)
    return folder / "bin"


def outside() -> dict[str, str]:
    """Return the environment variables of this process without its source path."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONWARNINGS")}


def client(name: str, command: str, *arguments: str, folder: Path, **variables: str) -> str:
    """Run a command of a client without access to a hub. Return its output; fail if the client fails."""
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(folder / "hub"), "OPENAI_API_KEY": KEY}
    found = subprocess.run(
        [str(environment(name) / command), *arguments],
        env=outside() | offline | variables,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=CLIENT,
        check=False,
    )
    assert found.returncode == 0, found.stdout[-20_000:]
    return found.stdout


def until(holds: Callable[[], bool], process: subprocess.Popen[str], log: Path) -> None:
    """Wait until a condition holds; fail if the process ends first, or after too long."""
    end = time.monotonic() + START
    while not holds():
        assert process.poll() is None and time.monotonic() < end, log.read_text()
        time.sleep(0.2)


def answers(url: str) -> bool:
    """Whether a URL answers with status 200."""
    try:
        return httpx2.get(url, timeout=10).status_code == 200
    except httpx2.TransportError:
        return False


@dataclass(frozen=True)
class Server:
    """A running `dlstep serve`."""

    url: str
    log: Path


@cache
def llm() -> LLM:
    """The same model without a server."""
    return LLM(MODEL, max_num_reqs=32)

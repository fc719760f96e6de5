"""Helpers of the tests of clients: a separate environment for each client, and waiting for servers."""

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
from functools import cache
from pathlib import Path

import httpx2

from dlstep import LLM

HERE = Path(__file__).parent
ENVIRONMENTS = HERE.parents[1] / ".venv-clients"
MODEL = "tiny-bd"
# The embedded models have none. It defines calls, which it never shows, so that tools are accepted without a forced call.
TEMPLATE = """{% if false %}<tool_call>{"name": ..., "arguments": ...}</tool_call>{% endif %}
{%- for message in messages %}{{ message.content }}{% endfor %}"""
# Nothing but the server is reached: no hub, no telemetry.
OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "DO_NOT_TRACK": "1",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "HAYSTACK_TELEMETRY_ENABLED": "False",
    "PROMPTFOO_DISABLE_TELEMETRY": "1",
    "PROMPTFOO_DISABLE_UPDATE": "1",
    "PROMPTFOO_DISABLE_REMOTE_GENERATION": "1",
}
KEY = "sesame"
START = 180.0  # seconds; torch and transformers are loaded on a busy machine
CLIENT = 900.0  # seconds that a client may take


def environment(name: str, *, beside: bool = False) -> Path:
    """The commands of a client, in a virtual environment with the pinned versions, made once for each list of them.

    A list in JSON is that of a client for node, which `npm` installs.

    `beside`: it also has all packages of the environment that the tests run in.
    """
    (requirements,) = HERE.glob(f"requirements-{name}.*")
    folder, digest = ENVIRONMENTS / name, hashlib.sha256(requirements.read_bytes()).hexdigest()
    stamp = folder / "stamp"
    fresh = stamp.exists() and stamp.read_text() == digest
    if requirements.suffix == ".json":
        if not fresh:
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copy(requirements, folder / "package.json")
            subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund"], cwd=folder, check=True)
            stamp.write_text(digest)
        return folder / "node_modules/.bin"
    if not fresh:
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


def ran(command: list[str], folder: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Run a command in a folder, offline."""
    return subprocess.run(
        command,
        env=outside() | OFFLINE | {"HF_HOME": str(folder / "hub")} | variables,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=CLIENT,
        check=False,
    )


def client(name: str, command: str, *arguments: str, folder: Path, **variables: str) -> str:
    """Run a command of a client, or `node`, offline. Return its output; fail if the client fails."""
    commands = environment(name)
    own = {"OPENAI_API_KEY": KEY, "NODE_PATH": str(commands.parent)} | variables
    found = ran([command if command == "node" else str(commands / command), *arguments], folder, **own)
    assert found.returncode == 0, found.stdout[-20_000:]
    return found.stdout


def answers(url: str) -> bool:
    """Whether a URL answers with status 200."""
    try:
        return httpx2.get(url, timeout=10).status_code == 200
    except httpx2.TransportError:
        return False


@cache
def llm() -> LLM:
    """The same model without a server."""
    return LLM(MODEL, max_num_reqs=32)

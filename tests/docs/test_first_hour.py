"""The first lines of the README work in an empty folder, with dlstep installed from its wheel."""

import json
import os
import re
import shutil
import subprocess
import sys
import venv
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

import pytest

from ..helpers.waiting import until
from .blocks import ROOT

README = (ROOT / "README.md").read_text()
TEN_LINES, PRINTED = re.findall(r"## Ten lines\n\n```python\n(.*?)```\n\n```text\n(.*?)```", README, re.DOTALL)[0]
(CURL,) = re.findall(r"^(curl .*?)```", README, re.DOTALL | re.MULTILINE)
ANSWER = "53+39=92 shells. Max now has 92 shells."
START = 120.0  # seconds; torch and transformers are loaded on a busy machine


def wheel(folder):
    """Return the wheel of the sources: that in `dist` if it has the same files, or else a new one."""
    sources = {
        str(path.relative_to(ROOT / "src")): path.read_bytes()
        for package in ("dlstep", "dlstep_kernels")
        for path in (ROOT / "src" / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.name != "README.md"  # not in the wheel
    }
    for path in (ROOT / "dist").glob("*.whl"):
        with ZipFile(path) as archive:
            content = {name: archive.read(name) for name in archive.namelist() if ".dist-info/" not in name}
        if content == sources:
            return path
    isolation = ["--no-isolation"] if find_spec("hatchling") else []
    build = [sys.executable, "-m", "build", "--wheel", *isolation, "--outdir", str(folder), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True, text=True)
    (path,) = folder.glob("*.whl")
    return path


@dataclass(frozen=True, slots=True)
class Installed:
    """An environment with dlstep from its wheel, and with everything else from the environment of the tests."""

    bin: Path
    environment: dict[str, str]

    def run(self, arguments, folder):
        """Return exit code and output, stdout and stderr as a terminal shows them."""
        command, pipes = (
            [str(self.bin / arguments[0]), *arguments[1:]],
            {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT},
        )
        done = subprocess.run(command, cwd=folder, env=self.environment, text=True, timeout=600, check=False, **pipes)
        return done.returncode, done.stdout


@pytest.fixture
def installed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder / "env", with_pip=False)
    bin = folder / "env" / "bin"
    install = [sys.executable, "-m", "pip", "--python", str(bin / "python"), "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([*install, str(wheel(folder / "wheel"))], check=True, capture_output=True, text=True)
    # After what is installed there. Its files for editable installs are not read.
    (site,) = (folder / "env" / "lib").glob("python*/site-packages")
    (site / "zz_tests.pth").write_text(str(Path(pytest.__file__).parents[1]) + "\n")
    environment = {
        "PATH": f"{bin}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        "COLUMNS": "80",
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",  # stdout and stderr in the order in which they are written
    }
    return Installed(bin, environment)


@contextmanager
def serving(installed, folder):
    """Run `dlstep serve` on a free port; yield its address once the model is loaded."""
    log = folder / "serve.log"
    arguments = [str(installed.bin / "dlstep"), "serve", "--port", "0"]
    with log.open("w") as file, subprocess.Popen(arguments, cwd=folder, env=installed.environment, stderr=file) as server:
        try:
            until(lambda: "listening on" in log.read_text() or server.poll() is not None, START, log.read_text)
            yield re.findall(r"listening on (\S+);", log.read_text())[0]
        finally:
            server.terminate()
            server.wait(60)


@pytest.mark.full
def test_the_readme_works_from_a_wheel_in_an_empty_folder(installed, tmp_path):
    code, version = installed.run(["dlstep", "--version"], tmp_path)
    assert code == 0 and re.fullmatch(r"dlstep \d+\.\d+\.\d+\n", version)
    (tmp_path / "ten_lines.py").write_text(TEN_LINES)
    code, output = installed.run(["python", "ten_lines.py"], tmp_path)
    assert (code, [line.rstrip() for line in output.splitlines()]) == (0, PRINTED.splitlines())
    assert shutil.which("curl"), "this test needs curl"
    with serving(installed, tmp_path) as url:
        ready = f"curl -sf --retry 60 --retry-delay 1 --retry-all-errors {url}/ready"
        subprocess.run(ready.split(), check=True, capture_output=True, timeout=START)
        curl = CURL.replace("http://127.0.0.1:8000", url)
        answer = subprocess.run(curl, shell=True, check=True, capture_output=True, text=True, timeout=START)
    (choice,) = json.loads(answer.stdout)["choices"]
    assert choice["text"] == ANSWER and choice["finish_reason"] == "stop"

"""The first lines of the README work in an empty folder, with dlstep installed from its wheel."""

import json
import re
import shutil
import subprocess
from contextlib import contextmanager

import pytest

from ..helpers.waiting import until
from .blocks import ROOT
from .test_add_your_own import installed

__all__ = ["installed"]

README = (ROOT / "README.md").read_text()
TEN_LINES, PRINTED = re.findall(r"## Ten lines\n\n```python\n(.*?)```\n\n```text\n(.*?)```", README, re.DOTALL)[0]
(CURL,) = re.findall(r"^(curl .*?)```", README, re.DOTALL | re.MULTILINE)
ANSWER = "53+39=92 shells. Max now has 92 shells."
START = 120.0  # seconds; torch and transformers are loaded on a busy machine


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
        ready = ["curl", "-sf", "--retry", "60", "--retry-delay", "1", "--retry-all-errors", f"{url}/ready"]
        subprocess.run(ready, check=True, capture_output=True, timeout=START)
        curl = CURL.replace("http://127.0.0.1:8000", url)
        answer = subprocess.run(curl, shell=True, check=True, capture_output=True, text=True, timeout=START)
    (choice,) = json.loads(answer.stdout)["choices"]
    assert choice["text"] == ANSWER and choice["finish_reason"] == "stop"

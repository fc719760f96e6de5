"""The README and docs/serving.md are true of the server."""

import re
import shutil
import subprocess
from dataclasses import fields
from pathlib import Path

import pytest

from dlstep.serve.router.metrics import Metrics
from dlstep.serve.settings import ServeOptions

from ..helpers.servers import nothing_goes_wrong_unseen  # noqa: F401  # pyright: ignore[reportUnusedImport]
from ..helpers.serving import served, tiny_llm

ROOT = Path(__file__).parents[2]
README, PAGE = (ROOT / "README.md").read_text(), (ROOT / "docs" / "serving.md").read_text()
SECTION = README[README.index("## A server") : README.index("docs/serving.md")]
ADDRESS = "http://127.0.0.1:8000"


def test_the_lines_of_the_readme_work_as_pasted(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", SECTION, re.DOTALL)
    (curl,) = re.findall(r"```\n(curl .*?)```", SECTION, re.DOTALL)
    assert shutil.which("curl"), "this test needs curl"
    with served(tiny_llm().engine) as server:
        found = subprocess.run(curl.replace(ADDRESS, server.url), shell=True, capture_output=True, text=True, check=True)
        assert "53+39=92 shells" in found.stdout
        exec(compile(code.replace(ADDRESS, server.url), "README.md", "exec"), {})
    settled = "".join(line.partition(" | ")[0] for line in capsys.readouterr().out.splitlines() if " | " in line)
    assert "53+39=92 shells" in settled


def test_the_page_names_every_option_that_limits_something_and_no_other() -> None:
    named = set(re.findall(r"--(\w+)", PAGE))
    own = {field.name for field in fields(ServeOptions)}
    assert own - {"port", "log_requests"} <= named | {"log_prompts"}
    assert {name for name in named if name.startswith(("max_queue", "queue_", "request_", "body_", "drain_"))} <= own


def metric_names() -> set[str]:
    """The names that `/metrics` has."""
    return set(re.findall(r"^# TYPE (\S+)", Metrics().text().decode(), re.MULTILINE))


def test_the_page_names_metrics_that_there_are() -> None:
    named = set(re.findall(r"`((?:vllm:|dlstep_|process_)\w+)", PAGE)) - {"process_"}
    assert named and named <= metric_names(), named - metric_names()
    assert {name for name in metric_names() if name.startswith("dlstep_") and not name.endswith("_created")} <= named


def test_examples_of_events_have_the_fields_that_are_sent() -> None:
    shown = set(re.findall(r'"(\w+)":', PAGE[PAGE.index("data: {") : PAGE.index("Each cell is")]))
    assert {"seq", "step", "nfe", "settled", "cells", "finish_reason", "tokens_per_forward"} <= shown

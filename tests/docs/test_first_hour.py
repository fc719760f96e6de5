"""Ten tasks of a first hour, in the words of the docs: in an empty folder, with dlstep installed from its wheel.

Where a line of the docs would take minutes, options for smaller sizes are appended to it.
"""

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from ..helpers.random_checkpoints import write_checkpoint
from ..helpers.waiting import until
from .blocks import ROOT, blocks_of
from .test_add_your_own import FORKING, installed, path_of

__all__ = ["installed"]

README = (ROOT / "README.md").read_text()
TEN_LINES, TEN_LINES_PRINTED = re.findall(r"## Ten lines\n\n```python\n(.*?)```\n\n```text\n(.*?)```", README, re.DOTALL)[0]
(CURL,) = re.findall(r"^(curl .*?)```", README, re.DOTALL | re.MULTILINE)
((LOAD, PUBLISHED),) = re.findall(r'(LLM\("(\w+/[^"]+)"\))', README)
STORY = "Max has 53 shells. Later Max buys 39 more. How many shells does Max have?"
ANSWER = "53+39=92 shells. Max now has 92 shells.\n"
START = 120.0  # seconds; torch and transformers are loaded on a busy machine


@dataclass(frozen=True, slots=True)
class Task:
    """One command of the docs.

    Attributes:
        page: The page that shows the line.
        line: The command as the page shows it.
        more: Options appended for smaller sizes, and files to look into.
        check: Raise AssertionError unless the output and the files in the folder are right.
    """

    page: str
    line: str
    check: Callable[[str, Path], None]
    more: str = ""

    @property
    def arguments(self):
        """The command, with the path of the docs replaced by that of a folder."""
        return shlex.split(f"{self.line} {self.more}".replace("my-model", "./mine"), comments=True)


def answers(output, folder):
    assert output.startswith(ANSWER)


def prints_what_the_readme_shows(output, folder):
    assert [line.rstrip() for line in output.splitlines()] == TEN_LINES_PRINTED.splitlines()


def takes_fewer_passes(output, folder):
    (found,) = json.loads(output.partition("]\n")[0] + "]")
    assert found["text"] == ANSWER.strip() and found["nfe"] == 4


def compares_both_rules(output, folder):
    rows = json.loads((folder / "rules" / "rows.json").read_text())
    assert len(rows) == 8 and {row["rule"] for row in rows} == {"threshold", "./my_rule.py"}


def forks(output, folder):
    *_, own, faster, other = output.splitlines()
    assert own.startswith("DoubtBound(doubt=0.1) 6 ") and faster.startswith("DoubtBound(doubt=0.9) 4 ")
    assert other.startswith("Quota(steps_per_block=2") and all(line.endswith(ANSWER.strip()) for line in (own, faster, other))


def finds_no_problem(output, folder):
    assert "problems: none" in output and "Qwen3ForCausalLM" in output


def decodes_own_checkpoint(output, folder):
    name, count = output.split()
    assert (name, int(count)) == ("mine", 8)


def evaluates_both_sets(output, folder):
    table = json.loads((folder / "stories" / "table.json").read_text())
    lines = (folder / "stories" / "answers.jsonl").read_text().splitlines()
    assert len(table) == 2 and len(lines) == 2 * 3
    assert {json.loads(line)["task"] for line in lines} == {"shells"}


GENERATE = f'dlstep generate --rule ./my_rule.py --doubt 0.9 "{STORY}"'
TASKS = {
    "decode": Task("README.md", "python ten_lines.py", prints_what_the_readme_shows),
    "change a threshold": Task("README.md", f"dlstep generate '{STORY}'", takes_fewer_passes, "--accept_threshold 0.7 --json"),
    "use your own rule": Task("docs/add_a_rule.md", GENERATE, answers),
    "compare rules": Task(
        "docs/add_a_rule.md",
        "dlstep compare --rules [threshold,./my_rule.py] --problems 20",
        compares_both_rules,
        "--problems 2 --strategies multi_bd --out rules",
    ),
    "step and fork": Task("docs/add_a_rule.md", "python use_rule.py", forks),
    "check your own checkpoint": Task("docs/troubleshooting.md", "dlstep models check my-model", finds_no_problem),
    "load your own checkpoint": Task("README.md", "python load.py", decodes_own_checkpoint),
    "evaluate": Task(
        "docs/evaluation.md",
        """dlstep eval --dataset_limit 60 --grid '{"accept_threshold": [0.3, 0.9]}' --out stories""",
        evaluates_both_sets,
        "--dataset_limit 3",
    ),
}
OF_THE_TEST = ("python ten_lines.py", "python load.py", f"dlstep generate '{STORY}'")  # blocks of the README, saved as files


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


def prepared(folder):
    """Save the files of the docs, and a checkpoint with random weights."""
    for block in blocks_of(path_of("add_a_rule")):
        if block.file is not None:
            (folder / block.file).write_text(block.text)
    (folder / "ten_lines.py").write_text(TEN_LINES)
    loading = LOAD.replace(PUBLISHED, "./mine")
    generating = "llm.generate([[5, 6, 7]], SamplingParams(max_tokens=8, ignore_eos=True))"
    code = f"from dlstep import LLM, SamplingParams\nllm = {loading}\n(output,) = {generating}\n"
    (folder / "load.py").write_text(f"{code}print(llm.engine.name, len(output.token_ids))\n")
    write_checkpoint(folder / "mine")


@pytest.mark.full
def test_ten_tasks_work_from_a_wheel_in_an_empty_folder(installed, tmp_path):
    """Install, serve, and the tasks of the table, each with its result."""
    code, version = installed.run(["dlstep", "--version"], tmp_path)
    assert code == 0 and re.fullmatch(r"dlstep \d+\.\d+\.\d+\n", version)
    prepared(tmp_path)
    assert shutil.which("curl"), "this test needs curl"
    with serving(installed, tmp_path) as url:
        jobs = json.dumps([(task.arguments, str(tmp_path)) for task in TASKS.values()])
        code, report = installed.run(["python", str(FORKING)], tmp_path, jobs)
        assert code == 0, report
        ran = json.loads(report.splitlines()[-1])
        assert ran["package"].startswith(str(installed.bin.parent)), "dlstep is not the one of the wheel"
        for (name, task), (code, output) in zip(TASKS.items(), ran["jobs"], strict=True):
            assert code == 0, f"{name}: {shlex.join(task.arguments)}\n{output}"
            task.check(output, tmp_path)
        ready = ["curl", "-sf", "--retry", "60", "--retry-delay", "1", "--retry-all-errors", f"{url}/ready"]
        subprocess.run(ready, check=True, capture_output=True, timeout=START)
        curl = CURL.replace("http://127.0.0.1:8000", url)
        answer = subprocess.run(curl, shell=True, check=True, capture_output=True, text=True, timeout=START)
        (choice,) = json.loads(answer.stdout)["choices"]
        assert choice["text"] == ANSWER.strip() and choice["finish_reason"] == "stop"


@pytest.mark.parametrize("name", TASKS)
def test_line_is_in_the_docs(name):
    task = TASKS[name]
    assert task.line in OF_THE_TEST or task.line in (ROOT / task.page).read_text()

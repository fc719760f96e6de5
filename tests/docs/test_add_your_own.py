"""`docs/add_a_strategy.md` and `docs/add_a_rule.md` run as pasted, in an empty folder, with dlstep installed from its wheel.

The first command goes through the console script. The others are forked off one process that has loaded the same
entry point and torch, because loading takes far longer than what the commands do.
"""

import json
import os
import shlex
import subprocess
import sys
import venv
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

import pytest

from .blocks import ROOT, Block, blocks_of, is_printed

PAGES = ("add_a_strategy", "add_a_rule")
FORKING = Path(__file__).with_name("forking.py")


def path_of(page):
    return ROOT / "docs" / f"{page}.md"


def commands(text):
    return [shlex.split(line, comments=True) for line in text.replace("\\\n", " ").splitlines() if line.strip()]


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

    def run(self, arguments, folder, stdin=None):
        """Return exit code and output, stdout and stderr as a terminal shows them."""
        done = subprocess.run(
            [str(self.bin / arguments[0]), *arguments[1:]],
            cwd=folder,
            env=self.environment,
            input=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=600,
            check=False,
        )
        return done.returncode, done.stdout


@pytest.fixture(scope="session")
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


@dataclass(frozen=True, slots=True)
class Job:
    """A command of a page, and the folder in which it runs."""

    page: str
    block: Block
    arguments: list[str]
    folder: Path


def jobs_of(page, folder):
    """Return the commands of a page; save its files in the new `folder` under their names."""
    folder.mkdir()
    of_page = blocks_of(path_of(page))
    jobs = []
    for block in of_page:
        if block.file is not None:
            (folder / block.file).write_text(block.text)
        elif block.language == "sh":
            jobs += [Job(page, block, arguments, folder) for arguments in commands(block.text)]
        else:  # the cell of a notebook, after the cell with the file of the page
            assert block.language == "python", f"{page} does not say what to do with\n{block.text}"
            (folder / "cells.py").write_text(f"{of_page[0].text}\n{block.text}")
            jobs.append(Job(page, block, ["python", "cells.py"], folder))
    return jobs


@pytest.mark.stress
def test_every_line_works_as_pasted_in_an_empty_folder(installed, tmp_path):
    """Commands run in the order of the page, and print what it shows."""
    jobs = [job for page in PAGES for job in jobs_of(page, tmp_path / page)]
    results = [installed.run(jobs[0].arguments, jobs[0].folder)]
    commands_json = json.dumps([(job.arguments, str(job.folder)) for job in jobs[1:]])
    code, answer = installed.run(["python", str(FORKING)], tmp_path, commands_json)
    assert code == 0, answer
    report = json.loads(answer.splitlines()[-1])
    assert report["package"].startswith(str(installed.bin.parent)), "dlstep is not the one of the wheel"
    outputs = {}
    for job, (code, output) in zip(jobs, [*results, *report["jobs"]], strict=True):
        fails = " FAILED\n" in (job.block.printed or "")  # a law that the page shows to fail
        assert code == int(fails), f"{shlex.join(job.arguments)}\n{output}"
        outputs[job.page, job.block.text] = outputs.get((job.page, job.block.text), "") + output
    for job in jobs:
        if job.block.printed is not None:
            output = outputs[job.page, job.block.text]
            assert is_printed(job.block.printed, output), f"{job.block.text}\n{output}"


@pytest.mark.parametrize("page", PAGES)
def test_the_first_block_is_a_short_file(page):
    first = blocks_of(path_of(page))[0]
    assert first.language == "python" and first.file == f"my_{page.rpartition('_')[2]}.py"
    assert len(first.text.splitlines()) < 40


def test_every_block_has_a_use():
    """Each block is saved, run, or the expected output of one that runs."""
    for page in PAGES:
        of_page = blocks_of(path_of(page))
        text = path_of(page).read_text()
        assert text.count("```") == 2 * len(of_page) + 2 * sum(block.printed is not None for block in of_page)
        assert all(block.file or block.language in ("sh", "python") for block in of_page)
        assert sum(block.printed is not None for block in of_page) >= 5

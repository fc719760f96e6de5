"""Trials of a user's files: each ends, and says what is wrong and where."""

import re
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from dlstep import rules
from dlstep.processes import Worker
from dlstep.testing.trial import KNOWN, TrialBench, TrialLimits, Verdict, verdict, warnings

from ..cli.faulty_files import FILES

ROOT = Path(__file__).parents[3]
PAGES = ("add_a_rule", "add_a_strategy")
SAVED = re.compile(r"ave (?:this|it) as\s+`([\w.]+)`:\s*```python\n(.*?)```", re.DOTALL)
FEW = (
    "unbounded number",
    "never accepts",
    "exception",
    "missing statistic",
    "no default",
    "exit",
    "interrupt",
    "output of the failing case",
)  # in `make test`; the others are of the same kinds


Report = tuple[str, list[str], list[Verdict]]  # why a file was refused (or nothing), warnings and verdicts


def limits(*, examples: int = 10) -> TrialLimits:
    return TrialLimits(examples, 0, case_timeout=60.0, law_timeout=600.0)


def try_files(connection: Connection, files: list[str], laws: list[str], given: TrialLimits, folder: str) -> None:
    """Try laws on one file after the other, and send a report of each."""
    bench = TrialBench(given, folder)
    for name in files:
        found = bench.loaded(name)
        if isinstance(found, str):
            connection.send((found, [], []))
            continue
        verdicts = [verdict(KNOWN[law], value, bench) for _, value in found for law in laws]
        connection.send(("", [warning for _, value in found for warning in warnings(value)], verdicts))


def all_tried(files: list[str], laws: list[str], given: TrialLimits, folder: Path) -> list[Report]:
    """The reports of the files, tried in a single worker."""
    worker = Worker(try_files, files, laws, given, str(folder), name="trial")
    try:
        return [worker.receive(500.0) for _ in files]
    finally:
        worker.kill()
        worker.end()


def check_faulty(names: tuple[str, ...], folder: Path) -> None:
    files = [str(folder / f"{name.replace(' ', '_').replace('__', '')}.py") for name in names]
    for name, path in zip(names, files, strict=True):
        Path(path).write_text(FILES[name].source, encoding="utf-8")
    reports = all_tried(files, ["progress"], limits(), folder)
    for name, path, (refused, warned, verdicts) in zip(names, files, reports, strict=True):
        faulty = FILES[name]
        failures = [each.failure for each in verdicts if each.failure]
        assert bool(refused) == (faulty.code == 2), (name, refused)
        assert bool(failures) == (faulty.code == 1), (name, failures)
        text = "\n".join([*failures, *[f"warning {each}" for each in warned], refused])
        for part in faulty.message:
            assert part in text, (name, part, text)
        if faulty.place:
            assert f'File "{path}", line {faulty.line}, in ' in text, (name, text)
        check_frames(text, path)


def check_frames(text: str, path: str) -> None:
    """The file of the user comes first, and nothing of dlstep or Hypothesis is shown."""
    files = re.findall(r'^\s*File "(.*?)", line', text, re.MULTILINE)
    assert all(file.startswith(path) for file in files), files


def test_faulty_files_end_and_say_what_is_wrong(tmp_path: Path) -> None:
    check_faulty(FEW, tmp_path)


@pytest.mark.stress
def test_all_faulty_files_end_and_say_what_is_wrong(tmp_path: Path) -> None:
    check_faulty(tuple(FILES), tmp_path)


def check_holds(report: Report, laws: int) -> None:
    refused, warned, verdicts = report
    assert not refused and not warned
    assert not [each for each in verdicts if each.failure or each.out_of_time]
    assert verdicts and len(verdicts) % laws == 0


def test_files_of_the_docs_hold(tmp_path: Path) -> None:
    found = [each for page in PAGES for each in SAVED.findall((ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8"))]
    sources = [(file, text) for file, text in found if file in ("my_rule.py", "second_look.py", "my_strategy.py")]
    assert len(sources) == 3
    for file, text in sources:
        (tmp_path / file).write_text(text, encoding="utf-8")
    laws = ["progress", "functions"]
    for report in all_tried([str(tmp_path / file) for file, _ in sources], laws, limits(examples=3), tmp_path):
        check_holds(report, len(laws))


@pytest.mark.stress
def test_rules_of_this_package_hold_as_files_of_a_user(tmp_path: Path) -> None:
    files: list[str] = []
    laws = ["progress", "functions", "outputs"]
    # With `keep`, dilated may take no row although `must` is true, which a rule of a user may not: its measure falls anyway.
    for name in set(rules.PLUGINS.own()) - {"dilated"}:
        source = Path(ROOT, "src", "dlstep", "rules", f"{name}.py").read_text(encoding="utf-8")
        source = re.sub(r"^from \.\.(\w)", r"from dlstep.\1", source, flags=re.MULTILINE)
        source = re.sub(r"^from \.(\w)", r"from dlstep.rules.\1", source, flags=re.MULTILINE)
        path = tmp_path / f"own_{name}.py"
        path.write_text(source, encoding="utf-8")
        files.append(str(path))
    for report in all_tried(files, laws, limits(examples=15), tmp_path):
        check_holds(report, len(laws))

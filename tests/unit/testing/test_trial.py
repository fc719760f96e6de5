"""Trials of a user's files: each ends, and says what is wrong and where."""

import re
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from dlstep import rules
from dlstep.processes import Worker
from dlstep.testing.trial import Finished, LawVerdict, Opened, TrialLimits, TrialRefused, tried

from ..cli.faulty_files import FILES

ROOT = Path(__file__).parents[3]
PAGES = ("add_a_rule", "add_a_strategy")
SAVED = re.compile(r"ave (?:this|it) as\s+`([\w.]+)`:\s*```python\n(.*?)```", re.DOTALL)
# In `make test`; the others are of the same kinds.
FEW = (
    "endless loop late", "endless loop in __post_init__", "endless sleep", "unbounded number", "never accepts", "exception",
    "missing statistic", "no default", "exit", "interrupt", "output without end",
)  # fmt: skip


def limits(*, case: float = 60.0, shrink: float = 0.0, law: float = 600.0, examples: int = 10) -> TrialLimits:
    return TrialLimits(examples, 0, case, shrink, law)


def try_files(connection: Connection, files: list[tuple[str, list[str], TrialLimits]], dump: str) -> None:
    """Try laws on one file after the other, and send the messages of each."""
    with Path(dump).open("w", encoding="utf-8") as file:
        for name, only, given in files:
            messages: list[object] = []
            messages.append(tried(name, only, given, messages.append, file))
            connection.send(messages)


def all_tried(files: list[tuple[str, list[str], TrialLimits]], folder: Path) -> list[list[object]]:
    """The messages of each file, tried in a single worker."""
    worker = Worker(try_files, files, str(folder / "dump"), name="trial")
    try:
        return [worker.receive(500.0) for _ in files]
    finally:
        worker.kill()
        worker.end()


def check_faulty(names: tuple[str, ...], folder: Path) -> None:
    files: list[tuple[str, list[str], TrialLimits]] = []
    for name in names:
        path = folder / f"{name.replace(' ', '_').replace('__', '')}.py"
        path.write_text(FILES[name].source, encoding="utf-8")
        # Only a timeout may depend on how fast the machine is.
        files.append((str(path), ["progress"], limits(case=0.5 if FILES[name].endless else 60.0)))
    for name, (path, *_), messages in zip(names, files, all_tried(files, folder), strict=True):
        faulty, (*before, last) = FILES[name], messages
        verdicts = [message for message in before if isinstance(message, LawVerdict)]
        failures = [verdict.failure for verdict in verdicts if verdict.failure]
        assert isinstance(last, TrialRefused if faulty.code == 2 else Finished), (name, last)
        assert bool(failures) == (faulty.code == 1), (name, failures)
        warnings = [text for message in before if isinstance(message, (Opened, LawVerdict)) for text in message.warnings]
        text = "\n".join([*failures, *[f"warning {each}" for each in warnings], getattr(last, "reason", "")])
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


def check_holds(messages: list[object], laws: int) -> None:
    verdicts = [message for message in messages if isinstance(message, LawVerdict)]
    assert isinstance(messages[-1], Finished), messages[-1]
    assert not [verdict for verdict in verdicts if verdict.failure or verdict.out_of_time or verdict.warnings], messages[0]
    assert verdicts and len(verdicts) % laws == 0
    assert not [message for message in messages if isinstance(message, Opened) and message.warnings]


def test_files_of_the_docs_hold(tmp_path: Path) -> None:
    found = [each for page in PAGES for each in SAVED.findall((ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8"))]
    sources = [(file, text) for file, text in found if file in ("my_rule.py", "second_look.py", "my_strategy.py")]
    assert len(sources) == 3
    for file, text in sources:
        (tmp_path / file).write_text(text, encoding="utf-8")
    laws = ["progress", "functions"]
    for messages in all_tried([(str(tmp_path / file), laws, limits(examples=3)) for file, _ in sources], tmp_path):
        check_holds(messages, len(laws))


@pytest.mark.stress
def test_rules_of_this_package_hold_as_files_of_a_user(tmp_path: Path) -> None:
    files: list[tuple[str, list[str], TrialLimits]] = []
    laws = ["progress", "functions", "outputs"]
    # With `keep`, dilated may take no row although `must` is true, which a rule of a user may not: its measure falls anyway.
    for name in set(rules.PLUGINS.own()) - {"dilated"}:
        source = Path(ROOT, "src", "dlstep", "rules", f"{name}.py").read_text(encoding="utf-8")
        source = re.sub(r"^from \.\.(\w)", r"from dlstep.\1", source, flags=re.MULTILINE)
        source = re.sub(r"^from \.(\w)", r"from dlstep.rules.\1", source, flags=re.MULTILINE)
        path = tmp_path / f"own_{name}.py"
        path.write_text(source, encoding="utf-8")
        files.append((str(path), laws, limits(examples=15)))
    for messages in all_tried(files, tmp_path):
        check_holds(messages, len(laws))

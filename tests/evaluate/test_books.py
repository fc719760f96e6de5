"""The books of a run: one process on a folder, checksums of its lines, and a key with the versions of code and environment."""

import json
import linecache
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, strategies as st
from killing import child_that_holds, ended
from running import answers, engine, run

import dlstep
from dlstep.cli import main
from dlstep.evaluate import versions
from dlstep.evaluate.checkpoint import ANSWERS, BESIDE, RUN, read
from dlstep.evaluate.crews import Answering
from dlstep.evaluate.options import EvalOptions, grid_of
from dlstep.evaluate.table import lines_of

Captured = pytest.CaptureFixture[str]
PACKAGE = Path(dlstep.__file__).parent


def copied(folder: Path, to: Path) -> Path:
    """A copy of the folder of a run, without its lock."""
    return shutil.copytree(folder, to, ignore=shutil.ignore_patterns("lock"))


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> EvalOptions:
    """A whole run of six problems with two sets of options."""
    out = str(tmp_path_factory.mktemp("books") / "run")
    options = EvalOptions(out=out, dataset_limit=6, grid=grid_of({"accept_threshold": [0.3, 0.9]}))
    run(options)
    return options


# One process on a folder.

COMMANDS = {
    "eval": ["eval", "--dataset_limit", "2", "--out"],
    "tune": ["tune", "--over", "accept_threshold=0.3,0.9", "--resume", "--out"],
    "throughput": ["tune", "--throughput", "--over", "buffer_size=1,2", "--out"],
    "compare": ["compare", "--strategies", "dmax", "--problems", "2", "--out"],
    "show": ["report", "--show", "shells/0/1"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_second_process_on_a_folder_is_refused_before_a_model_is_loaded(
    name: str, options: EvalOptions, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    def loaded(*_: object, **__: object) -> None:
        raise AssertionError("the refusal comes first")

    folder = copied(Path(options.out), tmp_path / "run")
    monkeypatch.setattr("dlstep.engine.loader.load_engine", loaded)
    monkeypatch.setattr("dlstep.llm.load_engine", loaded)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    child = child_that_holds(folder)
    try:
        assert main([*COMMANDS[name], str(folder)]) == 2
    finally:
        ended(child)
    told = capsys.readouterr().err
    assert f"{folder} is in use by process {child}: wait until it ends" in told and told.count("\n") == 1
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "lock"} == before


def test_the_run_itself_holds_the_lock_and_a_killed_holder_blocks_nobody(options: EvalOptions, tmp_path: Path) -> None:
    class Second(Answering):
        def step(self) -> Any:
            with pytest.raises(ValueError, match=f"{chosen.out} is in use by process"):
                run(chosen)
            refused.append(True)
            return super().step()

    refused: list[bool] = []
    chosen = replace(options, out=str(tmp_path / "run"))
    ended(child_that_holds(Path(chosen.out)))
    assert answers(run(chosen, Second(engine()))) == answers(Path(options.out)) and refused


# Checksums.


def altered(line: dict[str, Any], name: str) -> dict[str, Any]:
    """The line with another value of the same kind in a field."""
    value = line[name]
    match value:
        case bool():
            return line | {name: not value}
        case int() | float():
            return line | {name: value + 1}
        case str():
            return line | {name: f"{value}1"}
        case list():
            return line | {name: value[1:] if value else [1]}
        case _:
            return line | {name: {**value, "more": 1}}


@given(st.data())
def test_any_altered_field_is_told_with_file_and_line(
    options: EvalOptions, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from([ANSWERS, BESIDE]))
    lines = (Path(options.out) / name).read_text().splitlines()
    number = data.draw(st.integers(0, len(lines) - 1))
    line = json.loads(lines[number])
    change: Callable[[str], dict[str, Any]] = data.draw(
        st.sampled_from([lambda field: altered(line, field), lambda field: {k: v for k, v in line.items() if k != field}])
    )
    lines[number] = json.dumps(change(data.draw(st.sampled_from(sorted(line)))))
    folder = copied(Path(options.out), tmp_path_factory.mktemp("altered") / "run")
    (folder / name).write_text("\n".join(lines) + "\n")
    for reader in (lambda: read(folder), lambda: run(replace(options, out=str(folder)))):
        with pytest.raises(
            ValueError, match=rf"{name}, line {number + 1} (is not a line of a run, look at|does not have its checksum)"
        ):
            reader()
    shutil.rmtree(folder)


@pytest.mark.parametrize(("name", "number"), [(ANSWERS, 4), (BESIDE, 2)])
def test_a_deleted_line_is_answered_again_to_the_same_bytes(
    options: EvalOptions, tmp_path: Path, name: str, number: int
) -> None:
    folder = copied(Path(options.out), tmp_path / "run")
    lines = (folder / name).read_bytes().splitlines(keepends=True)
    number = next(place for place, line in enumerate(lines) if place >= number and b'"work"' not in line)
    (folder / name).write_bytes(b"".join([*lines[:number], *lines[number + 1 :]]))

    class Counting(Answering):
        def add(self, place: int, item: Any) -> None:
            added.append(place)
            super().add(place, item)

    added: list[int] = []
    assert answers(run(replace(options, out=str(folder)), Counting(engine()))) == answers(Path(options.out))
    assert len(added) == 1, "no other one is decoded"
    assert read(folder).beside.keys() == read(Path(options.out)).beside.keys()


def test_reports_and_references_refuse_an_edited_score(options: EvalOptions, tmp_path: Path, capsys: Captured) -> None:
    folder = copied(Path(options.out), tmp_path / "run")
    (folder / ANSWERS).write_text((folder / ANSWERS).read_text().replace('"score": 0.0', '"score": 1.0', 1))
    for arguments in (["report", str(folder)], ["report", options.out, "--against", str(folder)]):
        assert main(arguments) == 2
        told = capsys.readouterr().err
        assert f"{folder / ANSWERS}, line " in told and "checksum" in told and told.count("\n") == 1


# The key.


@pytest.mark.parametrize(
    ("part", "name"), [("versions", "scorers"), ("versions", "prompts"), ("versions", "decoding"), ("environment", "torch")]
)
def test_other_code_or_libraries_do_not_go_on(
    options: EvalOptions, monkeypatch: pytest.MonkeyPatch, part: str, name: str
) -> None:
    found: Callable[[object], dict[str, str]] = vars(versions)[part]
    monkeypatch.setattr(versions, part, lambda given: found(given) | {name: "another"})
    with pytest.raises(ValueError, match=f"holds a run with {part}.{name} .*, and now it is 'another': give another folder"):
        run(options)


def test_another_machine_goes_on_and_is_noted(options: EvalOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = copied(Path(options.out), tmp_path / "run")
    before = json.loads((folder / RUN).read_text())["machines"]
    monkeypatch.setattr(versions, "machine", lambda given, machine=versions.machine: machine(given) | {"device": "other"})
    for _ in range(2):
        run(replace(options, out=str(folder)))
    assert json.loads((folder / RUN).read_text())["machines"] == [*before, before[0] | {"device": "other"}]


def test_each_source_that_decides_answers_or_scores_is_in_a_digest() -> None:
    root = f"{PACKAGE.as_posix()}/"
    covered = {part: {path.as_posix().removeprefix(root) for path in versions.sources(part)} for part in versions.PARTS}
    assert {"core/block.py", "rules/threshold.py", "strategies/multi_bd.py", "driver/torch_driver.py"} <= covered["decoding"]
    assert {"evaluate/prompts.py", "evaluate/worked.json", "chat.py"} <= covered["prompts"]
    assert {"evaluate/scoring.py", "evaluate/maths.py", "evaluate/_jailed.py"} <= covered["scorers"]
    own = {path.relative_to(PACKAGE).as_posix() for path in (PACKAGE / "evaluate").iterdir() if path.is_file()}
    assert {f"evaluate/{name}" for name in versions.DECIDES_NOTHING} == own - set().union(*covered.values())
    assert not covered["prompts"] & covered["scorers"]


@given(
    st.dictionaries(st.sampled_from("abc"), st.binary(max_size=3), min_size=1), st.sampled_from("abcd"), st.binary(max_size=3)
)
def test_a_digest_is_that_of_names_and_contents(files: dict[str, bytes], name: str, content: bytes) -> None:
    changed = {**files, name: content}
    assert (versions.digest_of(files.items()) == versions.digest_of([*changed.items()][::-1])) == (files == changed)


def test_a_strategy_of_a_file_is_in_the_key(options: EvalOptions, tmp_path: Path) -> None:
    source = (PACKAGE / "rules" / "threshold.py").read_text().replace("from ..core", "from dlstep.core")
    digests: list[Any] = []
    for number, text in enumerate((source, f"{source}\n# changed\n")):
        (tmp_path / "mine.py").write_text(text)
        folder = tmp_path / str(number)
        code = f"eval --dataset_limit 1 --rule {tmp_path / 'mine.py'} --out {folder}"
        assert main(code.split()) == 0
        digests.append(read(folder).asked["key"]["versions"]["decoding"])
    assert digests[0] != digests[1] and read(Path(options.out)).asked["key"]["versions"]["decoding"] not in digests


# References pair by content.


def questions(path: Path, *numbers: int, more: int = 0) -> Path:
    """A file of stories of the embedded task as questions, in this order."""
    told = dlstep.tiny.problems(20)
    entries = [{"prompt": told[each].prompt, "answer": str(told[each].answer + more)} for each in numbers]
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return path


def asked(path: Path, threshold: float = 0.9) -> Any:
    """A run of a file of questions."""
    chosen = EvalOptions(
        ("questions",), questions=str(path), out=str(path.with_suffix("")), grid=grid_of({"accept_threshold": threshold})
    )
    return read(run(chosen))


def test_runs_are_compared_problem_by_problem_in_any_order(tmp_path: Path) -> None:
    one = asked(questions(tmp_path / "one.jsonl", 0, 1, 2, 3, 3, 4, 5))
    other = asked(questions(tmp_path / "other.jsonl", 5, 3, 4, 1, 3, 0, 2))
    part = asked(questions(tmp_path / "part.jsonl", 4, 2))
    for mine, reference in ((one, other), (other, one), (part, one), (one, part)):
        (line,) = lines_of(mine, reference)
        assert (line.equal, line.accuracy_gain, line.speed_gain) == (1.0, 0.0, 0.0)


def test_runs_of_different_problems_are_refused_by_name(tmp_path: Path) -> None:
    one = asked(questions(tmp_path / "one.jsonl", 0, 1, 2))
    for changed in (
        asked(questions(tmp_path / "others.jsonl", 3, 4, 5)),
        asked(questions(tmp_path / "golds.jsonl", 0, 1, 2, more=1)),
        asked(questions(tmp_path / "some.jsonl", 0, 1, 3)),
    ):
        with pytest.raises(ValueError, match=rf"{one.folder} and {changed.folder} asked different problems of questions: "):
            lines_of(one, changed)


def test_each_score_comes_with_the_settings_of_its_run(options: EvalOptions) -> None:
    result = read(Path(options.out))
    assert [json.loads(line.settings) for line in lines_of(result)] == [result.asked["key"]] * 2


def test_a_rule_of_a_notebook_is_part_of_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """A notebook's module has no file; IPython keeps the source of each cell for `linecache`."""
    monkeypatch.setitem(sys.modules, "notebook", ModuleType("notebook"))
    found: list[tuple[str, bytes]] = []
    for number, order in enumerate(("min", "max")):
        source, name = f"class Own:\n    def chosen(self, rows):\n        return {order}(rows)\n", f"cell-{number}"
        monkeypatch.setitem(linecache.cache, name, (len(source), None, source.splitlines(keepends=True), name))
        scope: dict[str, Any] = {"__name__": "notebook"}
        exec(compile(source, name, "exec"), scope)
        found.append(versions.own_source(scope["Own"]))
    assert [name for name, _ in found] == ["Own", "Own"]
    assert all(order in content for order, (_, content) in zip((b"min", b"max"), found, strict=True))

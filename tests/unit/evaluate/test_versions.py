"""The key of a run: versions of code and environment, and digests of what decides answers."""

import json
import linecache
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, strategies as st

import dlstep
from dlstep.cli import main
from dlstep.evaluate import versions
from dlstep.evaluate.checkpoint import RUN, read
from dlstep.evaluate.options import EvalOptions

from .conftest import copied
from .running import run

PACKAGE = Path(dlstep.__file__).parent


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
    assert {"evaluate/prompts.py", "evaluate/worked.json", "text/chat.py"} <= covered["prompts"]
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
        digests.append(read(folder).settings["key"]["versions"]["decoding"])
    assert digests[0] != digests[1] and read(Path(options.out)).settings["key"]["versions"]["decoding"] not in digests


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

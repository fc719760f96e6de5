"""Every strategy has a page, whose table is complete and whose example prints what stands below it."""

import re
from dataclasses import MISSING, fields
from pathlib import Path

import pytest

from dlstep import strategies

FOLDER = Path(__file__).parents[2] / "docs" / "strategies"
NAMES = [name for name in strategies.available() if (FOLDER / f"{name}.md").exists()]


def test_every_strategy_has_a_page() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.md")) == list(strategies.available())


@pytest.mark.parametrize("name", NAMES)
def test_the_example_prints_what_the_page_says(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    page = (FOLDER / f"{name}.md").read_text()
    (code, said), *others = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", page, re.DOTALL)
    assert not others
    exec(compile(code, f"{name}.md", "exec"), {})
    assert capsys.readouterr().out == said
    assert len(said.splitlines()) >= 8


@pytest.mark.parametrize("name", NAMES)
def test_the_table_names_every_parameter_with_its_default(name: str) -> None:
    page = (FOLDER / f"{name}.md").read_text()
    table = dict(re.findall(r"^\| `(\w+)` \| `?\"?([^`\"|]*)\"?`? \| [^|]* \|$", page, re.MULTILINE))
    assert table == {field.name: str(field.default) for field in fields(strategies.load(name)) if field.default is not MISSING}

"""The examples of `docs/infill.md` print what the page shows."""

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "infill.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize(("code", "output"), EXAMPLES, ids=range(len(EXAMPLES)))
def test_the_example_prints_what_the_page_says(code: str, output: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(code, "infill.md", "exec"), {})
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == output.splitlines()


def test_the_page_has_examples() -> None:
    assert len(EXAMPLES) == PAGE.count("```python") == 2

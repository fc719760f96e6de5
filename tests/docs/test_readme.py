"""The Python of the README runs as it stands."""

import re
from pathlib import Path

import pytest

README = (Path(__file__).parents[2] / "README.md").read_text()
# The one for the server is run by test_serving_page.py.
BLOCKS = [code for code in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "openai" not in code]


@pytest.mark.parametrize("code", BLOCKS, ids=range(len(BLOCKS)))
def test_readme_code_runs(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out.strip()


def test_the_first_lines_print_what_the_readme_shows(capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(BLOCKS[0], "README.md", "exec"), {})
    printed, (shown,) = capsys.readouterr().out, re.findall(r"```text\n(.*?)```", README, re.DOTALL)
    assert [line.rstrip() for line in printed.splitlines()] == shown.splitlines()

"""The strategy of `docs/add_a_strategy.md` is what it says: one short file that passes every law."""

import importlib
import re
import sys
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from dlstep import strategies
from dlstep.core import Strategy
from dlstep.testing.laws import LAWS, Law

PAGE = Path(__file__).parents[2] / "docs" / "add_a_strategy.md"
CODE, TEST = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.fixture(scope="module")
def strategy(tmp_path_factory: pytest.TempPathFactory) -> type[Strategy]:
    """The class of the page, loaded by a dotted path from outside the package."""
    folder = tmp_path_factory.mktemp("outside")
    (folder / "lab").mkdir()
    (folder / "lab" / "doubt_bound.py").write_text(CODE)
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    return strategies.load("lab.doubt_bound")


def test_the_file_is_short() -> None:
    assert len(CODE.splitlines()) < 60


def test_the_test_of_the_page_compiles() -> None:
    compile(TEST, str(PAGE), "exec")


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@given(data=st.data())
def test_law(strategy: type[Strategy], law: Law, data: st.DataObject) -> None:
    law(strategy, data)

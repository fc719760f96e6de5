"""Codes of refusals: the table of the documentation, their statuses, and the exception that carries a refusal.

No module of the outer layers reads a message: they translate the field of a refusal, and branch by its code.
"""

import pickle
import re
from pathlib import Path
from typing import get_args

import pytest

from dlstep.core import STATUS, Code, Refusal, Refused

ROOT = Path(__file__).parents[3]
SERVING = ROOT / "docs" / "serving.md"
SOURCES = ROOT / "src" / "dlstep"


def test_the_documentation_lists_every_code_with_its_status():
    rows = re.findall(r"^\| ((?:`[a-z_]+`(?:, )?)+) \| (\d+) \| .+ \|$", SERVING.read_text(), re.MULTILINE)
    listed = [(code, int(status)) for codes, status in rows for code in re.findall("[a-z_]+", codes)]
    assert sorted(listed) == sorted(STATUS.items())
    assert STATUS.keys() == {*get_args(Code)}


def test_an_exception_of_another_process_carries_its_refusal():
    refusal = Refusal("pinned.3", "out_of_range", "must be below 3, got 3")
    error = pickle.loads(pickle.dumps(Refused(*refusal)))
    assert isinstance(error, ValueError) and error.refusal == refusal
    assert str(error) == str(refusal) == "pinned.3: must be below 3, got 3"
    assert str(Refusal("", "not_ready", "the model is loading")) == "the model is loading"


def test_a_refusal_cannot_be_changed():
    with pytest.raises(AttributeError):
        Refusal("seed", "missing", "give one").field = "n"


@pytest.mark.parametrize("layer", ["serve", "batch", "cli"])
def test_no_module_reads_a_message(layer):
    """Modules search messages neither with `in` nor with a string method."""
    reading = re.compile(r"\bin str\(error\)|(\bstr\(error\)|\.message)\.\w+with\(|\.message\.(find|split|partition)\(")
    found = [path.name for path in (SOURCES / layer).rglob("*.py") if reading.search(path.read_text())]
    assert found == []

"""Processors by name, class and value, and the errors that name what is wrong."""

from pathlib import Path

import pytest

from dlstep import SamplingParams
from dlstep.core.request import processors_of
from dlstep.processors.min_tokens import MinTokens

from ...helpers import processors as own


@pytest.mark.parametrize(
    "given, expected",
    [
        ({"min_tokens": {"count": 5}}, (MinTokens(5),)),
        ({"min_tokens": None}, (MinTokens(),)),
        ("min_tokens", (MinTokens(),)),
        ([MinTokens, own.Wild(3), {"min_tokens": {"count": 2}}], (MinTokens(), own.Wild(3), MinTokens(2))),
        ((), ()),
    ],
)
def test_processors_are_found_by_name_class_and_value(given, expected):
    assert processors_of(given) == SamplingParams(processors=given).processors == expected


def test_processor_of_a_file_has_its_fields_as_options(tmp_path):
    file = tmp_path / "forced_again.py"
    file.write_text(Path(own.__file__).read_text().replace("from .faulty import raised", "raised = print"))
    (value,) = processors_of({str(file): {"token": 4}})
    assert (type(value).__module__, value) == ("forced_again", type(value)(4))


@pytest.mark.parametrize(
    "given, words",
    [
        ("min_token", "did you mean min_tokens"),
        ({"min_tokens": 5}, "takes a mapping of option names to values, got 5"),
        ({"min_tokens": {"counts": 5}}, "MinTokens has no option 'counts'.*did you mean count"),
        ({"min_tokens": {"count": -1}}, "count: must be at least 0"),
        ("quota", "did you mean rule='quota'"),
        (5, "a processor must be a name, a class or a value, got 5"),
    ],
)
def test_wrong_processor_is_refused(given, words):
    with pytest.raises(ValueError, match=words):
        SamplingParams(processors=given)

"""JSON files of checkpoints: errors name the file and the fault."""

import pytest

from dlstep.models.reading import read_object


@pytest.mark.parametrize(
    "text, message",
    [
        ("[" * 100_000, "is no JSON: RecursionError"),
        ('{"a": }', "is no JSON"),
        ("\ufeff{}", "is no JSON"),
    ],
)
def test_errors_name_the_file_and_the_fault(text, message, tmp_path):
    path = tmp_path / "file.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=message) as refusal:
        read_object(path)
    assert str(path) in str(refusal.value)


def test_other_values_than_objects_are_refused(tmp_path):
    path = tmp_path / "file.json"
    path.write_text("[1]")
    with pytest.raises(ValueError, match="must hold a JSON object, got list"):
        read_object(path)

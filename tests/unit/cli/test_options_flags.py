"""Options in messages, as flags."""

import pytest

from dlstep.cli.options import as_yaml, with_flags

NAMES = ("rule", "stop", "max_tokens", "model", "num_pages")


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("SamplingParams.max_tokens must be at least 1", "--max_tokens must be at least 1"),
        ("give it as well, as rule='quota'", "give it as well, as --rule quota"),
        ("the rule must stop", "the rule must stop"),
        ("no folder at '/a/Folder.model'", "no folder at '/a/Folder.model'"),
        ("D2F.rule=3 does nothing", "--rule=3 does nothing"),
        ("GSM8K.model, entry 1", "GSM8K.model, entry 1"),
        ("Folder.models is none", "Folder.models is none"),
        ("--rule takes a text", "--rule takes a text"),
        ("num_pages=3 take 1 GiB", "num_pages=3 take 1 GiB"),
    ],
)
def test_only_names_that_are_options_become_flags(message: str, shown: str) -> None:
    assert with_flags(message, NAMES) == shown


def test_none_is_null_in_yaml() -> None:
    assert as_yaml("None: 3, Nonesuch") == "null: 3, Nonesuch"

"""Options in messages, as flags."""

import pytest

import dlstep.rules.threshold  # noqa: F401 - a rule, whose class messages may name
from dlstep.cli.parser import BARE, as_yaml, with_flags

NAMES = ("rule", "stop", "max_tokens", "model", "num_pages")


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("SamplingParams.max_tokens must be at least 1", "--max_tokens must be at least 1"),
        ("give it as well, as rule='quota'", "give it as well, as --rule quota"),
        ("the rule must stop", "the rule must stop"),
        ("no folder at '/a/Folder.model'", "no folder at '/a/Folder.model'"),
        ("Threshold.rule: it is wrong", "--rule: it is wrong"),
        ("GSM8K.model, entry 1", "GSM8K.model, entry 1"),
        ("Folder.models is none", "Folder.models is none"),
        ("--rule takes a text", "--rule takes a text"),
        ("num_pages=3 take 1 GiB", "num_pages=3 take 1 GiB"),
    ],
)
def test_only_names_that_are_options_become_flags(message: str, shown: str) -> None:
    assert with_flags(message, NAMES) == shown
    assert with_flags(message, ()) == message


@pytest.mark.parametrize(
    ("hint", "shown"),
    [
        ("here it is SamplingParams(max_tokens=...)", "here it is --max_tokens"),
        ("here it is rule='quota' with max_tokens", "here it is --rule quota with --max_tokens"),
        ("here it is num_pages=-1", "here it is --num_pages -1"),
        ("did you mean --max_tokens?", "did you mean --max_tokens?"),
    ],
)
def test_a_hint_names_nothing_but_options(hint: str, shown: str) -> None:
    assert with_flags(hint, NAMES, BARE) == shown


def test_none_is_null_in_yaml() -> None:
    assert as_yaml("None: 3, Nonesuch") == "null: 3, Nonesuch"

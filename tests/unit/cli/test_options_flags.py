"""Fields in messages, as flags."""

import pytest

from dlstep.cli.options import as_yaml, shown_error
from dlstep.core.errors import Refused


@pytest.mark.parametrize(
    "field, flag",
    [
        ("max_tokens", "--max_tokens: "),
        ("pins.3", "--pinned.3: "),
        ("buffer_policy.0.max_requests", "--buffer_policy.0.max_requests: "),
        ("prompt", "PROMPT: "),
        ("", ""),
    ],
)
def test_the_field_of_a_refusal_is_named_as_on_the_command_line(field, flag):
    message = "as SamplingParams.max_tokens=3 and rule='quota'"
    assert shown_error(Refused(field, "conflict", message)) == flag + message
    assert shown_error(ValueError(message)) == message


def test_none_is_null_in_yaml():
    assert as_yaml("None: 3, Nonesuch") == "null: 3, Nonesuch"

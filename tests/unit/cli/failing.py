"""A wrong request of the command."""

import pytest

from dlstep.cli import main

Captured = pytest.CaptureFixture[str]


def failure(arguments: list[str], capsys: Captured) -> str:
    """The one line that a wrong request gives on stderr."""
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("dlstep: error: ")
    return err

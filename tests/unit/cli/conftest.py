"""A file with a user's rule, and one whose rule breaks a law."""

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from dlstep.cli import main

OWN_RULE = '''"""Unmasks the `count` most probable positions."""

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Gt

from dlstep.core import Choice, check_ranges


@dataclass(frozen=True, slots=True)
class Best(Choice):
    """As the module says."""

    count: Annotated[int, Gt(0)] = 2
    """Positions that a forward pass unmasks."""

    def __post_init__(self):
        check_ranges(self)

    def chosen(self, block_pass):
        """The best positions."""
        chances = block_pass.samples.probabilities
        return sorted(sorted(range(len(chances)), key=lambda index: -chances[index])[: self.count])


RULE = Best
'''
LAWLESS = (
    OWN_RULE.replace("RULE = Best", "RULE = Nothing")
    .replace("class Best", "class Nothing")
    .replace("return sorted(sorted(range(len(chances)), key=lambda index: -chances[index])[: self.count])", "return []")
)


@pytest.fixture
def printed(capsys) -> Callable[..., str]:
    """Run a command line that ends with a code. Return what it prints to stdout."""

    def run(line: str, code: int = 0) -> str:
        assert main(shlex.split(line)) == code
        return capsys.readouterr().out

    return run


@pytest.fixture
def failure(capsys) -> Callable[[str], str]:
    """Run a wrong command line. Return the one line that it prints, on stderr."""

    def run(line: str) -> str:
        assert main(shlex.split(line)) == 2
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1) and err.startswith("dlstep: error: ")
        return err

    return run


@pytest.fixture(scope="session")  # a module is loaded once, from one path
def own(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("rules")
    (folder / "best_of_own.py").write_text(OWN_RULE)
    (folder / "lawless.py").write_text(LAWLESS)
    return folder

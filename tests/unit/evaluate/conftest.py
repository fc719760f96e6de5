"""Runs that several tests share."""

import shutil
from pathlib import Path

import pytest

from dlstep.core import DlstepError
from dlstep.evaluate.programs import Programs
from dlstep.evaluate.runner import Answering


def copied(folder: Path, to: Path) -> Path:
    """A copy of the folder of a run, without its lock."""
    return shutil.copytree(folder, to, ignore=shutil.ignore_patterns("lock"))


@pytest.fixture
def added(monkeypatch) -> list[int]:
    """The places of the answers that runs decode from now on."""
    add, places = Answering.add, []

    def counted(answering, place, *more):
        places.append(place)
        add(answering, place, *more)

    monkeypatch.setattr(Answering, "add", counted)
    return places


@pytest.fixture(scope="module")
def sandboxed() -> Programs:
    """A sandbox, where there can be one."""
    found = Programs()
    try:
        found.check()
    except DlstepError as error:
        pytest.skip(str(error))
    return found

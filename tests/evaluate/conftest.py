"""Scorers that several tests share."""

from collections.abc import Iterator

import pytest

from dlstep.core import DlstepError
from dlstep.evaluate.jail import Jail, find_jail
from dlstep.evaluate.maths import Maths


@pytest.fixture(scope="session")
def maths() -> Iterator[Maths]:
    """A process that compares formulas; patient, because the machine may be busy."""
    maths = Maths(seconds=60.0)
    yield maths
    maths.close()


@pytest.fixture(scope="session")
def jail() -> Jail:
    """A jail, where there can be one."""
    try:
        return find_jail()
    except DlstepError as error:
        pytest.skip(str(error))

"""Scorers that several tests share."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlstep.core import DlstepError
from dlstep.evaluate.jail import Jail, find_jail
from dlstep.evaluate.maths import WORKER
from dlstep.evaluate.options import EvalOptions, grid_of

from .running import run


@pytest.fixture(scope="session", autouse=True)
def patience() -> Iterator[None]:
    """More time to compare formulas, because the machine may be busy."""
    seconds, WORKER.seconds = WORKER.seconds, 60.0
    yield
    WORKER.seconds = seconds
    WORKER.close()


@pytest.fixture(scope="session")
def jail() -> Jail:
    """A jail, where there can be one."""
    try:
        return find_jail()
    except DlstepError as error:
        pytest.skip(str(error))


def copied(folder: Path, to: Path) -> Path:
    """A copy of the folder of a run, without its lock."""
    return shutil.copytree(folder, to, ignore=shutil.ignore_patterns("lock"))


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> EvalOptions:
    """A whole run of six problems with two sets of options."""
    out = str(tmp_path_factory.mktemp("books") / "run")
    options = EvalOptions(out=out, dataset_limit=6, grid=grid_of({"accept_threshold": [0.3, 0.9]}))
    run(options)
    return options

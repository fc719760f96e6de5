"""Runs that several tests share."""

import shutil
from pathlib import Path

import pytest

from dlstep.evaluate.options import EvalOptions, grid_of

from .running import run


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

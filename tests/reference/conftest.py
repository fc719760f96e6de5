"""Networks of the reference tests: each one as plain transformers runs it, and as the engine does, with the same weights."""

from pathlib import Path

import pytest
import torch

from .engine import Pair, make_pair


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def pairs(tmp_path_factory) -> list[Pair]:
    """Networks from restless to settled, from doubtful to sure."""
    base: Path = tmp_path_factory.mktemp("networks")
    kinds = ((0.0, 1.0), (0.0, 2.5), (0.3, 1.5), (0.8, 1.0))
    return [make_pair(base / str(seed), seed, settle, sharp) for seed, (settle, sharp) in enumerate(kinds)]

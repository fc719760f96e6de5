"""What tests of kernels in triton's interpreter share."""

from collections.abc import Iterator
from importlib.util import find_spec

import numpy as np
import pytest

collect_ignore_glob = [] if find_spec("triton") else ["test_*.py"]  # it exists for Linux only


@pytest.fixture(scope="module", autouse=True)
def quiet_numpy() -> Iterator[None]:
    """The interpreter computes with numpy, which warns of what kernels mean to do with infinities and NaN."""
    with np.errstate(all="ignore"):
        yield

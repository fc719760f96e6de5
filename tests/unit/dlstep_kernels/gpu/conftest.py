"""What tests of kernels in triton's interpreter share."""

from collections.abc import Iterator

import numpy as np
import pytest


@pytest.fixture(scope="module", autouse=True)
def quiet_numpy() -> Iterator[None]:
    """The interpreter computes with numpy, which warns of what kernels mean to do with infinities and NaN."""
    with np.errstate(all="ignore"):
        yield

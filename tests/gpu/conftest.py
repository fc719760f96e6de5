"""Tests that need a CUDA device; without one each is skipped and says so."""

import pytest
import torch


@pytest.fixture(autouse=True)
def cuda_device() -> str:
    """The device to test on."""
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device: torch.cuda.is_available() is false")
    return "cuda"

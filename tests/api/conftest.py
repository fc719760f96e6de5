"""The LLM that most tests of this folder use."""

import pytest
from shadow_llm import make_llm

from dlstep import LLM


@pytest.fixture
def llm() -> LLM:
    """An LLM on a shadow device, which never ends an answer by itself."""
    return make_llm()

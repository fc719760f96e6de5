"""The LLM that many unit tests use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from dlstep import LLM


@pytest.fixture
def llm() -> LLM:
    """An LLM on a shadow device, which never ends an answer by itself.

    Imported late: `conftest.py` of other folders must see the packages that they check before anything imports them.
    """
    from ..helpers.shadow_llm import make_llm

    return make_llm()

"""A session that tests of views show."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dlstep.core import SamplingParams

if TYPE_CHECKING:  # tests of frames do with the core alone
    from dlstep import Session

PROMPT = "Max has 3 <b>shells</b> & more"
PARAMS = SamplingParams(max_tokens=40, ignore_eos=True)


@pytest.fixture
def session(llm) -> Session:
    """A session in the middle of two answers."""
    session = llm.session()
    session.submit(PROMPT, PARAMS)
    session.submit("other", PARAMS)
    for _ in range(3):
        session.step()
    return session

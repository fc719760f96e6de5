"""A session that tests of views show."""

import pytest

from dlstep import LLM, SamplingParams, Session

PROMPT = "Max has 3 <b>shells</b> & more"
PARAMS = SamplingParams(max_tokens=40, ignore_eos=True)


@pytest.fixture
def session(llm: LLM) -> Session:
    """A session in the middle of two answers."""
    session = llm.session()
    session.submit(PROMPT, PARAMS)
    session.submit("other", PARAMS)
    for _ in range(3):
        session.step()
    return session

"""Fixtures of tests with a server in their own process, for `conftest.py` or one file to import."""

from collections.abc import Iterator

import pytest

from .serving import TEMPLATE, Served, served, tiny_llm

__all__ = ["nothing_goes_wrong_unseen", "tiny"]


@pytest.fixture(autouse=True)
def nothing_goes_wrong_unseen(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """The event loop and uvicorn had nothing to complain of: no exception in a callback, no task that failed alone."""
    yield
    told = [record.getMessage() for record in caplog.get_records("call") if record.name.startswith(("asyncio", "uvicorn"))]
    assert not told


@pytest.fixture(scope="session")
def tiny() -> Iterator[Served]:
    """The embedded model, served."""
    with served(tiny_llm().engine, template=TEMPLATE) as server:
        yield server

"""Fixtures of tests with a server in their own process, for `conftest.py` or one file to import."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from .serving import TEMPLATE, Served, served, tiny_llm

__all__ = ["nothing_goes_wrong_unseen", "template", "tiny"]


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a chat template, of which engines without a network have none."""
    path = tmp_path_factory.mktemp("serve") / "template.jinja"
    path.write_text(TEMPLATE)
    return path


@pytest.fixture(autouse=True)
def nothing_goes_wrong_unseen(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """The event loop and uvicorn had nothing to complain of: no exception in a callback, no task that failed alone."""
    yield
    told = [record.getMessage() for record in caplog.get_records("call") if record.name.startswith(("asyncio", "uvicorn"))]
    assert not told


@pytest.fixture(scope="session")
def tiny(template: Path) -> Iterator[Served]:
    """The embedded model, served."""
    with served(tiny_llm().engine, chat_template=str(template)) as server:
        yield server

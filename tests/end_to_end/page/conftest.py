"""One browser a module, one server a session. Without a browser these tests are skipped, and say so."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from playwright.sync_api import Browser

from ...helpers.serving import Paced, Served, served, tiny_llm
from .browser import CHROMIUM, NO_BROWSER, Visit, Watched, chromium, opened


@pytest.fixture(scope="session")
def driver() -> Paced:
    """The driver of `site`, slow enough that a run can be seen; closing its gate holds all runs."""
    return Paced(tiny_llm().engine.driver, 0.02)


@pytest.fixture(scope="session")
def site(driver) -> Iterator[Served]:
    """The embedded model, served."""
    with served(replace(tiny_llm().engine, driver=driver)) as server:
        yield server


@pytest.fixture(scope="session")
def locked() -> Iterator[Served]:
    """A server that asks for a key; its model is no network."""
    with served(keys=("sesame",)) as server:
        yield server


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Headless Chromium."""
    if CHROMIUM is None:
        pytest.skip(NO_BROWSER)
    with chromium() as found:
        yield found


@pytest.fixture
def visit(browser, site) -> Iterator[Visit]:
    """Opens the page; after the test, nothing may have gone wrong in it."""
    pages: list[Watched] = []

    def visited(fragment="", **given):
        pages.append(opened(browser, f"{site.url}/{fragment}", **given))
        return pages[-1]

    yield visited
    for watched in pages:
        watched.check()
        foreign = [url for url in watched.requests if not url.startswith((site.url, "blob:", "data:"))]
        assert not foreign
        watched.page.context.close()

"""A browser for tests, and a page that is watched: what it complains of fails the test that used it."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

CHROMIUM = os.environ.get("DLSTEP_CHROMIUM") or next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
NO_BROWSER = "there is no Chromium: install it (`apt-get install chromium`), or name one by DLSTEP_CHROMIUM"
SECONDS = 30
expect.set_options(timeout=SECONDS * 1000)  # a busy machine is no error
GRAVE = ("serious", "critical")
DROP = """async ([name, text]) => {
    const data = new DataTransfer();
    data.items.add(new File([text], name, { type: "application/json" }));
    for (const kind of ["dragenter", "dragover", "drop"]) {
        document.body.dispatchEvent(new DragEvent(kind, { dataTransfer: data, bubbles: true, cancelable: true }));
    }
}"""
WIDER = """() => [...document.querySelectorAll('*')].filter((each) => each.getBoundingClientRect().right > innerWidth + 1
    && !each.closest('.scroll, .answer, .tabs, .unseen, .tree')).map((each) => each.outerHTML.slice(0, 80))"""


@contextmanager
def chromium() -> Iterator[Browser]:
    """A headless browser. Its event loop occupies the thread: no other may run there meanwhile."""
    options = ["--disable-dev-shm-usage", "--enable-precise-memory-info", "--js-flags=--expose-gc"]
    options += ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=options)
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Watched:
    """A page of ours, with what it complained of and what it asked for. Errors that a test expects are named in `expected`."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    expected: tuple[str, ...] = ()

    def check(self) -> None:
        """No error, no warning, no violation of the policy."""
        left = [each for each in self.complaints if not any(part in each for part in self.expected)]
        assert not left, left

    def ended(self, count: int = 1) -> None:
        """Wait until so many runs are shown and all have ended."""
        expect(self.page.locator(".lane")).to_have_count(count)
        expect(self.page.locator(".lane .state", has_text="ended")).to_have_count(count)

    def drawn(self) -> None:
        """Wait for the next drawing of the page."""
        self.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def generate(self) -> None:
        """Ask what stands in the form."""
        self.page.locator("#go").click()

    def answers(self) -> list[str]:
        """The texts that are shown, run by run."""
        self.drawn()
        return self.page.locator(".answer").all_text_contents()

    def where(self) -> str:
        """The text beside the slider."""
        self.drawn()
        return self.page.locator("#where").text_content() or ""

    def fork(self, name: str, value: str) -> None:
        """Fork at the moment that is shown, with another value of an option."""
        self.page.locator("#fork-here").click()
        field_ = self.page.locator("#fork").get_by_label(name, exact=True)
        field_.fill(value)
        self.page.locator("#fork-form button.main").click()

    def drop(self, text: str, name: str = "recording.json") -> None:
        """Let a file fall onto the page."""
        self.page.evaluate(DROP, [name, text])

    def saved(self) -> str:
        """The text of the file that the page saves."""
        with self.page.expect_download() as download:
            self.page.locator("#save").click()
        return download.value.path().read_text()

    def accessible(self, part: str | None = None) -> None:
        """axe-core finds nothing serious, in the page or in a part of it."""
        self.drawn()
        found = Axe().run(self.page, context=part)
        assert len(found.response["passes"]) > 5  # it looked
        grave = [each for each in found.response["violations"] if each["impact"] in GRAVE]
        assert not grave, [(each["id"], [node["html"] for node in each["nodes"]][:4]) for each in grave]

    def fits(self) -> None:
        """There is no horizontal scrolling."""
        self.drawn()
        wide = self.page.evaluate("document.documentElement.scrollWidth > innerWidth")
        assert not wide, self.page.evaluate(WIDER)


Visit = Callable[..., Watched]


def watch(context: BrowserContext) -> Watched:
    """A new page, watched from its start."""
    page = context.new_page()
    page.set_default_timeout(SECONDS * 1000)
    watched = Watched(page)
    page.on("console", lambda said: watched.complaints.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: watched.complaints.append(f"{error.message}\n{error.stack}"))
    page.on("request", lambda request: watched.requests.append(request.url))
    return watched


def opened(browser: Browser, url: str, **given: Any) -> Watched:
    """A watched page of a server that is ready to be asked, in a context of its own."""
    options = {"viewport": {"width": 1280, "height": 860}, "reduced_motion": "reduce"} | given
    watched = watch(browser.new_context(**options))
    watched.page.goto(url)
    expect(watched.page.locator("#go")).to_be_enabled()
    return watched


@contextmanager
def files_opened(browser: Browser) -> Iterator[Callable[..., Watched]]:
    """Open pages of files, without a network. At the end none has complained or asked for anything but its own file."""
    pages: list[Watched] = []

    def opened(file: Path, **options: Any) -> Watched:
        pages.append(watch(browser.new_context(offline=True, reduced_motion="reduce", **options)))
        pages[-1].page.goto(file.as_uri())
        return pages[-1]

    yield opened
    for watched in pages:
        watched.check()
        assert [url for url in watched.requests if not url.startswith(("about:", "blob:", "data:"))] == [watched.page.url]
        watched.page.context.close()

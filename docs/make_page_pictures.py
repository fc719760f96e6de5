"""Take the pictures of the live page for `docs/serving.md`: `make page-pictures`.

`PYTHONPATH=. python docs/make_page_pictures.py --all FOLDER` writes every view in both themes at three widths instead, to be
looked at. The embedded model is served, and each forward pass waits until it is let through, so that the same code gives the
same pictures.
"""

import asyncio
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from io import BytesIO
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Semaphore, Thread

from PIL import Image
from playwright.sync_api import Browser, Page, expect, sync_playwright

from dlstep import LLM, Plan, Samples
from dlstep.core import Driver
from dlstep.serve.http.server import Server, listen
from dlstep.serve.router.router import Router
from dlstep.serve.settings import ServeOptions
from tests.helpers.serving import ThreadHost

FOLDER = Path(__file__).parent / "page"
STORY = "Ann has 27 shells. Now Ann drops 8. Later Ann finds 20 more. How many shells does Ann have?"
PLENTY = 10_000  # forward passes
SIZES = {360: 740, 1280: 900, 3840: 2160}
THEMES = ("light", "dark")
# The pictures in the docs: view, theme, width.
CHOSEN = (
    ("generating", "light", 1280),
    ("scrubbed", "dark", 1280),
    ("forked", "light", 1280),
    ("race", "dark", 1280),
    ("forked", "dark", 3840),
    ("generating", "dark", 360),
    ("scrubbed", "light", 360),
)
COLOURS = 256


class Gate:
    """A driver that runs no forward pass before it is let through."""

    def __init__(self, driver: Driver) -> None:
        self.driver, self.free = driver, Semaphore(0)

    def run(self, plan: Plan) -> Samples:
        self.free.acquire()
        return self.driver.run(plan)

    def close(self) -> None:
        """Let nothing through that has not been let through."""
        while self.free.acquire(blocking=False):
            pass


@contextmanager
def site() -> Iterator[tuple[str, Gate]]:
    """The address of a server of the embedded model, and its gate."""
    llm = LLM(num_threads=1)
    gate = Gate(llm.engine.driver)
    options = ServeOptions(port=0, log_requests=False, drain_seconds=1.0)
    server = Server(Router([ThreadHost(replace(llm.engine, driver=gate)).start], options, llm.engine.tokenizer), ())
    with listen(options.host, options.port) as listener:
        thread = Thread(target=lambda: asyncio.run(server.serve([listener])))
        thread.start()
        while not server.started:
            thread.join(0.05)
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}", gate
        finally:
            gate.free.release(PLENTY)
            server.ask_to_end()
            thread.join()


def ended(page: Page, runs: int) -> None:
    """Wait for the ends of all runs that are shown."""
    expect(page.locator(".lane .state", has_text="ended")).to_have_count(runs, timeout=60_000)
    settle(page)


def settle(page: Page) -> None:
    """Wait for two drawings, after which the page stands still."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def ask(page: Page, gate: Gate, forwards: int) -> None:
    """Ask the story, and let this many forward passes through."""
    gate.close()
    page.locator("#prompt").fill(STORY)
    page.locator("#go").click()
    for forward in range(1, forwards + 1):
        gate.free.release()
        expect(page.locator("#where")).to_contain_text(f"frame {forward} of {forward}", timeout=60_000)
    settle(page)


def generating(page: Page, gate: Gate) -> None:
    ask(page, gate, 4)


def scrubbed(page: Page, gate: Gate) -> None:
    ask(page, gate, 0)
    gate.free.release(PLENTY)
    ended(page, 1)
    page.locator("#moment").fill("3")
    page.locator("[data-position='6']").click()


def forked(page: Page, gate: Gate) -> None:
    scrubbed(page, gate)
    page.locator("#moment").fill("2")
    page.locator("#fork-here").click()
    page.locator("#fork").get_by_label("accept threshold", exact=True).fill("0.4")
    page.locator("#fork-form button.main").click()
    ended(page, 2)


def race(page: Page, gate: Gate) -> None:
    for rule in ("quota", "factor", "spaced"):
        page.locator("#rival").click()
        page.locator("#options").get_by_label("rule", exact=True).locator("visible=true").select_option(rule)
    ask(page, gate, 0)
    gate.free.release(PLENTY)
    ended(page, 4)


VIEWS: dict[str, Callable[[Page, Gate], None]] = {
    "generating": generating,
    "scrubbed": scrubbed,
    "forked": forked,
    "race": race,
}


@contextmanager
def opened(browser: Browser, url: str, theme: str, width: int, height: int) -> Iterator[Page]:
    """The page in a window, ready to be asked."""
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=theme, reduced_motion="reduce")  # pyright: ignore
    page = context.new_page()
    page.goto(url)
    expect(page.locator("#go")).to_be_enabled(timeout=60_000)
    yield page
    context.close()


def few_colours(png: bytes) -> Image.Image:
    """A picture with a palette."""
    return Image.open(BytesIO(png)).convert("RGB").quantize(COLOURS, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)


def take(browser: Browser, url: str, gate: Gate, view: str, theme: str, width: int, folder: Path) -> Path:
    """Take one picture."""
    with opened(browser, url, theme, width, SIZES[width]) as page:
        VIEWS[view](page, gate)
        page.evaluate("document.activeElement.blur()")
        page.evaluate("innerWidth < 600 ? document.getElementById('stage').scrollIntoView() : scrollTo(0, 0)")
        settle(page)
        path = folder / f"{view}_{theme}_{width}.png"
        few_colours(page.screenshot()).save(path, optimize=True)
        gate.free.release(PLENTY)
    return path


def film(browser: Browser, url: str, gate: Gate) -> Path:
    """An animation: an answer forms, is scrubbed back, and forked; both runs go on side by side."""
    shots = list[tuple[Image.Image, int]]()
    with opened(browser, url, "light", 1180, 980) as page:
        box = {"x": 316.0, "y": 62.0, "width": 864.0, "height": 600.0}

        def shoot(milliseconds: int) -> None:
            page.evaluate("document.activeElement.blur()")
            settle(page)
            png = page.screenshot(clip=box)  # pyright: ignore[reportArgumentType]
            shots.append((Image.open(BytesIO(png)).convert("RGB"), milliseconds))

        ask(page, gate, 0)
        shoot(900)
        forward = 0
        while not page.locator(".state", has_text="ended").count():
            forward += 1
            gate.free.release()
            expect(page.locator("#where")).to_contain_text(f"frame {forward} of {forward}", timeout=60_000)
            shoot(500)
        shots[-1] = (shots[-1][0], 1400)
        for moment in range(forward - 1, 1, -1):
            page.locator("#moment").fill(str(moment))
            shoot(260)
        gate.close()
        page.locator("#fork-here").click()
        page.locator("#fork").get_by_label("accept threshold", exact=True).fill("0.4")
        page.locator("#fork-form button.main").click()
        expect(page.locator(".lane")).to_have_count(2)
        gate.free.release(PLENTY)
        ended(page, 2)
        for moment in range(2, forward + 1):
            page.locator("#moment").fill(str(moment))
            shoot(650)
        shots[-1] = (shots[-1][0], 3500)
    path = FOLDER / "fork.gif"
    # One palette for all: what stands still is then stored once.
    palette = shots[-3][0].quantize(128, Image.Quantize.FASTOCTREE)
    images = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image, _ in shots]
    times = [time for _, time in shots]
    images[0].save(path, save_all=True, append_images=images[1:], duration=times, loop=0, optimize=True)
    return path


def main(arguments: list[str]) -> int:
    """Take all pictures, and say how large they are."""
    everything = arguments[:1] == ["--all"]
    folder = Path(arguments[1]) if everything else FOLDER
    chosen = tuple(product(VIEWS, THEMES, SIZES)) if everything else CHOSEN
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        print("there is no Chromium: install it, for example by `apt-get install chromium`", file=sys.stderr)
        return 2
    with TemporaryDirectory() as drafts, site() as (url, gate), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--font-render-hinting=none"])
        taken = [take(browser, url, gate, *each, Path(drafts)) for each in chosen]
        browser.close()
        folder.mkdir(parents=True, exist_ok=True)
        for path in taken:
            shutil.copy(path, folder / path.name)
            print(f"{folder / path.name}: {path.stat().st_size / 1024:.0f} kB")
        if not everything:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--font-render-hinting=none"])
            path = film(browser, url, gate)
            print(f"{path}: {path.stat().st_size / 1024:.0f} kB")
            browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Take the pictures of the documentation site: `make site-pictures`, after `make docs`.

`python docs/make_site_pictures.py --all FOLDER` takes pages of every kind instead, to be looked at.
"""

import shutil
import sys
from io import BytesIO
from itertools import product
from pathlib import Path

from make_page_pictures import COLOURS, settle
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from playwright.sync_api import Browser, sync_playwright

FOLDER = Path(__file__).parent / "site"
SITE = Path(__file__).parents[1] / "build" / "site"
SIZES = {"desktop": (1280, 900), "phone": (390, 844)}
THEMES = ("light", "dark")
PAGES = {
    "index": "index.html",
    "api": "reference/python/models.html",
    "rules": "reference/python/rules.html",
    "http": "reference/http.html",
    "command_line": "reference/command_line.html",
    "configuration": "reference/configuration.html",
    "strategy": "strategies/threshold.html",
    "evaluation": "evaluation.html#columns",
    "code": "add_a_strategy.html#write-it",
}


def take(browser: Browser, page: str, size: str, theme: str, path: Path) -> None:
    """Take a picture of what a window of this size shows first, and fail if the page or its code is cut off."""
    width, height = SIZES[size]
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=theme, reduced_motion="reduce")  # pyright: ignore
    shown = context.new_page()
    shown.goto(f"{SITE.as_uri()}/{page}")
    settle(shown)
    wide = shown.evaluate("document.documentElement.scrollWidth")
    assert wide <= width, f"{page} is {wide} pixels wide in a window of {width}"
    code = "[...document.querySelectorAll('.highlight-python pre, .highlight-sh pre')]"
    assert not shown.evaluate(f"{code}.filter(block => block.scrollWidth > block.clientWidth).length"), f"{page} cuts code off"
    picture = Image.open(BytesIO(shown.screenshot())).convert("RGB")
    shows = PngInfo()  # tests compare it with the page
    shows.add_itxt("code", "\n".join(shown.locator("article pre").all_inner_texts()))
    picture.quantize(COLOURS, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).save(path, optimize=True, pnginfo=shows)
    print(f"{path}: {path.stat().st_size / 1024:.0f} kB")
    context.close()


def main(arguments: list[str]) -> int:
    """Take all pictures."""
    everything = arguments[:1] == ["--all"]
    folder = Path(arguments[1]) if everything else FOLDER
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        print("there is no Chromium: install it, for example by `apt-get install chromium`", file=sys.stderr)
        return 2
    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--font-render-hinting=none"])
        for name, size, theme in product(PAGES if everything else ("index",), SIZES, THEMES):
            stem = f"{size}_{theme}"
            take(browser, PAGES[name], size, theme, folder / f"{f'{name}_{stem}' if everything else stem}.png")
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

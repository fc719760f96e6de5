"""Take the picture of the slider that the first notebook shows: `make page-pictures`, after `make notebooks`.

The picture is of the stored output, so it needs no model.
"""

import shutil
import sys
from html import escape
from io import BytesIO
from pathlib import Path

import nbformat
from PIL import Image
from playwright.sync_api import expect, sync_playwright

ROOT = Path(__file__).parent.parent
NOTEBOOK, PICTURE = ROOT / "notebooks" / "01_step_by_step.ipynb", ROOT / "docs" / "notebook.png"
STEP = 3
STYLE = """body { margin: 0; padding: 12px; background: #fff; color: #111; font: 14px sans-serif; }
pre { margin: 0 0 10px; padding: 8px 10px; background: #f5f5f5; border: 1px solid #e0e0e0; }
pre { font: 13px/1.4 "DejaVu Sans Mono", monospace; }"""


def page() -> str:
    """Return the cell with the slider and its output as a page."""
    for cell in nbformat.read(NOTEBOOK, as_version=4).cells:
        for output in cell.get("outputs", ()):
            html = output.get("data", {}).get("text/html", "")
            if "dlstep-steps" in html:
                return f"<!doctype html><style>{STYLE}</style><pre>{escape(cell.source)}</pre>{html}"
    raise SystemExit(f"{NOTEBOOK.name} shows no slider: run make notebooks")


def main() -> int:
    """Take the picture and print its size."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        print("there is no Chromium: install it, for example by `apt-get install chromium`", file=sys.stderr)
        return 2
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--font-render-hinting=none"])
        tab = browser.new_page(viewport={"width": 860, "height": 400}, reduced_motion="reduce")
        tab.set_content(page())
        view = tab.locator(".dlstep-steps")
        view.locator("#moment").fill(str(STEP))
        expect(view.locator("#where")).to_contain_text(f"step {STEP} of")
        view.locator("[data-position='2']").click()
        tab.evaluate("document.activeElement.blur()")
        png = tab.screenshot(full_page=True)
        browser.close()
    Image.open(BytesIO(png)).convert("RGB").quantize(128, dither=Image.Dither.NONE).save(PICTURE, optimize=True)
    print(f"{PICTURE}: {PICTURE.stat().st_size / 1024:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())

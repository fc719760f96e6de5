"""The pictures of the live page are those that `make page-pictures` takes, small, and shown."""

import re
from pathlib import Path

from PIL import Image

from ..helpers.scripts import script

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "page"
LARGEST = {".png": 150_000, ".gif": 600_000}  # bytes


def test_every_picture_is_made_small_and_shown() -> None:
    maker = script("make_page_pictures")
    made = {f"{view}_{theme}_{width}.png" for view, theme, width in maker.CHOSEN}
    assert {path.name for path in FOLDER.iterdir()} == made | {"fork.gif"}
    page = (ROOT / "docs" / "serving.md").read_text("utf-8")
    assert set(re.findall(r'(?:\]\(|src=")page/([\w.]+)', page)) == made | {"fork.gif"}
    for path in FOLDER.iterdir():
        assert path.stat().st_size < LARGEST[path.suffix], path.name
        with Image.open(path) as image:
            image.load()
            width = int(path.stem.rpartition("_")[2]) if path.suffix == ".png" else image.width
            assert (image.width, getattr(image, "n_frames", 1) > 10) == (width, path.suffix == ".gif")


def test_the_picture_of_the_notebook_is_small_and_shown() -> None:
    picture = ROOT / "docs" / "notebook.png"
    assert picture.stat().st_size < LARGEST[".png"] and "(notebook.png)" in (ROOT / "docs" / "structure.md").read_text("utf-8")


def test_every_view_is_shown_in_both_themes_and_at_three_widths() -> None:
    names = [path.stem.split("_") for path in FOLDER.glob("*.png")]
    views, themes, widths = (set(part) for part in zip(*names, strict=True))
    assert (views, themes, widths) == ({"generating", "scrubbed", "forked", "race"}, {"light", "dark"}, {"360", "1280", "3840"})

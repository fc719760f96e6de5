"""The pictures of terminals are what `make terminal-pictures` would write now."""

import pytest

from ..helpers.scripts import script
from .blocks import ROOT

FOLDER = ROOT / "docs"


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("theme", ["dark", "light"])
def test_the_pictures_are_current(width, theme):
    maker = script("make_terminal_pictures")
    stored = (FOLDER / "terminal" / f"demo_{width}_{theme}.svg").read_text()
    assert stored == maker.picture(width, maker.THEMES[theme], f"demo-{width}-{theme}")
    assert "unmasked" in stored and "http" not in stored.replace("http://www.w3.org/2000/svg", "").replace(
        "https://www.textualize.io", ""
    )

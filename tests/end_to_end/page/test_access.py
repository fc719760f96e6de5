"""Every view, in both themes: axe-core finds nothing serious, and nothing scrolls sideways on a telephone."""

from itertools import pairwise

import pytest
from playwright.sync_api import expect

from .browser import Visit, Watched
from .test_use import STORY, ask


def run_and_fork(watched: Watched) -> None:
    """A run, a fork of it that differs, and a chosen position."""
    ask(watched, STORY)
    watched.ended()
    watched.page.locator("#first").click()
    watched.fork("accept threshold", "0.01")
    watched.ended(2)
    watched.page.locator("[data-position='2']").first.click()


@pytest.mark.parametrize("theme", ["light", pytest.param("dark", marks=pytest.mark.stress)])
def test_every_view_is_accessible_and_fits_a_telephone(visit: Visit, theme: str) -> None:
    watched = visit(color_scheme=theme)
    page = watched.page
    sides = ({"width": 360, "height": 740}, {"width": 1280, "height": 860})

    def look() -> None:
        for side in sides:
            page.set_viewport_size(side)
            watched.fits()
        watched.accessible()

    look()
    run_and_fork(watched)
    look()
    page.locator("#moment").fill("1")
    look()
    for opener, closer in (("#fork-here", "#fork-cancel"), ("#help-open", "#help-close"), ("#key-open", "#key-close")):
        page.locator(opener).click()
        page.set_viewport_size(sides[0])
        watched.fits()
        watched.accessible("dialog[open]")
        page.locator(closer).click()
    page.set_viewport_size(sides[1])
    for _ in range(3):
        page.locator("#rival").click()
    for each in page.locator("summary:visible").all():
        each.click()
    watched.generate()
    watched.ended(4)
    look()


@pytest.mark.stress
def test_the_theme_follows_the_system_and_the_switch(visit: Visit) -> None:
    watched = visit(color_scheme="dark")
    root, page = watched.page.locator("html"), watched.page
    expect(root).to_have_attribute("data-theme", "dark")
    page.emulate_media(color_scheme="light")
    expect(root).to_have_attribute("data-theme", "light")
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.locator("#theme").click()
    page.locator("#theme").click()
    expect(root).to_have_attribute("data-theme", "dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != dark


SHADES = """async () => {
    const { shades, card } = (await import('./page/scale.js')).palette();
    return [shades, card];
}"""


def luminance(colour: list[int]) -> float:
    """Relative luminance of WCAG 2."""
    red, green, blue = (
        value / 12.92 if value <= 0.03928 else ((value + 0.055) / 1.055) ** 2.4 for value in (v / 255 for v in colour)
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


# What the three kinds of colour blindness leave of linear red, green and blue: Machado, Oliveira and Fernandes, 2009.
SEEN_BY = {
    "protanopia": ((0.152, 1.053, -0.205), (0.115, 0.786, 0.099), (-0.004, -0.048, 1.052)),
    "deuteranopia": ((0.367, 0.861, -0.228), (0.280, 0.673, 0.047), (-0.012, 0.043, 0.969)),
    "tritanopia": ((1.256, -0.077, -0.179), (-0.078, 0.931, 0.148), (0.005, 0.691, 0.304)),
}


@pytest.mark.parametrize("theme", ["light", pytest.param("dark", marks=pytest.mark.stress)])
def test_the_scale_can_be_read_without_colours(visit: Visit, theme: str) -> None:
    shades, card = visit(color_scheme=theme).page.evaluate(SHADES)
    steps = [luminance(shade) for shade in shades]
    rising = steps == sorted(steps, reverse=theme == "light")
    contrast = [(max(one, two) + 0.05) / (min(one, two) + 0.05) for one, two in pairwise(steps)]
    assert rising and min(contrast) > 1.05
    ground = luminance(card)
    assert max(steps[-1], ground) / (min(steps[-1], ground) + 0.05) > 7  # the most probable stands out most
    for matrix in SEEN_BY.values():
        seen = [
            [sum(share * (value / 255) ** 2.2 for share, value in zip(row, shade, strict=True)) for row in matrix]
            for shade in shades
        ]
        lights = [0.2126 * red + 0.7152 * green + 0.0722 * blue for red, green, blue in seen]
        assert lights == sorted(lights, reverse=theme == "light")

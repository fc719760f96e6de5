"""Every view, in both themes: axe-core finds nothing serious, and nothing scrolls sideways on a telephone."""

import pytest

from .test_use import STORY, ask


def run_and_fork(watched):
    """A run, a fork of it that differs, and a chosen position."""
    ask(watched, STORY)
    watched.ended()
    watched.page.locator("#first").click()
    watched.fork("accept threshold", "0.01")
    watched.ended(2)
    watched.page.locator("[data-position='2']").first.click()


@pytest.mark.parametrize("theme", ["light", pytest.param("dark", marks=pytest.mark.stress)])
def test_every_view_is_accessible_and_fits_a_telephone(visit, theme):
    watched = visit(color_scheme=theme)
    page = watched.page
    sides = ({"width": 360, "height": 740}, {"width": 1280, "height": 860})

    def look():
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

"""What the page says where nothing can be done: before the server answers, without a prompt, after a failed run."""

from functools import partial

from playwright.sync_api import Browser, Route, expect

from ...helpers.serving import Served
from .browser import Visit, watch
from .test_use import STORY, ask


def test_a_server_that_does_not_respond_is_waited_for(browser: Browser, site: Served) -> None:
    watched = watch(browser.new_context())
    page, watched.expected = watched.page, ("Failed to load",)
    page.route("**/v1/*", lambda route: route.abort())
    page.goto(site.url)
    expect(page.locator("#loading")).to_contain_text("The server does not respond")
    expect(page.locator("#notice")).to_be_hidden()
    page.unroute("**/v1/*")
    expect(page.locator("#go")).to_be_enabled()
    expect(page.locator("#loading")).to_be_hidden()
    watched.check()
    page.context.close()


def test_an_empty_prompt_is_not_sent_and_says_so(visit: Visit) -> None:
    watched = visit()
    ask(watched, "  ")
    expect(watched.page.locator("#notice")).to_contain_text("Write a prompt first")
    expect(watched.page.locator("#prompt")).to_be_focused()
    expect(watched.page.locator(".lane")).to_have_count(0)


def test_a_failed_run_cannot_be_forked(visit: Visit) -> None:
    watched = visit()
    watched.expected = ("400",)
    page, fork = watched.page, watched.page.locator("#fork-here")
    ask(watched, STORY)
    watched.ended()
    page.locator("#moment").fill("1")
    expect(fork).not_to_have_attribute("aria-disabled", "true")
    page.route("**/fork", lambda route: route.fulfill(status=400, json={"error": {"message": "no such step"}}))
    watched.fork("accept threshold", "0.05")
    expect(page.locator(".lane.failed .state")).to_contain_text("no such step")
    expect(fork).to_have_attribute("aria-disabled", "true")
    fork.dispatch_event("click")
    expect(page.locator("#notice")).to_contain_text("Cannot fork here: this run failed")
    ask(watched, STORY)
    expect(page.locator("#notice")).to_be_hidden(timeout=3000)


def answered(cards: list[dict[str, str]], route: Route) -> None:
    """Answer with these models."""
    route.fulfill(json={"data": cards})


def test_the_description_of_the_model_is_shown_if_there_is_one(browser: Browser, site: Served) -> None:
    text = "Only knows <b>word problems</b>."
    for cards in ([{"id": "x", "description": text}], [{"id": "x"}], []):
        watched = watch(browser.new_context())
        watched.page.route("**/v1/models", partial(answered, cards))
        watched.page.goto(site.url)
        expect(watched.page.locator("#go")).to_be_enabled()
        shown = text in str(cards)
        expect(watched.page.locator("#about")).to_have_text(text if shown else "")
        expect(watched.page.locator("#about")).to_be_visible(visible=shown)
        watched.check()
        watched.page.context.close()

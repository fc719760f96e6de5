"""The page that is opened before the model is loaded: it says so, and works as soon as it is, without a reload."""

from threading import Event

from playwright.sync_api import expect

from ...helpers.serving import ThreadHost, served, tiny_llm
from .browser import watch
from .test_use import STORY, ask


class LateHost(ThreadHost):
    """An engine that is loaded when the gate opens."""

    gate: Event

    def start(self, *given, **options):
        self.gate.wait(60)
        return super().start(*given, **options)


def test_a_page_opened_while_the_model_loads_wakes_up_by_itself(browser):
    engine = tiny_llm().engine
    host = LateHost(engine)
    host.gate = Event()
    with served(engine, host=host, waits=False) as server:
        watched = watch(browser.new_context(viewport={"width": 1280, "height": 860}, reduced_motion="reduce"))
        page, watched.expected = watched.page, ("503",)
        page.goto(server.url)
        expect(page.locator("#loading")).to_contain_text("The model is loading")
        expect(page.locator("#loading-time")).to_have_text("2 s")
        expect(page.locator("#go")).to_be_disabled()
        expect(page.locator("#notice")).to_be_hidden()
        watched.accessible()
        watched.fits()
        host.gate.set()
        expect(page.locator("#go")).to_be_enabled()
        expect(page.locator("#loading")).to_be_hidden()
        ask(watched, STORY)
        watched.ended()
        assert len([url for url in watched.requests if url == f"{server.url}/"]) == 1, "it was not loaded again"
        watched.check()
        page.context.close()

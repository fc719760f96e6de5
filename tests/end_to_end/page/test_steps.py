"""The view of steps of notebooks, in a page without a server: by mouse, by keys, without scripts, several in one page."""

import pytest
from playwright.sync_api import expect

from dlstep import views

from ...helpers.serving import tiny_llm
from ...unit.views.test_notebook_steps import spelled
from .browser import files_opened
from .hostile import TEXTS
from .test_safety import FOREIGN
from .test_use import STORY, answer

OTHER = STORY.replace("53", "12")


@pytest.fixture(scope="module")
def session():
    """Two answers, the second of which began two steps later."""
    session = tiny_llm().session()
    session.submit(STORY)
    session.step()
    session.step()
    session.submit(OTHER)
    session.run()
    yield session
    session.close()


@pytest.fixture
def opened(browser, tmp_path):
    """Opens outputs of cells as a page."""
    with files_opened(browser) as file_opened:

        def page(*outputs, style="", **options):
            target = tmp_path / "notebook.html"
            text = "\n<p>between</p>\n".join(outputs)
            head = '<!doctype html><html lang="en"><title>x</title>'
            target.write_text(f'{head}<body style="{style}"><main><h1>A notebook</h1>{text}</main>', "ascii")
            return file_opened(target, **options)

        yield page


def texts(view):
    """The answers of a view."""
    return view.locator(".answer:visible").all_text_contents()


def where(view):
    """The chosen step."""
    return view.locator("#where").text_content() or ""


def test_a_slider_goes_through_the_steps(opened, session):
    watched = opened(session._repr_html_())
    view, last = watched.page.locator(".dlstep-steps"), session.state.step
    expect(view.locator("#where")).to_have_text(f"step {last} of {last}")
    assert texts(view) == [answer(STORY), answer(OTHER)]
    view.locator("#first").click()
    assert where(view) == f"step 0 of {last}" and set(texts(view)[0]) == {"·"} and len(texts(view)) == 1
    states = {state.step: state for state in session.trace.states()}
    for step in range(1, last + 1):
        view.locator("#forth").click()
        assert where(view) == f"step {step} of {last}"
        counts = view.locator(".request:visible b").all_text_contents()
        nfes = [sequence.nfe for sequence in map(states[step].find, range(2)) if sequence is not None]
        assert all(f"{nfe} forward pass" in text for text, nfe in zip(counts, nfes, strict=True))
    view.locator("#moment").press("Home")
    view.locator("#moment").press("ArrowRight")
    assert where(view) == f"step 1 of {last}"
    changed = "position 2, +, unmasked, probability 0.999, changed in this step"
    expect(view.locator(".cell.differs").first).to_have_attribute("aria-label", changed)
    view.locator("[data-position='2']").first.click()
    expect(view.locator(".readout").first).to_contain_text("position 2, +, ")
    view.locator(".answer").first.press("ArrowRight")
    expect(view.locator(".readout").first).to_contain_text("position 3, ")
    view.locator(".answer").first.press("ArrowDown")
    assert where(view) == f"step 2 of {last}"
    view.locator("#pace").select_option("16")
    view.locator("#play").click()
    expect(view.locator("#where")).to_have_text(f"step {last} of {last}")
    expect(view.locator(".readout").first).to_contain_text("since step")


def test_without_scripts_the_last_state_is_shown(opened, session):
    page = opened(session._repr_html_(), java_script_enabled=False).page
    expect(page.locator(".dlstep-steps")).to_contain_text(f"State at step {session.state.step}")
    assert answer(STORY).replace("\n", "↵") in (page.locator(".dlstep-steps").text_content() or "")


def test_hostile_tokens_stay_texts(opened, session):
    trace = spelled(session.trace, [*TEXTS, "</script>", "<!--", '"', "\x00"])
    watched = opened(views.steps_html(trace))
    view = watched.page.locator(".dlstep-steps")
    for step in range(session.state.step + 1):
        view.locator("#moment").fill(str(step))
        view.locator("[data-position='1']").first.click()
    assert "<script>window.hacked = true</script>" in "".join(texts(view))
    assert watched.page.evaluate("window.hacked") is None
    assert len(watched.page.evaluate(FOREIGN)) == 1  # the script of the view
    assert not set("".join(texts(view))) & set("\x00\u202e\u2066\u200b")

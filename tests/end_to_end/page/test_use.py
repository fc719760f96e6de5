"""The page is used: by mouse and by keys alone, as people do, in front of a real server."""

import json

import pytest
from playwright.sync_api import expect

from dlstep import SamplingParams

from ...helpers.serving import TEMPLATE, served, tiny_llm
from .browser import opened

STORY = "Max has 53 shells. Later Max buys 39 more. How many shells does Max have?\n"
OTHER = "Ann has 21 apples. Later Ann buys 64 more. How many apples does Ann have?\n"


def answer(prompt, **options):
    """The answer of the engine without any page."""
    (output,) = tiny_llm().generate(prompt, SamplingParams(max_tokens=128, strategy_options=options))
    return output.text


def ask(watched, prompt):
    """Write a prompt and let it be answered."""
    watched.page.locator("#prompt").fill(prompt)
    watched.generate()


def test_an_answer_forms_and_can_be_gone_through(visit):
    watched = visit()
    ask(watched, STORY)
    watched.ended()
    page = watched.page
    assert watched.answers() == [answer(STORY)]
    last = int(page.locator("#moment").get_attribute("max") or 0)
    assert watched.where().startswith(f"frame {last} of {last}") and last > 2
    page.locator("#first").click()
    assert watched.where().startswith(f"frame 0 of {last}")
    assert set(watched.answers()[0]) == {"·"}
    page.locator("#forth").click()
    assert watched.where().startswith("frame 1 of")
    page.locator("#moment").fill(str(last - 1))
    assert watched.where().startswith(f"frame {last - 1} of")
    page.locator("#first").click()
    page.locator("#pace").select_option("16")
    page.locator("#play").click()
    expect(page.locator("#where")).to_contain_text(f"frame {last} of {last}")
    expect(page.locator("#play")).to_have_attribute("aria-label", "Play")


def test_a_fork_goes_on_from_there_and_is_compared(visit):
    watched = visit()
    page = watched.page
    ask(watched, STORY)
    watched.ended()
    page.locator("#moment").fill("1")
    watched.fork("accept threshold", "0.05")
    watched.ended(2)
    one, two = watched.answers()
    assert one == answer(STORY)
    expect(page.locator(".lane h3").nth(1)).to_contain_text("A from frame 1: accept_threshold 0.05")
    verdict = page.locator("#verdict").text_content() or ""
    assert ("the same answer" in verdict) == (one == two) and "A took 6 forward passes, B " in verdict
    page.locator("#moment").fill("1")
    one, two = watched.answers()
    assert one == two
    # A fork of a fork, beside both of them in the tree.
    page.locator(".answer").nth(1).click()
    page.locator("#moment").fill("1")
    watched.fork("accept threshold", "0.6")
    watched.ended(2)
    expect(page.locator("#tree .run")).to_have_count(3)
    page.locator("#tree .run").first.click()
    expect(page.locator(".lane")).to_have_count(1)
    for box in page.locator("#tree input").all()[1:]:
        box.check()
    expect(page.locator(".lane")).to_have_count(3)


@pytest.mark.stress
def test_a_run_can_be_stopped(visit, driver):
    watched = visit()
    driver.gate.clear()
    try:
        ask(watched, STORY)
        expect(watched.page.locator(".state", has_text="running")).to_have_count(1)
        watched.page.get_by_role("button", name="Stop").click()
    finally:
        driver.gate.set()
    expect(watched.page.locator(".state")).to_contain_text("cancelled")


def test_saved_runs_are_opened_by_drop_and_by_picker(visit):
    watched = visit()
    ask(watched, STORY)
    watched.ended()
    watched.page.locator("#moment").fill("2")
    watched.fork("accept threshold", "0.05")
    watched.ended(2)
    shown = watched.answers()
    text = watched.saved()
    told = json.loads(text)
    assert told["dlstep_recording"] == 1 and [run["text"] for run in told["runs"]] == shown
    assert all(type(run["head"]["seed"]) is int for run in told["runs"])
    first = told["runs"][1]["head"]["forked_from"]
    assert (first["request"], first["seq"]) == (told["runs"][0]["head"]["request"], 2)
    other = visit()
    other.drop(text)
    expect(other.page.locator(".lane")).to_have_count(2)
    assert other.answers() == shown
    assert json.loads(other.saved()) == told
    other.page.locator("#moment").fill("1")
    third = visit()
    third.page.locator("#file").set_input_files({"name": "x.json", "mimeType": "application/json", "buffer": text.encode()})
    expect(third.page.locator(".lane")).to_have_count(2)
    assert third.answers() == shown
    for wrong, words in (
        ("{", "it is not JSON"),
        ('{"runs":[]}', "no dlstep_recording"),
        (broken(told), "frame 0 lacks a field"),
    ):
        third.drop(wrong)
        expect(third.page.locator("#notice")).to_contain_text(words)


def broken(told):
    """A recording without a field that every frame has."""
    copy = json.loads(json.dumps(told))
    del copy["runs"][0]["frames"][0]["settled"]
    return json.dumps(copy)


def test_a_link_and_a_reload_bring_it_back(visit):
    watched = visit()
    page = watched.page
    page.locator("#options").get_by_label("accept threshold", exact=True).fill("0.4")
    ask(watched, STORY)
    watched.ended()
    shown = watched.answers()
    page.locator("#first").click()
    watched.fork("accept threshold", "0.7")
    watched.ended(2)
    both = watched.answers()
    page.reload()
    expect(page.locator(".lane")).to_have_count(2)
    assert watched.answers() == both and both[0] == shown[0] == answer(STORY, accept_threshold=0.4)
    assert page.locator("#prompt").input_value() == STORY
    expect(page.locator("#options").get_by_label("accept threshold", exact=True)).to_have_value("0.4")
    page.locator("#link").click()
    fragment = page.evaluate("location.hash")
    assert "prompt=" in fragment
    linked = visit(fragment.replace("kept=", "kept=%5B%22cmpl-gone%22%5D&old="))
    linked.expected = ("404",)
    expect(linked.page.locator("#notice")).to_contain_text("no steps are kept for this id")
    assert linked.page.locator("#prompt").input_value() == STORY


def test_a_key_is_asked_for_and_kept_in_memory_only(browser, locked):
    context = browser.new_context()
    page = context.new_page()
    page.goto(locked.url)
    expect(page.locator("#key")).to_be_visible()
    page.locator("#key-text").fill("sesame")
    page.keyboard.press("Enter")
    expect(page.locator("#go")).to_be_enabled()
    page.locator("#go").click()
    expect(page.locator(".state")).to_contain_text("ended")
    kept = page.evaluate("[JSON.stringify(localStorage), JSON.stringify(sessionStorage), document.cookie, location.href]")
    assert not any("sesame" in each for each in kept)
    page.reload()
    expect(page.locator("#key")).to_be_visible()
    context.close()


def test_everything_by_keys_alone(visit):
    watched = visit()
    page, press = watched.page, watched.page.keyboard.press
    press("p")
    press("Control+a")
    page.keyboard.type(STORY.strip())
    press("Control+Enter")
    watched.ended()
    assert page.locator("#prompt").input_value() == STORY.strip()
    assert watched.answers() == [answer(STORY.strip())]
    press("Tab")  # out of the prompt: single keys act again
    press("Home")
    press("ArrowRight")
    assert watched.where().startswith("frame 1 of 6")
    press("f")
    expect(page.locator("#fork")).to_be_visible()
    while page.evaluate("document.activeElement.type") != "number":
        press("Tab")
    press("Control+a")
    page.keyboard.type("0.05")
    press("Enter")
    watched.ended(2)
    press("n")
    while page.evaluate("document.activeElement.className") != "answer":
        press("Tab")
    press("ArrowRight")
    press("ArrowRight")
    expect(page.locator("[aria-selected='true'][data-position='1']")).to_have_count(2)
    press("ArrowUp")
    assert watched.where().startswith("frame 5 of 6")
    with page.expect_download():
        press("s")
    press("?")
    expect(page.locator("#help")).to_be_visible()
    press("Escape")
    expect(page.locator("#help")).to_be_hidden()
    press("t")
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    press("p")
    while page.evaluate("document.activeElement.id") != "rival":
        press("Tab")
    press("Enter")
    press("Shift+Tab")
    press("Enter")
    expect(page.locator(".lane .badge").first).to_have_text("C")
    watched.ended(2)
    assert watched.answers()[0] == answer(STORY.strip())


@pytest.mark.stress
def test_a_conversation_goes_on(browser):
    with served(tiny_llm().engine, template=TEMPLATE) as server:
        watched = opened(browser, server.url)
        page = watched.page
        expect(page.locator("#chat")).not_to_be_checked()  # the examples of an embedded model are no conversations
        page.locator("#chat").check()
        ask(watched, STORY)
        watched.ended()
        expect(page.locator("#turns li")).to_have_text([f"You {STORY}", f"Model {answer(STORY)}"])
        ask(watched, OTHER)
        expect(page.locator(".lane .badge")).to_have_text("B")
        watched.ended()
        assert watched.answers() == [answer(f"{STORY}{answer(STORY)}{OTHER}")]
        page.locator("#restart").click()
        expect(page.locator("#turns")).to_be_hidden()
        page.locator("#chat").uncheck()
        ask(watched, OTHER)
        expect(page.locator(".lane .badge")).to_have_text("C")
        watched.ended()
        assert watched.answers() == [answer(OTHER)]
        watched.check()
        page.context.close()

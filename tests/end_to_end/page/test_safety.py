"""Whatever an answer says, it is shown as text; and nothing but the page's own files runs or is reached."""

import json
import re
from itertools import chain

from playwright.sync_api import expect

from .hostile import TEXTS, UNSEEN, hostile_recording

FOREIGN = """() => [...document.querySelectorAll('script, img, iframe, object, embed, svg script, link, style, a')]
    .filter((each) => !each.src?.startsWith(location.origin) && each.id !== 'recording').map((each) => each.outerHTML)"""
TOLD = """() => [document.body.innerText, ...[...document.querySelectorAll('*')].flatMap(
    (each) => [...each.attributes].map((attribute) => attribute.value))].join('|').replaceAll('\\n', ' ')"""


def walk(watched, runs):
    """Look at every position and every frame of what is open."""
    page = watched.page
    expect(page.locator(".lane")).to_have_count(runs)
    page.locator("#first").click()
    for _ in range(3):
        for position in range(0, len(TEXTS), 5):
            page.locator(f".answer >> nth=0 >> [data-position='{position}']").dispatch_event("click")
            expect(page.locator("#cell")).to_contain_text("Candidates at this step")
            unseen(watched)
        page.locator("#forth").dispatch_event("click")


def unseen(watched):
    """Nothing was run, and no mark that hides or moves text is in the page, in its texts or in its labels."""
    watched.drawn()
    assert watched.page.evaluate("window.hacked") is None
    found = re.search(UNSEEN, watched.page.evaluate(TOLD))
    assert found is None, found


def test_hostile_answers_are_texts(visit):
    watched = visit()
    before = watched.page.evaluate(FOREIGN)
    watched.drop(json.dumps(hostile_recording()))
    walk(watched, 2)
    assert watched.page.evaluate(FOREIGN) == before
    text = watched.page.locator(".answer").first.text_content() or ""
    assert "<script>window.hacked = true</script>" in text and "␛[2J" in text and "⟨202E⟩evil⟨202C⟩" in text
    for each in (watched.page.locator("#tree"), watched.page.locator(".lane h3").first):
        expect(each).to_contain_text("<script>")
    watched.page.set_viewport_size({"width": 360, "height": 700})
    watched.fits()
    watched.accessible()


def test_hostile_prompts_and_faults_are_texts(visit):
    watched = visit()
    watched.page.locator("#ask summary").last.click()
    watched.page.locator("#sampling").get_by_label("max tokens", exact=True).fill("16")
    watched.page.locator("#prompt").fill("".join(chain(TEXTS[:6], TEXTS[7:9])))
    watched.generate()
    watched.ended()
    unseen(watched)
    watched.drop("{", name="<img src=x onerror='window.hacked=true'>\u202e.json")
    expect(watched.page.locator("#notice")).to_contain_text("<img src=x")
    unseen(watched)


def test_links_are_data(visit):
    watched = visit(
        "#prompt=%3Cimg%20src=x%20onerror=alert(1)%3E&runs=%5B%7B%22rule%22:%22__proto__%22%7D,7,null%5D&sampling=x&kept=7"
    )
    assert watched.page.locator("#prompt").input_value() == "<img src=x onerror=alert(1)>"
    expect(watched.page.locator("#tabs button")).to_have_count(3)
    unseen(watched)


def test_the_policy_holds(visit):
    watched = visit()
    watched.expected = ("Content Security Policy", "violates", "Refused", "Failed to load", "net::")
    page = watched.page
    page.evaluate(
        """() => { const script = document.createElement('script'); script.textContent = 'window.hacked = true';
        document.body.append(script); const style = document.createElement('style'); style.textContent = 'body { color: red }';
        document.head.append(style);
        document.body.insertAdjacentHTML('beforeend', '<i id="x" onclick="window.hacked = true">x</i>');
        document.getElementById('x').click() }"""
    )
    assert page.evaluate("window.hacked") is None
    assert page.evaluate("getComputedStyle(document.body).color") != "rgb(255, 0, 0)"
    for forbidden in ("fetch('http://127.0.0.1:9/x')", "import('data:text/javascript,window.hacked=true')"):
        assert (
            page.evaluate(f"async () => {{ try {{ await {forbidden}; return 'done' }} catch {{ return 'refused' }} }}")
            == "refused"
        )
    assert len([each for each in watched.complaints if "Content Security Policy" in each]) >= 4

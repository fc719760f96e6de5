"""`dlstep view`: the page as one file, opened from a disk, without a server and without any request."""

import json

import pytest
from playwright.sync_api import expect

from dlstep.cli import main
from dlstep.views.page import FOLDER, page_of, script_of

from ...helpers.serving import tiny_llm
from .browser import files_opened
from .hostile import TEXTS, hostile_recording
from .test_safety import FOREIGN, unseen, walk
from .test_use import STORY, answer


@pytest.fixture
def view(browser, tmp_path):
    """Writes a file by `dlstep view` and opens it; the only request is that for the file."""
    with files_opened(browser) as opened:

        def viewed(source, theme="light"):
            target = tmp_path / "page.html"
            assert main(["view", str(source), "--out", str(target)]) == 0
            return opened(target, color_scheme=theme)

        yield viewed


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    """A trace of two requests that the embedded model decoded together."""
    session = tiny_llm().session()
    for story in (STORY, STORY.replace("53", "12")):
        session.submit(story)
    session.run()
    path = tmp_path_factory.mktemp("view") / "decode.jsonl"
    session.trace.save(path)
    session.close()
    return path


@pytest.mark.parametrize("theme", ["light", pytest.param("dark", marks=pytest.mark.stress)])
def test_a_trace_is_shown_without_a_server(view, trace, theme):
    watched = view(trace, theme)
    watched.ended(2)
    page = watched.page
    assert watched.answers() == [answer(STORY), answer(STORY.replace("53", "12"))]
    watched.accessible()
    page.set_viewport_size({"width": 360, "height": 740})
    watched.fits()
    expect(page.locator("#head")).to_contain_text("accept threshold0.9")
    page.locator("#moment").fill("1")
    page.locator("[data-position='2']").first.click()
    expect(page.locator("#cell")).to_contain_text("Position 2 is “+”, unmasked")
    page.locator("#fork-here").dispatch_event("click")
    expect(page.locator("#notice")).to_contain_text("a fork needs the server")
    again = json.loads(watched.saved())
    assert [run["text"] for run in again["runs"]] == [answer(STORY), answer(STORY.replace("53", "12"))]


def test_hostile_recordings_stay_data(view, tmp_path):
    source = tmp_path / "enemy.json"
    for ensure_ascii in (True, False):
        source.write_text(json.dumps(hostile_recording(), ensure_ascii=ensure_ascii))
        watched = view(source)
        if ensure_ascii:
            walk(watched, 2)
        unseen(watched)
        assert len(watched.page.evaluate(FOREIGN)) == 3  # our script, our style and the empty icon
        assert TEXTS[2] in (watched.page.locator(".answer").first.text_content() or "")


def test_nothing_else_runs_in_the_file(view, trace):
    watched = view(trace)
    watched.expected = ("Content Security Policy", "Refused", "violates")
    page = watched.page
    page.evaluate("document.body.append(Object.assign(document.createElement('script'), { textContent: 'window.hacked = 1' }))")
    assert page.evaluate("window.hacked") is None
    for forbidden in ("fetch('data:text/plain,x')", "fetch(location.href)"):
        tried = f"async () => {{ try {{ await {forbidden}; return 'done' }} catch {{ return 'refused' }} }}"
        assert page.evaluate(tried) == "refused"
    policy = page.locator("meta[http-equiv]").get_attribute("content") or ""
    assert "unsafe" not in policy and "http" not in policy and policy.startswith("default-src 'none'; script-src 'sha256-")


def test_the_scripts_have_every_module_and_no_import():
    script = script_of("app.js") + script_of("steps.js")
    for path in FOLDER.glob("*.js"):
        source = path.read_text()
        assert source.splitlines()[-1].removeprefix("export ") in script and source.count("\n") < 400, path.name
        assert (
            "innerHTML" not in source
            and "eval(" not in source
            and "http://" not in source.replace("http://www.w3.org/2000/svg", "")
        )
    lines = script.splitlines()
    assert not [line for line in lines if line.startswith(("import ", "export ")) or "import(" in line]


def test_a_recording_that_json_cannot_hold_is_refused():
    with pytest.raises(ValueError, match="Out of range float values"):
        page_of({"dlstep_recording": 1, "runs": [{"x": float("nan")}]})

"""The page of `dlstep report --html`: answers are filtered and opened, and every text stays a text."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from dlstep.cli import main
from dlstep.evaluate import read

from ...helpers.sealing import with_answers
from .browser import Watched, files_opened
from .hostile import TEXTS
from .test_safety import FOREIGN, unseen

View = Callable[..., Watched]
PROBLEMS = 10
GRID = '{"accept_threshold": [0.3, 0.9]}'


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with right and wrong answers of two sets of options."""
    out = tmp_path_factory.mktemp("report") / "run"
    assert main(["eval", "--dataset_limit", str(PROBLEMS), "--grid", GRID, "--out", str(out), "--progress", "false"]) == 0
    return out


@pytest.fixture
def view(browser: Browser, tmp_path: Path) -> Iterator[View]:
    """Writes the page of a run and opens it; the only request is that for the file."""
    with files_opened(browser) as opened:

        def viewed(folder: Path, *arguments: str, **given: Any) -> Watched:
            target = tmp_path / "page.html"
            assert main(["report", str(folder), "--html", str(target), *arguments]) == 0
            return opened(target, **given)

        yield viewed


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """Return the answers with their scores."""
    return [dict(row) for row in read(folder).rows.values()]


def test_answers_are_filtered_and_sorted(view: View, run: Path) -> None:
    rows = rows_of(run)
    wrong = [row for row in rows if row["score"] < 1]
    watched = view(run)
    page = watched.page
    listed, count, form = page.locator("#answers > li"), page.locator("#count"), page.locator("#filters")
    expect(listed).to_have_count(len(wrong))
    expect(count).to_have_text(f"{len(wrong)} answers of 20")
    form.get_by_label("Result").select_option("")
    expect(listed).to_have_count(2 * PROBLEMS)
    form.get_by_label("Options").select_option("accept_threshold 0.9")
    expect(listed).to_have_count(PROBLEMS)
    form.get_by_label("Ended by").select_option("stop")
    expect(listed).to_have_count(len([row for row in rows[PROBLEMS:] if row["finish"] == "stop"]))
    form.get_by_label("Ended by").select_option("")
    form.get_by_label("Task").select_option("shells")
    word = rows[PROBLEMS + 1]["answer"].split(".")[0].upper()
    form.get_by_label("Text in prompt or answer").fill(f" {word} ")
    expect(listed).to_have_count(len([row for row in rows[PROBLEMS:] if word in f"{row['prompt']}\n{row['answer']}".upper()]))
    form.get_by_label("Text in prompt or answer").fill("nonsense")
    expect(count).to_have_text("0 answers of 20")
    form.get_by_label("Text in prompt or answer").fill("")
    form.get_by_label("Order").select_option("slowest first")
    seconds = [float(text.split(", ")[1].removesuffix(" s")) for text in page.locator(".cost").all_text_contents()]
    assert len(seconds) == PROBLEMS and seconds == sorted(seconds, reverse=True)


def test_hostile_answers_stay_texts(view: View, run: Path, tmp_path: Path) -> None:
    evil = [
        dict.fromkeys(("answer", "found", "gold", "note", "error", "prompt", "finish"), text) | {"score": 0.0} for text in TEXTS
    ]
    folder = with_answers(run, tmp_path / "evil\u202e <b>run", evil)
    asked = json.loads((folder / "run.json").read_text())
    asked["key"]["engine"] |= {"model": TEXTS[0], "strategy": "".join(TEXTS)}
    asked["key"]["eval"]["".join(TEXTS)] = "".join(TEXTS)
    (folder / "run.json").write_text(json.dumps(asked))
    watched = view(folder, viewport={"width": 375, "height": 700})
    page = watched.page
    expect(page.locator("#answers > li")).to_have_count(2 * PROBLEMS)
    for each in page.locator("summary").all():
        each.click()
    unseen(watched)
    assert len([each for each in page.evaluate(FOREIGN) if each.startswith("<script")]) == 2  # the data and our own
    expect(page.locator("h1")).to_have_text("Evaluation: evil\ufffd <b>run")
    assert "\u202e" not in page.title()
    expect(page.locator("#answers pre").filter(has_text=TEXTS[2]).first).to_be_visible()
    watched.fits()
    watched.accessible()

"""A constraint is given in the form, and masked cells show how many tokens it allows."""

import json
import re

import pytest
from jsonschema import validate
from playwright.sync_api import expect

from dlstep import SamplingParams

from ...helpers.serving import tiny_llm

STORY = "Max has 53 shells. Later Max buys 39 more. How many shells does Max have?\n"
SCHEMA = {"type": "object", "properties": {"enough": {"type": "boolean"}}, "required": ["enough"]}


def ask(watched, kind, text):
    """Give a constraint and let the prompt be answered."""
    page = watched.page
    page.locator("#prompt").fill(STORY)
    if not page.locator("#constraint-kind").is_visible():
        page.locator("summary", has_text="Sampling").click()
    page.locator("#constraint-kind").select_option(kind)
    page.locator("#constraint").fill(text)
    watched.generate()
    return page


@pytest.mark.parametrize(
    "kind, text", [("regex", r"\d+[+-]\d+=\d+ shells\."), ("choice", "92 shells\n93 shells"), ("json", json.dumps(SCHEMA))]
)
def test_an_answer_obeys_its_constraint_and_shows_what_it_allows(visit, kind, text):
    watched = visit()
    page = ask(watched, kind, text)
    watched.ended()
    (answer,) = watched.answers()
    answer = answer.replace("∎", "")
    if kind == "regex":
        assert re.fullmatch(text, answer)
    elif kind == "choice":
        assert answer in text.splitlines()
    else:
        validate(json.loads(answer), SCHEMA)
    page.locator("#first").click()
    watched.drawn()
    given = {"regex": {"regex": text}, "choice": {"choice": text.splitlines()}, "json": {"json_schema": text}}[kind]
    session = tiny_llm().session()
    session.submit(STORY, SamplingParams(max_tokens=128, **given))
    (span,) = session.plan.spans
    counts = [str(len(mask.ids())) for mask in span.wanted.masks]
    cells = page.locator(".cell.counted").all_text_contents()
    assert counts and cells[: len(counts)] == counts and len(set(cells)) > 1
    page.locator("[data-position='0']").click()
    allowed = "token" if counts[0] == "1" else "tokens"
    expect(page.locator("#cell")).to_contain_text(f"Position 0 is masked. The constraint allows {counts[0]} {allowed}.")
    watched.accessible()

"""Pictures of observations: each value of the observations is drawn once, and every text is escaped."""

import re
from collections.abc import Iterator
from math import exp, log
from typing import Any
from xml.etree.ElementTree import Element, fromstring

import pytest
from hypothesis import given, strategies as st

from dlstep import SamplingParams
from dlstep.views import Picture, attention_picture, candidates_picture, entropy_picture, page_of, recording

from ...end_to_end.page.hostile import TEXTS
from ...helpers.serving import tiny_llm

SVG = "{http://www.w3.org/2000/svg}"
HIGH = 180  # of a probability of 1

Row = dict[str, Any]


@st.composite
def observed_rows(draw: st.DrawFn) -> list[Row]:
    """Rows of a few steps and positions, with texts that would do harm in a page."""
    rows: list[Row] = []
    places = st.tuples(st.integers(0, 5), st.integers(0, 1), st.integers(0, 4), st.integers(1, 2))
    for step, request, offset, layer in sorted(draw(st.sets(places, min_size=1, max_size=12))):
        weights = draw(st.lists(st.floats(0.01, 1.0), min_size=1, max_size=5))
        entropy, rest = draw(st.floats(0.0, 10.0)), draw(st.floats(0.0, 1.0))
        for rank, weight in enumerate(weights, start=1):
            rows.append({
                "step": step, "request": request, "offset": offset, "layer": layer, "rank": rank,
                "token_id": draw(st.integers(0, 20)), "text": draw(st.sampled_from(["", " a", *TEXTS])),
                "log_probability": log(weight / (sum(weights) + rest)), "entropy": entropy, "sampled": int(rank == 1),
            })  # fmt: skip
    return rows


def boxes(picture: Picture) -> Iterator[tuple[Element, str]]:
    """The boxes of a picture, which is well-formed, with their descriptions."""
    root = fromstring(picture.svg)
    assert root.get("role") == "img" and root.get("aria-label") == picture.title
    assert {element.tag for element in root.iter()} <= {SVG + tag for tag in ("svg", "rect", "text", "title")}
    for box in root.iter(f"{SVG}rect"):
        yield box, box.findtext(f"{SVG}title") or ""


def of_last_layer(rows: list[Row], **place: int) -> list[Row]:
    found = [row for row in rows if place.items() <= row.items()]
    return [row for row in found if row["layer"] == max(row["layer"] for row in found)]


@given(observed_rows())
def test_heights_are_the_probabilities(rows: list[Row]) -> None:
    place = {name: rows[0][name] for name in ("request", "offset")}
    expected: dict[str, list[float]] = {}
    for row in of_last_layer(rows, **place):
        expected.setdefault(f"step {row['step']}", []).append(exp(row["log_probability"]))
    drawn: dict[str, list[float]] = {}
    for box, about in boxes(candidates_picture(rows, **place)):
        step = about.split(",")[0]
        drawn.setdefault(step, []).append(float(box.get("height", "")) / HIGH)
    assert {step: sorted(heights) for step, heights in drawn.items()} == {
        step: pytest.approx(sorted(chances), abs=1e-4) for step, chances in expected.items()
    }
    assert all(sum(heights) < 1.001 for heights in drawn.values())


@given(observed_rows())
def test_each_step_and_position_has_one_cell_of_its_entropy(rows: list[Row]) -> None:
    expected = {
        f"step {row['step']}, offset {row['offset']}, {row['entropy']:.3f} nats": row["entropy"]
        for row in of_last_layer(rows, request=rows[0]["request"])
    }
    picture = entropy_picture(rows, request=rows[0]["request"])
    cells = [(about, float(box.get("fill-opacity", ""))) for box, about in boxes(picture)]
    assert sorted(about for about, _ in cells) == sorted(expected)
    most = max(expected.values())
    assert {about: opacity * most for about, opacity in cells} == pytest.approx(expected, abs=1e-3 * max(1.0, most))


def test_the_attention_of_a_row_is_that_of_its_heads_and_sums_to_one() -> None:
    session = tiny_llm().session()
    session.submit("Max has 53 shells. Later Max buys 39 more.", SamplingParams(max_tokens=20))
    observation = session.observe(attentions=[2])
    span = observation[0]
    offset = span.sampled[-1] - span.start
    weights = span.attentions[2][:, span.rows_of_sampled[-1]]
    lines = [*weights.tolist(), weights.mean(0).tolist()]
    drawn: dict[str, list[float]] = {}
    for box, about in boxes(attention_picture(observation, session.state, offset, layer=2)):
        drawn.setdefault(about.split(",")[0], []).append(float(box.get("fill-opacity", "")))
    assert list(drawn) == [*(f"head {head}" for head in range(len(weights))), "mean"]
    for cells, line in zip(drawn.values(), lines, strict=True):
        assert cells == pytest.approx([sum(line[: span.start]), *line[span.start :]], abs=1e-3)
        assert sum(cells) == pytest.approx(1, abs=0.02)
    with pytest.raises(ValueError, match="offset=99 was not sampled in this pass: give one of"):
        attention_picture(observation, session.state, 99, layer=2)


def test_pictures_of_nothing_name_the_remedy() -> None:
    with pytest.raises(ValueError, match="give the rows of observations that sampled it"):
        candidates_picture([], 0)


def test_a_page_shows_pictures_that_its_policy_allows() -> None:
    session = tiny_llm().session()
    session.submit("Max has 53 shells.", SamplingParams(max_tokens=8))
    rows = session.observe().rows()
    picture = entropy_picture([row | {"text": TEXTS[0]} for row in rows])
    page = page_of(recording(session.trace), [picture, picture])
    assert page.count(picture.svg) == 2 and page.index("</main>") < page.index(picture.svg)
    assert not re.search(r"<style|\sstyle=|<script", picture.svg)
    assert picture._repr_html_() == picture.svg and picture.svg not in repr(picture)

"""Pictures of observations: each value of the observations is drawn once, and every text stays a text."""

from math import exp, isnan, log
from xml.etree.ElementTree import fromstring

import numpy as np
import pytest
from hypothesis import given, strategies as st

from dlstep import SamplingParams
from dlstep.text.words import printable
from dlstep.views import candidates_picture, entropy_picture

from ...end_to_end.page.hostile import TEXTS
from ...helpers.serving import tiny_llm


@st.composite
def observed_rows(draw):
    """Rows of a few steps and positions, with texts that would do harm in a page."""
    rows = []
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


def labels_of(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def cells(picture):
    """The values of a heat map by the texts of rows and columns, without empty cells."""
    axes, scale = picture.figure.axes
    sides, columns = labels_of(axes.yaxis), labels_of(axes.xaxis)
    (image,) = axes.images
    values = image.get_array().filled(float("nan")).tolist()
    assert scale.get_ylim() == (0, max(1, np.nanmax(values)))
    assert len(sides) == len({*sides}) and len(columns) == len({*columns})
    return {
        (side, column): value
        for side, line in zip(sides, values, strict=True)
        for column, value in zip(columns, line, strict=True)
        if not isnan(value)
    }


def name_of(row):
    return printable(row["text"]).replace(" ", "\N{OPEN BOX}") or f"#{row['token_id']}"


def of_last_layer(rows, **place):
    found = [row for row in rows if place.items() <= row.items()]
    return [row for row in found if row["layer"] == max(row["layer"] for row in found)]


@given(observed_rows())
def test_heights_are_the_probabilities(rows):
    place = {name: rows[0][name] for name in ("request", "offset")}
    found = [(row, exp(row["log_probability"])) for row in of_last_layer(rows, **place)]
    (axes,) = candidates_picture(rows, **place).figure.axes
    steps, tops = labels_of(axes.xaxis), {}
    for (row, chance), bar in zip(found, axes.patches, strict=True):
        step = steps[round(bar.get_x() + bar.get_width() / 2)]
        assert step == f"step {row['step']}" and bar.get_height() == pytest.approx(chance)
        assert bar.get_y() == pytest.approx(tops.get(step, 0.0)) and (bar.get_linewidth() > 0) == row["sampled"]
        tops[step] = bar.get_y() + bar.get_height()
    assert max(tops.values()) < 1.001 and axes.get_ylim() == (0, 1)
    assert [text.get_text() for text in axes.texts] == [name_of(row)[:6] for row, chance in found if chance > 0.06]
    colours = {(row["token_id"], bar.get_facecolor()) for (row, _), bar in zip(found, axes.patches, strict=True)}
    assert len(colours) == len({token for token, _ in colours})


@given(observed_rows())
def test_each_step_and_position_has_one_cell_of_its_entropy(rows):
    found = of_last_layer(rows, request=rows[0]["request"])
    names = {row["offset"]: name_of(row) for row in found if row["sampled"]}  # those of the last step
    expected = {(f"step {row['step']}", f"{row['offset']}: {names[row['offset']]}"): row["entropy"] for row in found}
    assert cells(entropy_picture(rows, request=rows[0]["request"])) == expected


def test_the_attention_of_a_row_is_that_of_its_heads_and_sums_to_one():
    session = tiny_llm().session()
    slowly = SamplingParams(max_tokens=20, strategy_options={"accept_threshold": 1.0})
    session.submit("Max has 53 shells. Later Max buys 39 more.", slowly)
    session.step()
    observation = session.observe(attentions=[2])
    span = observation[0]
    offset = span.sampled[-1] - span.start
    weights = span.attentions[2][:, span.rows_of_sampled[-1]]
    lines = [*weights.tolist(), weights.mean(0).tolist()]
    drawn = {}
    for (side, column), weight in cells(observation.attention_picture(session.state, offset, layer=2)).items():
        drawn.setdefault(side, {})[column] = weight
    assert list(drawn) == [*(f"head {head}" for head in range(len(weights))), "mean"]
    for found, line in zip(drawn.values(), lines, strict=True):
        assert [*found.values()] == pytest.approx([sum(line[: span.start]), *line[span.start :]])
        assert sum(found.values()) == pytest.approx(1, abs=1e-5)
    with pytest.raises(ValueError, match="offset=99 was not sampled in this pass: give one of"):
        observation.attention_picture(session.state, 99, layer=2)


def test_pictures_of_nothing_name_the_remedy():
    with pytest.raises(ValueError, match="give the rows of observations that sampled it"):
        candidates_picture([], 0)


def test_texts_of_pictures_stay_texts():
    session = tiny_llm().session()
    session.submit("Max has 53 shells.", SamplingParams(max_tokens=8))
    texts = [TEXTS[0], "$x$ y", "\N{CJK UNIFIED IDEOGRAPH-4E2D}"]
    rows = [row | {"text": texts[row["offset"] % 3], "entropy": 0.0} for row in session.observe().rows()]
    svgs = [picture._repr_svg_() for picture in (entropy_picture(rows), candidates_picture(rows, 1))]
    heat, bars = ({text for element in fromstring(svg).iter() if (text := element.text)} for svg in svgs)
    assert {f"{offset}: {name_of({'text': text})}" for offset, text in enumerate(texts)} <= heat and "$x$\N{OPEN BOX}y" in bars

"""The regex of numbers matches exactly those within the limits, and each format's texts have its form and its lengths."""

import json
import re
from decimal import Decimal

import pytest
from hypothesis import given, strategies as st
from jsonschema import Draft202012Validator

from dlstep.text.json_regex import DECIMALS, FORMATS, any_value, comma_separated, number

DECIMAL = st.decimals(-1100, 1100, places=0) | st.decimals(-12, 12, places=2) | st.decimals(-2, 2, places=3)
LIMIT = st.none() | st.tuples(DECIMAL, st.booleans())


@given(low=LIMIT, high=LIMIT, value=DECIMAL, whole=st.booleans())
def test_numbers_match_if_they_are_within_the_limits(
    low: tuple[Decimal, bool] | None, high: tuple[Decimal, bool] | None, value: Decimal, whole: bool
) -> None:
    regex = number(low, high, whole) or "(?!)"
    limits = [value, *(limit[0] for limit in (low, high) if limit is not None)]
    steps = [Decimal(step).scaleb(-place) for place in (0, 3) for step in (-2, -1, 0, 1, 2)]
    tested = [limit + step for limit in limits for step in steps]
    tested += [limit.quantize(Decimal(1).scaleb(-places)) for limit in limits for places in (0, 1, 2)]  # fewer decimals
    for candidate in {near.to_integral_value() for near in tested} if whole else {*tested}:
        above = low is None or (low[0] < candidate if low[1] else low[0] <= candidate)
        below = high is None or (candidate < high[0] if high[1] else candidate <= high[0])
        text = format(candidate.normalize() + 0, "f")
        assert (re.fullmatch(regex, text) is not None) == (above and below), (regex, text)
    assert re.fullmatch(regex, "01") is re.fullmatch(regex, "1.") is re.fullmatch(regex, ".5") is None


@given(
    low=st.none() | st.integers(-(10**20), 10**20),
    size=st.none() | st.integers(0, 10**17),
    value=st.integers(-(10**21), 10**21),
)
def test_long_integers_match_if_they_are_within_the_limits(low: int | None, size: int | None, value: int) -> None:
    high = None if size is None else (low or 0) + size
    regex = number(None if low is None else (Decimal(low), False), None if high is None else (Decimal(high), False), True)
    assert regex is not None
    for tested in (value, *(limit + step for limit in (low, high) if limit is not None for step in (-1, 0, 1))):
        within = (low is None or low <= tested) and (high is None or tested <= high)
        assert (re.fullmatch(regex, str(tested)) is not None) == within


def test_no_number_is_excluded_by_its_limit_after_rounding() -> None:
    below = number((Decimal(0), True), (Decimal(1), True), whole=False)
    assert below is not None
    assert re.fullmatch(below, "0." + "9" * DECIMALS)
    for text in ("0." + "9" * 20, "0." + "0" * 400 + "1", "1.0", "0", "-0", "0.0"):
        assert not re.fullmatch(below, text)


@pytest.mark.parametrize("name", FORMATS)
@given(data=st.data())
def test_texts_of_a_format_have_its_form_and_lengths(name: str, data: st.DataObject) -> None:
    regex, least, most = FORMATS[name]
    text = data.draw(st.from_regex(regex, fullmatch=True, alphabet=st.characters(codec="ascii")))
    validator = Draft202012Validator({"format": name}, format_checker=Draft202012Validator.FORMAT_CHECKER)
    assert validator.is_valid(text)
    assert json.loads(f'"{text}"') == text
    assert least <= len(text) and (most is None or len(text) <= most)


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("date", "2024-02-29 2000-02-29 2023-04-30 1999-12-31", "2023-02-29 1900-02-29 2023-04-31 2023-13-01 2023-00-10"),
        ("time", "23:59:59Z 00:00:00.5+02:00", "24:00:00Z 12:00Z 12:00:00 12:60:00Z"),
        ("email", "jo.smith+x@mail.example.org", "jo@x .a@b.de a..b@c.de a@-b.de a@b-.de"),
        ("ipv4", "0.10.255.249", "256.1.1.1 01.1.1.1 1.1.1"),
        ("uri", "https://example.org/a%20b?c=d http://a.de:80#x", "https://a https://a.de/%2 ftp://a.de http://a.de/{"),
    ],
)
def test_formats_leave_out_what_is_wrong(name: str, right: str, wrong: str) -> None:
    regex = FORMATS[name][0]
    assert [text for text in right.split() if not re.fullmatch(regex, text)] == []
    assert [text for text in wrong.split() if re.fullmatch(regex, text)] == []


@given(least=st.integers(0, 3), more=st.none() | st.integers(0, 3), count=st.integers(0, 8))
def test_items_match_if_their_number_is_within_the_limits(least: int, more: int | None, count: int) -> None:
    most = None if more is None else least + more
    matched = re.fullmatch(comma_separated("a", least, most), ",".join("a" * count))
    assert (matched is not None) == (least <= count and (most is None or count <= most))


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(st.characters(min_codepoint=32, codec="ascii", exclude_characters="\x7f")),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=4,
)


def levels(value: object) -> int:
    """The number of objects and arrays within one another."""
    if not isinstance(value, dict | list):
        return 0
    return 1 + max((levels(part) for part in (value.values() if isinstance(value, dict) else value)), default=0)


@given(value=VALUES)
def test_any_value_matches_unless_it_is_too_deep(value: object) -> None:
    assert (re.fullmatch(any_value(2), json.dumps(value)) is not None) == (levels(value) <= 2)

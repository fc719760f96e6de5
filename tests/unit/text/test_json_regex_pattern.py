"""A text of a translated pattern is a JSON string that the pattern is found in; what is not certain is refused."""

import json
import re
from random import Random
from typing import Any

import pytest
from hypothesis import given, strategies as st

from dlstep.text.constraints import compiled
from dlstep.text.json_regex import translated

from .test_json_schema import BYTES, text_of

ATOMS = st.sampled_from(
    [
        r"a",
        r"é",
        r'"',
        r"/",
        r"-",
        r"#",
        r".",
        r"\.",
        r"\\",
        r"\n",
        r"\u00e9",
        r"\x41",
        r"\d",
        r"\w",
        r"\s",
        r"\D",
        r"\W",
        r"\S",
        r"[a-z]",
        r"[^a-z]",
        r"[!-~]",
        r'["\\x]',
        r"[\w.-]",
        r"[^\]-]",
        r"[é\d]",
        r"[&-]",
        r"[\s]",
    ]
)
TIMES = st.sampled_from(["", "", "*", "+", "?", "{2}", "{1,3}", "{2,}", "+?"])
PATTERNS = st.recursive(
    st.lists(st.tuples(ATOMS, TIMES).map("".join), min_size=1, max_size=3).map("".join),
    lambda inner: st.one_of(
        st.tuples(inner, TIMES).map(lambda pair: f"(?:{pair[0]}){pair[1]}"),
        st.tuples(inner, inner).map(lambda pair: f"({pair[0]}|{pair[1]})"),
    ),
    max_leaves=3,
)


def check(pattern: str, limits: dict[str, int], seed: int) -> None:
    """Assert that texts of the schema of a pattern conform to it."""
    schema: dict[str, Any] = {"type": "string", "pattern": pattern, **limits}
    automaton, random = compiled("json_schema", json.dumps(schema), BYTES), Random(seed)
    for _ in range(10):
        value = json.loads(text_of(automaton, random))
        assert re.search(pattern, value), value
        assert limits.get("minLength", 0) <= len(value) <= limits.get("maxLength", 10**6)


@given(pattern=PATTERNS, start=st.sampled_from(["", "^"]), end=st.sampled_from(["", "$"]), seed=st.integers(0, 99))
def test_the_pattern_is_found_in_every_text(pattern: str, start: str, end: str, seed: int) -> None:
    check(start + pattern + end, {}, seed)


@given(
    atom=st.sampled_from(["[a-z]", "\\d", "[^a]", "(?:\\w)", ".", '["a]']),
    times=TIMES,
    least=st.integers(1, 2),
    most=st.integers(3, 5),
)
def test_one_repeated_character_respects_limits_of_length(atom: str, times: str, least: int, most: int) -> None:
    lengths = {"": 1, "?": 1, "{2}": 2}
    check(f"^{atom}{times}$", {"minLength": min(least, lengths.get(times, least)), "maxLength": most}, 0)


@pytest.mark.parametrize(
    ("pattern", "value", "matches"),
    [
        (r"^\d{3}-[A-Z]+$", "123-AB", True),
        (r"^\d{3}-[A-Z]+$", "x123-AB", False),
        ("b", "abc", True),
        ("^b", "abc", False),
        ("^b", "bac", True),
        ("^(a|b)$", "b", True),
        ("a|b", "xbx", True),
        ('^[^"]$', '"', False),
        ('^a"b$', 'a"b', True),
        (r"^\\$", "\\", True),
        ("^.$", "é", True),
        (r"^[\w.+-]+@[\w-]+\.[a-z]{2,}$", "jo.x@mail.de", True),
        (r"^(\([0-9]{3}\))?[0-9]{3}-[0-9]{4}$", "(888)555-1212", True),
    ],
)
def test_strings_of_a_pattern_are_texts(pattern: str, value: str, matches: bool) -> None:
    automaton = compiled("json_schema", json.dumps({"type": "string", "pattern": pattern}), BYTES)
    state = 0
    for byte in json.dumps(value, ensure_ascii=False).encode():
        state = automaton.moves[state][automaton.class_of[byte]] if state >= 0 else -1
    assert (state >= 0 and bool(automaton.accepting >> state & 1)) == matches


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("^a|b$", r"\^ and \$ must enclose the whole pattern"),
        ("a^b", r"'\^' is not supported"),
        (r"^(?=a)b$", r"\(\?= is not supported"),
        (r"^(?!a)b$", r"\(\?! is not supported"),
        (r"(a)\1", r"\\1 is not supported"),
        (r"\bword", r"\\b is not supported"),
        (r"\p{L}", r"\\p is not supported"),
        ("(a", "a group has no end"),
        ("a)", "has no beginning"),
        ("[a", "a class has no end"),
        ("[]a]", "an empty class"),
        (r"[^\d]", "in a class with"),
        ("[z-a]", "is no range"),
        ("a{3,2}", "wrong order"),
        ("a**", "follows a repetition"),
        ("*a", r"'\*' is not supported"),
        ("a\\", r"\\ is not supported"),
        ("😀", "is not supported"),
        ("(" * 30 + "a" + ")" * 30, "more than 20 groups"),
    ],
)
def test_what_is_not_certain_is_refused(pattern: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        translated(pattern, 0, None)


@pytest.mark.parametrize(("pattern", "least", "most"), [("a+", 2, None), ("^ab+$", 3, None), ("^a{3}$", 0, 2)])
def test_limits_of_length_that_a_pattern_does_not_ensure_are_refused(pattern: str, least: int, most: int | None) -> None:
    with pytest.raises(ValueError, match=r"minLength and maxLength|no string of this pattern"):
        translated(pattern, least, most)

"""Automata over characters: regexes as Python reads them, numbers as `Decimal` compares them, and their products."""

import json
import re
from decimal import Decimal
from itertools import product

import pytest
from hypothesis import given, strategies as st

from dlstep.text import dfa

ATOMS = st.sampled_from(["a", "b", "[^a]", "[a-c]", r"\d", r"\W", ".", "(?:ab|c)", "^", "$", "(a)?", r"\.", "é"])
REGEXES = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.lists(inner, min_size=2, max_size=2).map(lambda parts: f"(?:{'|'.join(parts)})"),
        st.builds("(?:{}){}".format, inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{2,}", "*?"])),
    ),
    max_leaves=6,
)
WORDS = ["".join(letters) for count in range(4) for letters in product("ab1. é", repeat=count)]


@given(text=REGEXES)
def test_a_pattern_is_found_where_python_finds_it_among_the_texts_that_dialects_agree_about(text):
    found, plain = dfa.pattern(text), re.compile(text)
    for word in WORDS:
        if found.agreed.accepts(word):
            assert found.matched.accepts(word) == bool(plain.search(word)), word
        else:
            assert not found.matched.accepts(word) and not word.isascii(), word


@given(text=REGEXES)
def test_a_regex_matches_whole_texts(text):
    found, plain = dfa.regex(text), re.compile(text)
    assert all(found.accepts(word) == bool(plain.fullmatch(word)) for word in WORDS)


@given(one=REGEXES, other=REGEXES)
def test_products_are_those_of_sets(one, other):
    first, second = dfa.regex(one), dfa.regex(other)
    both, either, only = dfa.intersection(first, second), dfa.union(first, second), dfa.difference(first, second)
    for word in WORDS:
        a, b = first.accepts(word), second.accepts(word)
        assert (both.accepts(word), either.accepts(word), only.accepts(word)) == (a and b, a or b, a and not b)


PLAIN = (
    st.decimals(-1000, 1000, places=3) | st.decimals(-12, 13, places=1) | st.integers(-(10**15) + 1, 10**15 - 1).map(Decimal)
)


@given(limit=PLAIN, number=PLAIN, zeros=st.integers(0, 2))
def test_numbers_are_compared_with_a_limit(limit, number, zeros):
    text = format(number, "f")
    text += "0" * zeros if "." in text else ""
    digits = text.strip("-").replace(".", "")
    expected = [len(digits) <= 15 and holds for holds in (number < limit, number == limit, number > limit)]
    assert [found.accepts(text) for found in dfa.compared(limit)] == expected


@given(step=st.sampled_from([1, 3, 25, 100]), number=PLAIN)
def test_multiples_are_those_of_decimal(step, number):
    assert dfa.multiples(step).accepts(format(number, "f")) == (number % step == 0)


@pytest.mark.parametrize("text", ["01", "1.", ".5", "-", "+1", "1e3", "1" * 16, "0.1234567", "--1", "1.2.3", ""])
def test_other_numbers_are_not_written(text):
    assert not dfa.NUMBERS.accepts(text)


@given(letter=st.characters(exclude_categories=()))
def test_strings_have_the_characters_that_json_writes_plainly_or_with_one_letter(letter):
    written = json.dumps(letter, ensure_ascii=False)[1:-1]
    assert dfa.STRINGS.accepts(2 * letter) == (len(written) < 3 and not 0xD800 <= ord(letter) < 0xE000), written


def test_the_example_is_a_shortest_text():
    assert [dfa.regex(text).example for text in ("bc|aaa", "a*", "x{3}")] == ["bc", "", "xxx"]


@pytest.mark.parametrize("text", [r"(?<=a)b", r"a\b", r"(a)\1", "(?i)a", "[]a]", "a{,3}", r"\Aa", "(", "a**", "(?>a)"])
def test_patterns_that_no_automaton_has_or_dialects_read_differently_are_refused(text):
    with pytest.raises(ValueError, match=r"is not supported|is not a regular expression"):
        dfa.pattern(text)

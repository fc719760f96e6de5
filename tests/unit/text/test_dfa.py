"""Automata over characters: regexes as Python reads them, numbers as `Decimal` compares them, and their products."""

import json
import re
import unicodedata
from decimal import Decimal
from itertools import product

import pytest
import regex
from hypothesis import example, given, strategies as st

from dlstep.text import dfa


def regexes(atoms):
    """Regexes that are made of atoms, as pairs of texts for two implementations."""
    repeated = st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{2,}", "*?"])
    return st.recursive(
        st.sampled_from(atoms),
        lambda inner: st.one_of(
            st.lists(inner, min_size=1, max_size=3).map(lambda parts: tuple(map("".join, zip(*parts, strict=True)))),
            st.lists(inner, min_size=2, max_size=2).map(
                lambda parts: tuple(f"(?:{'|'.join(texts)})" for texts in zip(*parts, strict=True))
            ),
            st.builds(lambda texts, count: tuple(f"(?:{text}){count}" for text in texts), inner, repeated),
        ),
        max_leaves=6,
    )


# In the syntax of Python; and, without Unicode classes, so that Python finds what ECMA-262 finds.
ATOMS = [
    *[(text, text) for text in ["a", "b", "[^a]", "[a-c]", r"\d", r"\D", r"\W", "(?:ab|c)", "^", "(a)?", r"\.", "é", r"[^\s]"]],
    *[(r"[\w.]", r"[\w.]"), (r"[^\W1]", r"[^\W1]"), ("$", r"\Z"), (".", r"[^\n\r\u2028\u2029]"), (r"\S", r"[^\s\xa0]")],
]
REGEXES = regexes(ATOMS)
WORDS = ["".join(letters) for count in range(4) for letters in product("ab1. é\n", repeat=count)]
WORDS += ["".join(letters) for count in (1, 2) for letters in product("a1\u0663\xa0\u2028\ufeff\r", repeat=count)]


@given(texts=REGEXES)
@example(texts=("a.", "a[^\n\r\u2028\u2029]"))
@example(texts=("a$", r"a\Z"))
def test_a_pattern_is_found_where_all_dialects_find_it(texts):
    matched, unmatched = (dfa.pattern(texts[0], holds=holds) for holds in (True, False))
    dialects = re.compile(texts[0]), re.compile(texts[1], re.ASCII), re.compile(texts[0], re.ASCII)
    for word in WORDS:
        found = {bool(dialect.search(word)) for dialect in dialects}
        assert not matched.accepts(word) or found == {True}, word
        assert not unmatched.accepts(word) or found == {False}, word
        if word.isascii() and word.isprintable():
            assert matched.accepts(word) or unmatched.accepts(word), word


# In the syntax of ECMA-262, and in that of the package `regex`.
ECMA = [
    *[
        (text, text)
        for text in ["a", "b", "[^a]", r"\.", "^", r"\p{L}", r"\P{Lu}", r"[\p{N}b]", r"[^\p{Ll}]", r"\p{Script=Latin}"]
    ],
    *[("(?<name>a|b)", "(?:a|b)"), (r"\u{e9}", "é"), (r"\cI", "\t"), (r"[\cI-\cJ]", r"[\t\n]"), (r"\cA", "\x01"), (r"\/", "/")],
    *[
        ("[[b]", r"[\[b]"),
        (r"[\d-.]", r"[0-9\-.]"),
        (r"[.-\d]", r"[.\-0-9]"),
        ("[+--]", r"[+,\-]"),
        ("[--/]", r"[\-./]"),
    ],
    *[("[&&a]", "[&a]"), (r"[^\]a]", r"[^\]a]"), ("[({,]", "[({,]"), (r"\\[a]", r"\\[a]"), ("[a||b]", r"[a\|b]"), ("]", r"\]")],
]
ECMA_WORDS = ["".join(letters) for count in (0, 1, 2) for letters in product("abBé\u03b17\t\x01/[]-.+&({|\\", repeat=count)]


@given(texts=regexes(ECMA))
def test_a_pattern_in_the_syntax_of_ecma_262_is_found_where_the_package_regex_finds_it(texts):
    matched, unmatched, plain = dfa.pattern(texts[0]), dfa.pattern(texts[0], holds=False), regex.compile(texts[1])
    allowed = {letter for letter in "\t\x01" if letter == "\t" or r"\cA" in texts[0]}
    for word in ECMA_WORDS:
        found, known = bool(plain.search(word)), {letter for letter in word if letter < " "} <= allowed
        assert (matched.accepts(word), unmatched.accepts(word)) == (found and known, known and not found), word


@given(
    letter=st.characters(max_codepoint=0xFFFF, exclude_categories=["Cn", "Cs", "Cc"]),
    name=st.sampled_from(["L", "N", "P", "Lu", "Ll"]),
)
def test_a_unicode_property_holds_for_the_characters_of_its_category(letter, name):
    holds = unicodedata.category(letter).startswith(name)
    assert dfa.pattern(rf"^\p{{{name}}}$").accepts(letter) == dfa.pattern(rf"^[^\P{{{name}}}]$").accepts(letter) == holds
    assert dfa.regex(rf"\P{{{name}}}").accepts(letter) != holds


@given(texts=REGEXES)
def test_a_regex_matches_whole_texts(texts):
    found, plain = dfa.regex(texts[0]), re.compile(texts[0])
    assert all(found.accepts(word) == bool(plain.fullmatch(word)) for word in WORDS)


@given(one=REGEXES, other=REGEXES)
def test_products_are_those_of_sets(one, other):
    first, second = dfa.regex(one[0]), dfa.regex(other[0])
    both, either, only = dfa.intersection(first, second), dfa.union(first, second), dfa.difference(first, second)
    for word in WORDS:
        a, b = first.accepts(word), second.accepts(word)
        assert (both.accepts(word), either.accepts(word), only.accepts(word)) == (a and b, a or b, a and not b)


PLAIN = (
    st.decimals(-1000, 1000, places=3) | st.decimals(-12, 13, places=1) | st.integers(-(10**18) + 1, 10**18 - 1).map(Decimal)
)


@given(limit=PLAIN, number=PLAIN, zeros=st.integers(0, 2))
def test_numbers_are_compared_with_a_limit(limit, number, zeros):
    text = format(number, "f")
    text += "0" * zeros if "." in text else ""
    digits = text.strip("-").replace(".", "")
    expected = [
        len(digits) <= (15 if "." in text else 18) and holds for holds in (number < limit, number == limit, number > limit)
    ]
    assert [found.accepts(text) for found in dfa.compared(limit)] == expected


@given(step=st.sampled_from([1, 3, 25, 100]), number=PLAIN)
def test_multiples_are_those_of_decimal(step, number):
    assert dfa.multiples(step).accepts(format(number, "f")) == (number % step == 0)


@pytest.mark.parametrize("text", ["01", "1.", ".5", "+1", "1e3", "1" * 19, "1" * 15 + ".0", "0.1234567", "--1", "1.2.3", ""])
def test_other_numbers_are_not_written(text):
    assert not dfa.NUMBERS.accepts(text)


@given(letter=st.characters(exclude_categories=()))
def test_strings_have_the_characters_that_json_writes_plainly_or_with_one_letter(letter):
    written = json.dumps(letter, ensure_ascii=False)[1:-1]
    assert dfa.STRINGS.accepts(2 * letter) == (len(written) < 3 and not 0xD800 <= ord(letter) < 0xE000), written


def test_the_example_is_a_shortest_text():
    assert [dfa.regex(text).example for text in ("bc|aaa", "a*", "x{3}")] == ["bc", "", "xxx"]


@pytest.mark.parametrize(
    "text",
    [
        r"(?<=a)b",
        r"a\b",
        r"(a)\1",
        r"(?<x>a)\k<x>",
        "(?i)a",
        "[]a]",
        "a{,3}",
        r"\Aa",
        "(",
        "a**",
        "(?>a)",
        "[[:alpha:]]",
        r"\p{Lx}",
    ],
)
def test_patterns_that_no_automaton_has_or_dialects_read_differently_are_refused(text):
    with pytest.raises(ValueError, match=r"is not supported|is not a regular expression"):
        dfa.pattern(text)

"""Grammars: what they derive, by the package `regex` and by hand, and why they are refused."""

import re
from itertools import product

import pytest
import regex
from hypothesis import given, strategies as st

from dlstep.text import dfa
from dlstep.text.compilation import tables
from dlstep.text.grammar import grammar_regex

# The same texts as parts of a grammar and of a regex of the package `regex`, which can call the rule x.
ATOMS = st.sampled_from([("/a|b/", "(?:a|b)"), ("x", "(?&x)"), ('"A"i', "(?i:a)"), ('""', ""), (r'"\n."', r"\n\.")])
ATOMS |= st.sampled_from([('"a"', "a"), ('"b"', "b"), ("[ab]", "[ab]"), (r"[^a\]]", r"[^a\]]")])


def joined(*parts):
    """Several parts one after the other."""
    return " ".join(part for part, _ in parts), "".join(part for _, part in parts)


def either(*parts):
    """One of several parts, in parentheses."""
    return f"({' | '.join(part for part, _ in parts)})", f"(?:{'|'.join(part for _, part in parts)})"


def counted(part, count):
    """A part that is repeated."""
    return f"({part[0]}){count}", f"(?:{part[1]}){count}"


PARTS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.builds(joined, inner, inner),
        st.builds(either, inner, inner),
        st.builds(counted, inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{1,}"])),
    ),
    max_leaves=4,
)
WORDS = ["", *("".join(letters) for count in (1, 2, 3) for letters in product("abAc", repeat=count)), "\n.", "\n.a", "abab"]


@pytest.mark.parametrize("sign", ["::=", ":"])
@given(root=PARTS, x=PARTS.filter(lambda part: "x" not in part[0]))
def test_a_grammar_without_recursion_has_the_texts_that_its_rules_derive(sign, root, x):
    automaton = dfa.regex(grammar_regex(f"root {sign} {root[0]}\nx {sign} {x[0]}", 1))
    plain = regex.compile(f"(?(DEFINE)(?P<x>{x[1]})){root[1]}")
    for word in WORDS:
        assert automaton.accepts(word) == bool(plain.fullmatch(word)), word


LISTS = [
    ('root ::= "a" | root "b"', "ab*"),
    ('root ::= "b" root | "a"', "b*a"),
    ('root ::= "a" root | root "b" | "c"', "a*cb*"),
    ('root ::= root "," root | "a" | "-" root', "-*a(?:,-*a)*"),
    ('root ::= root | "a"', "a"),
    ('root ::= root? "b"', "b{1,3}"),
    (
        'root ::= x ("," x)*  # a list\nx ::= [0-9]+ | "[" root "]"',
        r"(?:(?:\d+|\[\d+(?:,\d+)*\])(?:,(?:\d+|\[\d+(?:,\d+)*\]))*)",
    ),
    ("?start: item+ -> all // a comment\n!item.2: /[a-c]{2}/i", "(?i:(?:[a-c]{2})+)"),
    ('start: "a"\nstart: "b"', "a|b"),
    ('root ::= "\\"" [^"\\\\]* "\\"" .', r'(?s:"[^"\\]*".)'),
]


@pytest.mark.parametrize("grammar, language", LISTS)
def test_rules_that_begin_or_end_with_themselves_are_loops(grammar, language):
    automaton, plain = dfa.regex(grammar_regex(grammar, 3)), re.compile(language)
    letters = sorted({*re.sub(r"\\.|[\[\](){}?:*+|^.]", "", language), *"a1[],"})
    words = [""]
    for _ in range(4):
        words += [word + letter for word in words[-300:] for letter in letters]
    words += ["a,a,a,a,a,a", "aaaaaac", "abbbbbbb", "-a,-a,--a", "[1,2],3,[4]", '"a""', "abAB"]
    assert [word for word in words if automaton.accepts(word) != bool(plain.fullmatch(word))] == []


def test_a_rule_is_nested_in_itself_up_to_a_depth():
    balanced = 'root ::= "(" root ")" | ""'
    for depth in (1, 2, 4):
        automaton = dfa.regex(grammar_regex(balanced, depth))
        assert [count for count in range(9) if automaton.accepts("(" * count + ")" * count)] == [*range(depth)]


LARGE = "root ::= " + " ".join(["x"] * 30) + "\nx ::= " + " | ".join(f'"{letter}" root' for letter in "abcdef") + ' | ""'


def test_a_large_grammar_is_compiled_with_less_recursion():
    pieces = [bytes([byte]) for byte in range(256)]
    assert tables("grammar", LARGE, pieces, ())


@pytest.mark.parametrize(
    "grammar, message",
    [
        ("", "grammar has no rule `root ::= ...` or `start: ...`"),
        ('x ::= "a"', "grammar has no rule"),
        ('hello\nroot ::= "a"', "grammar, line 1: hello is before the first rule"),
        ('root ::= "a"\n  | foo', "grammar: the rule foo, used in the rule root, is not defined"),
        ('root ::= "a" (\nx ::= "b"', "grammar: parentheses of the rule root do not match"),
        (
            "start: b\n\nb: /(?=a)b/",
            r"grammar, line 3: /\(\?=a\)b/ in the rule b is not supported: look-around",
        ),
        ("start: X\n%ignore WS", "grammar, line 2: % in the rule start is not supported"),
        ('root ::= "\\x"', r'grammar, line 1: "\\x" in the rule root is not supported'),
        ("root ::= *", "grammar=.* cannot be compiled: it is not a regular expression: nothing to repeat"),
        ('root ::= "a" root "b"', "matches no text that the tokenizer can spell"),
    ],
)
def test_what_is_not_supported_is_refused_by_rule_and_line(grammar, message):
    with pytest.raises(ValueError, match=message):
        tables("grammar", grammar, [bytes([byte]) for byte in range(256)], ())

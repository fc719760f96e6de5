"""Texts of ids: the ids between two masked positions share the text of their joined bytes."""

from itertools import groupby

from hypothesis import example, given, strategies as st

from dlstep.text.words import Pieces

# Beginnings and ends of characters of two, three and four bytes, whole ones, and bytes that are never valid.
PIECES = (b"a", b"", b"\xc3", b"\xa9", b"\xe2\x82", b"\xac", b"\xf0\x9f", b"\x99\x82", b"\xff", "é".encode(), b"b\xe2")
TOKENS = st.lists(st.none() | st.integers(0, len(PIECES)), max_size=12)  # the last id has no bytes


@given(TOKENS)
def test_texts_between_masks_join_to_the_text_of_their_bytes(tokens):
    texts = Pieces(PIECES).texts(tokens)
    assert len(texts) == len(tokens)
    for known, group in groupby(range(len(tokens)), lambda place: tokens[place] is not None and tokens[place] != len(PIECES)):
        places = [*group]
        if known:
            joined = b"".join([PIECES[token] for place in places if (token := tokens[place]) is not None])
            assert "".join([texts[place] or "" for place in places]) == joined.decode("utf-8", "replace")
        else:
            assert [texts[place] for place in places] == [None if tokens[place] is None else "" for place in places]


@given(st.lists(st.integers(0, len(PIECES) - 1), min_size=1), st.data())
def test_a_later_call_continues_a_character(tokens, data):
    converter, cut = Pieces(PIECES), data.draw(st.integers(0, len(tokens) - 1), "cut")
    parts = [*converter.texts(tokens[:cut], end=False), *converter.texts(tokens[cut:])]
    assert parts == Pieces(PIECES).texts(tokens)


@example(before=[2], after=[3], first=None)  # the two would be one character
@given(TOKENS, TOKENS, st.sampled_from([None, len(PIECES)]))
def test_a_later_call_that_begins_with_no_bytes_continues_nothing(before, after, first):
    converter = Pieces(PIECES)
    converter.texts(before, end=False)
    assert converter.texts([first, *after]) == Pieces(PIECES).texts([first, *after])

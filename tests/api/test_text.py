"""Text that arrives in pieces is the text that arrives at once."""

import pytest
from hypothesis import given, strategies as st

from dlstep.text import TextStream, cut, held_back


class Bytes:
    """A tokenizer whose tokens are bytes, so that characters are split over tokens."""

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, token_ids: list[int], *, skip_special_tokens: bool) -> str:
        return bytes(token_ids).decode(errors="replace")


texts = st.text(st.sampled_from("ab;\nß\u20ac\U0001f600"), max_size=20)
stops = st.lists(st.text(st.sampled_from("ab;"), min_size=1, max_size=3), max_size=2).map(tuple)


@given(texts, stops, st.lists(st.integers(1, 5), min_size=1))
def test_pieces_join_to_the_text_cut_at_the_first_stop(text: str, stops: tuple[str, ...], sizes: list[int]) -> None:
    tokens = Bytes().encode(cut(text, stops))
    stream = TextStream(Bytes(), stops)
    pieces: list[str] = []
    place = 0
    while place < len(tokens):
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(stream.push(tokens[place : place + size]))
        place += size
    assert all("\N{REPLACEMENT CHARACTER}" not in piece for piece in pieces)
    # The engine ends an answer with the token that completes a stop string, so that its text can hold one at its end.
    whole = Bytes().encode(text)
    assert "".join(pieces) + stream.close(whole) == cut(text, stops)


@pytest.mark.parametrize(("text", "count"), [("abc", 0), ("abcE", 1), ("abcEN", 2), ("", 0), ("E", 1), ("ENx", 0)])
def test_what_could_become_a_stop_string_is_held_back(text: str, count: int) -> None:
    assert held_back(text, ("END", "zz")) == count


def test_without_a_tokenizer_there_is_no_text() -> None:
    stream = TextStream(None, ())
    assert stream.push([1, 2]) + stream.close([1, 2, 3]) == ""

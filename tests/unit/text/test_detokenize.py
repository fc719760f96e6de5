"""Text that arrives in pieces is the text that arrives at once."""

from typing import Any

import pytest
from hypothesis import given, strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from dlstep.text.detokenize import KEPT, TextStream, cut, decode, held_back, special_ids
from dlstep.text.prompts import encode_text


class Bytes:
    """A tokenizer whose tokens are bytes, so that characters are split over tokens."""

    all_special_ids: tuple[int, ...] = ()
    added_tokens_decoder: dict[int, Any] = {}  # noqa: RUF012

    def encode(self, text):
        return list(text.encode())

    def convert_ids_to_tokens(self, ids):
        return str(ids)

    def decode(self, token_ids, *, skip_special_tokens, clean_up_tokenization_spaces):
        return bytes(token_ids).decode(errors="replace")


def fast(vocabulary, decoder):
    """A tokenizer with these tokens, some special ones, and the decoder of a family."""
    backend = Tokenizer(models.WordLevel({token: index for index, token in enumerate(vocabulary)}, unk_token="a"))
    backend.decoder = decoder
    backend.add_special_tokens([AddedToken("<end>", special=True, normalized=False)])
    backend.add_tokens([AddedToken("<tool>", special=False, normalized=False)])
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<end>", clean_up_tokenization_spaces=True)


SPELT = ["a", "b", " ", ";", " .", " n", "'t", "\N{REPLACEMENT CHARACTER}"]
PIECES = ["\u2581", "\u2581a", "b", "\u2581\u2581", ".", "\u2581.", "\u2581n't", *(f"<0x{byte:02X}>" for byte in range(256))]
ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())
GEMMA = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
TOKENIZERS = {
    "plain": fast(SPELT, decoders.Fuse()),
    "byte-level": fast([*ALPHABET, "\u0120a", "\u00e2\u0124", "\u0124\u00ac\u00e2"], decoders.ByteLevel()),
    "byte fallback": fast(PIECES, decoders.Sequence(GEMMA)),
    "byte fallback, stripped": fast(PIECES, decoders.Sequence([*GEMMA, decoders.Strip(" ", 1, 0)])),
    "metaspace": fast(PIECES[:7], decoders.Metaspace(prepend_scheme="always")),
    "word pieces": fast(["a", "##b", ".", "n't", "##s"], decoders.WordPiece()),
}
texts = st.text(st.sampled_from("ab;\nß\u20ac\U0001f600"), max_size=20)
stops = st.lists(st.text(st.sampled_from("ab;"), min_size=1, max_size=3), max_size=2).map(tuple)


@given(texts, stops, st.lists(st.integers(1, 5), min_size=1))
def test_pieces_join_to_the_text_cut_at_the_first_stop(text, stops, sizes):
    tokens = Bytes().encode(cut(text, stops))
    stream = TextStream(Bytes(), stops)
    pieces = []
    place = 0
    while place < len(tokens):
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(stream.push(tokens[place : place + size]))
        place += size
    assert all("\N{REPLACEMENT CHARACTER}" not in piece for piece in pieces)
    # The engine ends an answer with the token that completes a stop string, so that its text can hold one at its end.
    whole = Bytes().encode(text)
    assert "".join(pieces) + stream.close(whole) == cut(text, stops)


def tokens_of(tokenizer):
    """Tokens of any kind, among them those that spell characters of several bytes."""
    any_token = st.integers(0, len(tokenizer) - 1).map(lambda token: [token])
    vocabulary = tokenizer.get_vocab()
    spelt = [[f"<0x{byte:02X}>" for byte in character.encode()] for character in "é€\U0001f600"]
    level = [[ALPHABET_OF[byte] for byte in character.encode()] for character in "é€\U0001f600"]
    known = [[vocabulary[name] for name in names] for names in spelt + level if all(name in vocabulary for name in names)]
    some = st.one_of(any_token, st.sampled_from(known)) if known else any_token
    return st.lists(some, max_size=60).map(lambda parts: [token for part in parts for token in part])


def byte_characters():
    """The character that stands for each byte in byte-level vocabularies."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + number) for number, byte in enumerate(others)}


ALPHABET_OF = byte_characters()


@pytest.mark.parametrize("kind", TOKENIZERS)
@given(data=st.data(), sizes=st.lists(st.integers(0, 9), min_size=1, max_size=9).filter(any))
def test_pieces_are_final_and_join_to_the_whole(kind, data, sizes):
    tokenizer = TOKENIZERS[kind]
    tokens = data.draw(tokens_of(tokenizer))
    whole = decode(tokenizer, tokens)
    stream = TextStream(tokenizer, ())
    said, place, turn = "", 0, 0
    while place < len(tokens):
        size = sizes[turn % len(sizes)]
        said += stream.push(tokens[place : place + size])
        assert whole.startswith(said)
        # What ends with a character of its own is said at once.
        if place + size >= len(tokens) and tokens and tokenizer.convert_ids_to_tokens(tokens[-1]) in ("a", ".", "\u2581a"):
            assert said == whole
        place, turn = place + size, turn + 1
    assert said + stream.close(tokens) == whole


class Counting:
    """A tokenizer that counts the tokens that it decodes."""

    def __init__(self, tokenizer):
        self.tokenizer, self.decoded = tokenizer, 0
        self.all_special_ids = tokenizer.all_special_ids
        self.added_tokens_decoder = tokenizer.added_tokens_decoder

    def convert_ids_to_tokens(self, ids):
        return self.tokenizer.convert_ids_to_tokens(ids)

    def decode(self, token_ids, **options):
        self.decoded += len(token_ids)
        return self.tokenizer.decode(token_ids, **options)


@pytest.mark.parametrize("size", [1, 3, 32])
@pytest.mark.parametrize("kind", TOKENIZERS)
def test_a_push_costs_its_own_tokens(kind, size):
    counting = Counting(TOKENIZERS[kind])
    ordinary = [index for name, index in TOKENIZERS[kind].get_vocab().items() if not name.startswith("<0x")]
    tokens = [ordinary[7 * place % len(ordinary)] for place in range(2000)]
    stream = TextStream(counting, ())
    for place in range(0, len(tokens), size):
        before = counting.decoded
        stream.push(tokens[place : place + size])
        assert counting.decoded - before <= 4 * KEPT + size


@pytest.mark.parametrize("text, count", [("abc", 0), ("abcE", 1), ("abcEN", 2), ("", 0), ("E", 1), ("ENx", 0)])
def test_what_could_become_a_stop_string_is_held_back(text, count):
    assert held_back(text, ("END", "zz")) == count


def test_special_tokens_have_no_text_unless_they_are_spelled():
    tokenizer = TOKENIZERS["plain"]
    end, other = (tokenizer.convert_tokens_to_ids(token) for token in ("<end>", "<tool>"))
    tokens, spelled = [0, end, other, 1, end], special_ids(tokenizer, ["<end>", "<tool>", "a"])
    assert spelled == {end}  # the others are not special tokens
    assert decode(tokenizer, tokens) == "a<tool>b" and decode(tokenizer, tokens, spelled) == "a<end><tool>b<end>"
    stream = TextStream(tokenizer, (), spelled)
    assert "".join([stream.push([token]) for token in tokens]) + stream.close(tokens) == "a<end><tool>b<end>"


def beginning(adds):
    """A tokenizer with a beginning-of-sequence token, which adds these special tokens around a text."""
    backend = Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
    backend.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in ("<bos>", "<eos>")])
    backend.post_processor = processors.TemplateProcessing(single=adds, special_tokens=[("<bos>", 2), ("<eos>", 3)])
    return PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<bos>", eos_token="<eos>")


BEGINNING = {adds: beginning(adds) for adds in ("$A", "<bos> $A", "<bos> $A <eos>")}


@given(st.lists(st.sampled_from(["<bos>", "a", "b"]), min_size=1, max_size=4), st.sampled_from(sorted(BEGINNING)))
def test_a_text_that_begins_with_the_beginning_token_gets_no_second_one(parts, adds):
    tokenizer, plain = BEGINNING[adds], tuple(({"<bos>": 2, "a": 0, "b": 1})[part] for part in parts)
    first = (2,) if adds.startswith("<bos>") and parts[0] != "<bos>" else ()
    assert encode_text(tokenizer, "".join(parts)) == first + plain + ((3,) if adds.endswith("<eos>") else ())
    assert encode_text(tokenizer, "".join(parts), add_special_tokens=False) == plain

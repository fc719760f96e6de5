"""Laws of the tiny models' tokenizer."""

import random
from pathlib import Path

from hypothesis import given, strategies as st
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from dlstep.tiny.task import draw_problem
from training.stories import draw_response
from training.tokenizer import CHARACTERS, EMBEDDING_ROWS, SPECIAL, TEMPLATE_WORDS, VOCABULARY, build_tokenizer

TOKENIZER = build_tokenizer()
pieces = st.sampled_from((*CHARACTERS, *TEMPLATE_WORDS, *SPECIAL))
texts = st.text(st.sampled_from(CHARACTERS)) | st.lists(pieces).map("".join)


@given(texts)
def test_round_trip(text: str) -> None:
    assert TOKENIZER.decode(TOKENIZER.encode(text)) == text


@given(texts)
def test_the_longest_symbol_is_taken_at_each_place(text: str) -> None:
    for token, rest in zip(TOKENIZER.tokenize(text), _rests(text), strict=True):
        assert token == max((symbol for symbol in VOCABULARY if rest.startswith(symbol)), key=len)


@given(st.integers(0, 2**32))
def test_digits_stay_single_and_words_whole(seed: int) -> None:
    source = random.Random(seed)
    problem = draw_problem(source)
    tokens = TOKENIZER.tokenize(problem.prompt + draw_response(problem, source))
    allowed = {*"0123456789+-=.", *TEMPLATE_WORDS}
    assert set(tokens) <= allowed


def test_the_vocabulary_is_stable() -> None:
    assert len(VOCABULARY) == len(set(VOCABULARY)) == len(TOKENIZER) == TOKENIZER.vocab_size == 139 <= EMBEDDING_ROWS
    assert TOKENIZER.convert_tokens_to_ids(["<pad>", "<mask>", "<eos>", "\n", " ", "0"]) == [0, 1, 2, 3, 4, 20]
    assert (TOKENIZER.pad_token_id, TOKENIZER.mask_token_id, TOKENIZER.eos_token_id) == (0, 1, 2)


def test_foreign_characters_become_question_marks() -> None:
    assert TOKENIZER.decode(TOKENIZER.encode("3 \N{EURO SIGN}.")) == "3 ?."


def test_it_loads_from_a_folder(tmp_path: Path) -> None:
    TOKENIZER.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert isinstance(loaded, PreTrainedTokenizerFast)
    text = "Max has 53 shells. Later Max buys 39 more.\n"
    assert loaded.encode(text) == TOKENIZER.encode(text)


def _rests(text: str) -> list[str]:
    """The rest of the text at the start of each symbol, by a plain longest match."""
    rests = []
    while text:
        rests.append(text)
        text = text[max(len(symbol) for symbol in VOCABULARY if text.startswith(symbol)) :]
    return rests

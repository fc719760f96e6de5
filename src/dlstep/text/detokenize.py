"""Tokenizers, and conversion between text and tokens, for whole answers and for answers that are still growing."""

import json
import re
from collections.abc import Collection, Container, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core import Texts

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase as Tokenizer
else:
    Tokenizer = Any  # importing transformers takes seconds

TOKENIZER = "tokenizer.json"
QWEN_FILES = ("vocab.json", "merges.txt")
SPECIAL_FILES, SPECIAL = ("special_tokens_map.json", "tokenizer_config.json"), ("_token", "_tokens")
TEMPLATE_FILES = ("chat_template.jinja", "chat_template.json", "additional_chat_templates/*.jinja")
TOKENIZER_FILES = (TOKENIZER, *QWEN_FILES, *SPECIAL_FILES, "added_tokens.json", *TEMPLATE_FILES)  # all that are read
UNFINISHED = "\N{REPLACEMENT CHARACTER}"  # decoded from an incomplete character
BYTE = re.compile("<0x[0-9A-F]{2}>")  # a single byte in vocabularies with byte fallback
KEPT = 16  # tokens that are decoded again together with new ones
GARBLED = 3  # maximum number of leading characters that change if earlier tokens are omitted


def load_tokenizer(folder: Path) -> Tokenizer:
    """Load the fast tokenizer in `folder`, ignoring the class in tokenizer_config.json and all code in the folder.

    Raises FileNotFoundError without tokenizer.json, or the vocab.json and merges.txt of Qwen2 models.
    """
    from transformers import PreTrainedTokenizerFast, Qwen2Tokenizer

    # transformers accepts tokens that are objects in few fields of these files. Pass their text: the tokenizer has the rest.
    texts = dict[str, Any]()
    for file in [folder / name for name in SPECIAL_FILES if (folder / name).is_file()]:
        stated = json.loads(data := file.read_bytes())
        plain = json.loads(data, object_hook=lambda token: token.get("content", token))
        texts |= {name: plain[name] for name in stated if name.endswith(SPECIAL) and plain[name] != stated[name]}
    if (folder / TOKENIZER).is_file():
        tokenizer = PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True, **texts)
    elif all((folder / name).is_file() for name in QWEN_FILES):
        tokenizer = Qwen2Tokenizer.from_pretrained(folder, local_files_only=True, **texts)
    else:
        raise FileNotFoundError(
            f"{folder} holds no {TOKENIZER}: save its tokenizer as a fast one there (code that a checkpoint brings is never "
            "run)"
        )
    # Omit the warning of transformers about "indexing errors" for a long prompt: such a request is rejected with a reason.
    tokenizer.deprecation_warnings["sequence-length-is-longer-than-the-specified-maximum"] = True
    return tokenizer


def special_ids(tokenizer: Tokenizer, texts: Container[str] | None = None) -> frozenset[int]:
    """Return the ids of all special tokens or, given `texts`, of those with one of these texts."""
    special = {index: str(token) for index, token in tokenizer.added_tokens_decoder.items() if token.special}
    if texts is not None:
        return frozenset([index for index, text in special.items() if text in texts])
    return frozenset([*special, *tokenizer.all_special_ids])


def decode(tokenizer: Tokenizer | None, tokens: Sequence[int], spelled: Collection[int] = ()) -> str:
    """Return the text of `tokens` without special tokens, except those in `spelled`; empty without a tokenizer."""
    if tokenizer is None:
        return ""
    if spelled:
        silent = special_ids(tokenizer).difference(spelled)
        tokens = [token for token in tokens if token not in silent]
    return _decoded(tokenizer, tokens, skips=not spelled)


def _decoded(tokenizer: Tokenizer, tokens: Sequence[int], *, skips: bool) -> str:
    text = tokenizer.decode(list(tokens), skip_special_tokens=skips, clean_up_tokenization_spaces=False)
    assert isinstance(text, str), "a flat list of ids decodes to one text"
    return text


def cut(text: str, stops: Texts) -> str:
    """Return `text` up to the first of the stop strings."""
    return text[: min((start for stop in stops if (start := text.find(stop)) >= 0), default=len(text))]


def held_back(text: str, stops: Texts) -> int:
    """Return how many characters at the end of `text` may start a stop string."""
    return max((_begun(text, stop) for stop in stops), default=0)


def _begun(text: str, stop: str) -> int:
    """Return how many characters at the end of `text` are a proper prefix of `stop`."""
    # For speed, try only where its first character occurs: a server does this for each piece.
    start = text.find(stop[0], max(0, len(text) - len(stop) + 1))
    while start >= 0:
        if stop.startswith(text[start:]):
            return len(text) - start
        start = text.find(stop[0], start + 1)
    return 0


class TextStream:
    """An incremental detokenizer.

    The joined pieces are the text of all tokens, cut at the first stop string, however the tokens are
    divided into updates. No piece contains text that later tokens could change or turn into a stop string. The cost
    of a push depends only on its number of tokens. Special tokens have no text, except those in
    `spelled`.
    """

    def __init__(self, tokenizer: Tokenizer | None, stops: Texts, spelled: Collection[int] = ()) -> None:
        self._tokenizer, self._stops, self._spelled = tokenizer, stops, spelled
        self._silent = frozenset[int]() if tokenizer is None else special_ids(tokenizer).difference(spelled)
        self._window: list[int] = []  # the last tokens, on which the text of new ones may depend
        self._bytes = 0  # byte tokens at its end, decoded together once another token follows
        self._consumed = 0  # characters of its other tokens' text that were added to `_waiting`
        self._waiting = ""
        self._sent = 0

    def push(self, tokens: Sequence[int]) -> str:
        """Return the text that becomes certain with `tokens`."""
        whole = len(self._window) - self._bytes
        for token in tokens:
            self._append(token)
        end = len(self._window) - self._bytes
        if end > whole:
            text = self._text(self._window[:end])
            certain = text.removesuffix(UNFINISHED)
            self._waiting += certain[self._consumed :]
            self._consumed = max(self._consumed, len(certain))
            self._shorten(text, end)
        sure = min(len(self._waiting) - held_back(self._waiting, self._stops), len(cut(self._waiting, self._stops)))
        piece, self._waiting = self._waiting[:sure], self._waiting[sure:]
        self._sent += len(piece)
        return piece

    def _append(self, token: int) -> None:
        if self._tokenizer is None or token in self._silent:
            return
        if self._tokenizer.convert_ids_to_tokens(token) is not None:
            self._window.append(token)
            self._bytes = self._bytes + 1 if self._is_byte(token) else 0

    def _text(self, tokens: Sequence[int]) -> str:
        assert self._tokenizer is not None, "without one the window stays empty"
        return _decoded(self._tokenizer, tokens, skips=not self._spelled)

    def _is_byte(self, token: int) -> bool:
        assert self._tokenizer is not None, "without one the window stays empty"
        return BYTE.fullmatch(str(self._tokenizer.convert_ids_to_tokens(token))) is not None

    def _shorten(self, text: str, end: int) -> None:
        """Drop the oldest tokens of the window, unless that changes the others' `text`."""
        begin = end - KEPT
        if begin < KEPT:
            return
        while self._is_byte(self._window[begin - 1]) and self._is_byte(self._window[begin]):
            begin += 1  # never cut between bytes; ends, as token `end` - 1 is not a byte
        shorter = self._text(self._window[begin:end])
        if len(shorter) > GARBLED and text.endswith(shorter[GARBLED:]):
            self._consumed += len(shorter) - len(text)
            del self._window[:begin]

    def close(self, tokens: Sequence[int]) -> str:
        """Return the rest of the text, once `tokens` is the whole answer."""
        piece = cut(decode(self._tokenizer, tokens, self._spelled), self._stops)[self._sent :]
        self._sent += len(piece)
        return piece

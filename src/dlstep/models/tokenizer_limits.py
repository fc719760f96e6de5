"""Limits of a tokenizer's files, checked before the library reads them.

A `tokenizer.json` is a small program: a chain of normalizers can double a text forty times, and a template can add a
million tokens to every prompt. The library, which is written in Rust, ends the whole process when it runs out of
memory. dlstep refuses components that no published tokenizer of a supported family has, and those that lengthen a text
too much.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from .reading import LARGEST_JSON, read_object
from .regex_limits import regex_problem

TOKENIZER = "tokenizer.json"
LISTS = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
SMALL = (*LISTS, "chat_template.jinja", "chat_template.json", "additional_chat_templates/*")
LARGE = (TOKENIZER, "vocab.json", "merges.txt")
LARGEST_SMALL = 8 << 20  # bytes of a file with special tokens or a template
MOST_COMPONENTS = 32  # in one chain, those inside others included
MOST_GROWTH = 64.0  # largest factor by which a chain may lengthen a text
MOST_ADDED = 50_000  # tokens in addition to the vocabulary
LONGEST_ADDED = 1_000  # letters of one added token, and of a text that is prepended to every prompt
MOST_PARTS = 16  # parts of a template, and ids of each special token in it
LARGEST_ID = 2**31 - 1
LONGEST_PADDING = 1 << 20  # tokens
REMEDY = "use the file that the model's authors published"

Part = dict[str, Any]
# Components of each chain, and the factor by which each can lengthen a text in bytes; None: see `_growth_of_replace`.
CHAINS: dict[str, dict[str, float | None]] = {
    "normalizer": {
        "NFC": 3, "NFD": 4, "NFKC": 18, "NFKD": 18, "Lowercase": 1.5, "Strip": 1, "StripAccents": 1, "ByteLevel": 2,
        "Prepend": 1, "BertNormalizer": 4, "Replace": None,
    },
    "pre_tokenizer": {
        "Split": 1, "ByteLevel": 2, "Metaspace": 3, "Digits": 1, "Whitespace": 1, "WhitespaceSplit": 1, "Punctuation": 1,
        "CharDelimiterSplit": 1, "BertPreTokenizer": 1, "UnicodeScripts": 1,
    },
    "post_processor": {"ByteLevel": 1, "TemplateProcessing": 1, "BertProcessing": 1, "RobertaProcessing": 1},
    "decoder": {
        "ByteLevel": 1, "ByteFallback": 1, "Fuse": 1, "Strip": 1, "Metaspace": 1, "Replace": None,
    },
}  # fmt: skip
# The field in which a Sequence holds its components.
SEQUENCES = {
    "normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "post_processor": "processors", "decoder": "decoders",
}  # fmt: skip
MODELS = ("BPE", "WordLevel")


def check_tokenizer(folder: Path) -> None:
    """Raise ValueError if the tokenizer that the library would make from the files in `folder` exceeds a limit."""
    for names, largest in ((SMALL, LARGEST_SMALL), (LARGE, LARGEST_JSON)):
        for path in (path for name in names for path in folder.glob(name)):
            if path.is_file() and (size := path.stat().st_size) > largest:
                raise ValueError(f"{path} has {size} bytes, and at most {largest} are read: {REMEDY}")
    for name in LISTS:
        if (folder / name).is_file():
            _check_lists(read_object(folder / name))
    if (folder / TOKENIZER).is_file():
        described = read_object(folder / TOKENIZER)
        growth = {chain: _check_chain(chain, described.get(chain)) for chain in CHAINS}
        if (total := growth["normalizer"] * growth["pre_tokenizer"]) > MOST_GROWTH:
            raise ValueError(_grows("normalizer and pre_tokenizer", total))
        _check_model(
            _object("model", described.get("model")), _check_added("added_tokens", described.get("added_tokens") or [])
        )
        _check_padding(described.get("padding"))


def _check_lists(facts: Part) -> None:
    """Raise ValueError for too many or too long special tokens in one of the small files."""
    for name in ("added_tokens_decoder", "additional_special_tokens", "extra_special_tokens"):
        tokens = facts.get(name) or ()
        _check_added(name, list(tokens.values()) if isinstance(tokens, dict) else tokens)
    if len(facts) > MOST_ADDED:
        raise ValueError(f"it lists {len(facts)} tokens, the limit is {MOST_ADDED}: {REMEDY}")


def _check_added(name: str, tokens: Any) -> int:
    """Return the number of added tokens. Raise ValueError if there are too many, or if one is too long."""
    if not isinstance(tokens, list | tuple):
        raise ValueError(f"{name} must be a list, got a {type(tokens).__name__}: {REMEDY}")
    if len(tokens) > MOST_ADDED:
        raise ValueError(f"{name} has {len(tokens)} tokens, the limit is {MOST_ADDED}: {REMEDY}")
    for token in tokens:
        text = token.get("content") if isinstance(token, dict) else token
        if isinstance(text, str) and len(text) > LONGEST_ADDED:
            raise ValueError(f"{name} has a token of {len(text)} characters, the limit is {LONGEST_ADDED}: {REMEDY}")
    return len(tokens)


def _object(name: str, value: Any) -> Part:
    if not isinstance(value, dict):
        raise ValueError(f"{name} must be an object, got a {type(value).__name__}: {REMEDY}")
    return value


def _parts(chain: str, described: Any) -> Iterator[Part]:
    """Yield the components of a chain in order, with each Sequence replaced by its own components."""
    waiting, seen = [described], 0
    while waiting:
        part = _object(f"each part of {chain}", waiting.pop())
        if (seen := seen + 1) > MOST_COMPONENTS:
            raise ValueError(f"{chain} has more than {MOST_COMPONENTS} parts: {REMEDY}")
        if part.get("type") != "Sequence":
            yield part
            continue
        inner = part.get(SEQUENCES[chain])
        if not isinstance(inner, list) or len(inner) > MOST_COMPONENTS:
            raise ValueError(f"a Sequence of {chain} must be a list of at most {MOST_COMPONENTS} parts: {REMEDY}")
        waiting += reversed(inner)


def _check_chain(chain: str, described: Any) -> float:
    """Return the factor by which a chain can lengthen a text. Raise ValueError for a part that is not allowed."""
    growth = 1.0
    for part in () if described is None else _parts(chain, described):
        kind = part.get("type")
        if not isinstance(kind, str) or kind not in CHAINS[chain]:
            allowed = ", ".join(("Sequence", *CHAINS[chain]))
            raise ValueError(f"{chain} has a part of type {str(kind)[:80]!r}; only {allowed} are supported: {REMEDY}")
        own = CHAINS[chain][kind]
        growth *= _growth_of_replace(chain, part) if own is None else own
        if growth > MOST_GROWTH:
            raise ValueError(_grows(chain, growth))
        if kind in CHECKS:
            CHECKS[kind](chain, part)
    return growth


def _grows(chain: str, growth: float) -> str:
    return f"{chain} can make a text {growth:.3g} times as long, and at most {MOST_GROWTH:g} times is allowed: {REMEDY}"


def _pattern(chain: str, part: Part) -> tuple[str, bool]:
    """Return the pattern of a part, and whether it is a regular expression. Raise ValueError if it is not allowed."""
    pattern = _object(f"the pattern of a {part['type']} in {chain}", part.get("pattern"))
    text, expression = pattern.get("String", pattern.get("Regex")), "String" not in pattern
    if not isinstance(text, str) or not text:
        raise ValueError(f"the pattern of a {part['type']} in {chain} must be a text of at least one letter: {REMEDY}")
    if expression and (problem := regex_problem(text)):
        raise ValueError(f"the regular expression {text[:80]!r} of a {part['type']} in {chain} {problem}: {REMEDY}")
    return text, expression


def _growth_of_replace(chain: str, part: Part) -> float:
    """Return the factor by which a Replace can lengthen a text in bytes.

    A regular expression may match the empty text at every letter.
    """
    pattern, expression = _pattern(chain, part)
    content = part.get("content")
    if not isinstance(content, str):
        raise ValueError(f"the content of a Replace in {chain} must be a text, got a {type(content).__name__}: {REMEDY}")
    size = len(content.encode(errors="replace"))
    return 1.0 + size if expression else max(1.0, size / len(pattern.encode(errors="replace")))


def _check_split(chain: str, part: Part) -> None:
    _pattern(chain, part)


def _check_text(chain: str, part: Part) -> None:
    """Check the text that a Prepend puts before a text, or that a Metaspace puts in place of a space."""
    text, most = part.get("prepend", part.get("replacement", "")), LONGEST_ADDED if part["type"] == "Prepend" else 1
    if not isinstance(text, str) or len(text) > most:
        raise ValueError(f"a {part['type']} in {chain} must have a text of at most {most} letters: {REMEDY}")


def _check_strip(chain: str, part: Part) -> None:
    """Check a Strip: a decoder that strips more letters from the end of a text than it has ends the thread."""
    if chain == "decoder" and (part.get("stop") != 0 or part.get("start") not in (0, 1)):
        raise ValueError(f"a Strip in {chain} must have start 0 or 1 and stop 0: {REMEDY}")


def _check_template(chain: str, part: Part) -> None:
    """Check that a template contains each text once, and only a few special tokens."""
    for name in ("single", "pair"):
        pieces = part.get(name) or []
        if not isinstance(pieces, list) or len(pieces) > MOST_PARTS:
            raise ValueError(f"{name} of a TemplateProcessing must be a list of at most {MOST_PARTS} parts: {REMEDY}")
        texts = [str(piece["Sequence"]) for piece in pieces if isinstance(piece, dict) and "Sequence" in piece]
        if len(texts) > (1 if name == "single" else 2):
            raise ValueError(f"{name} of a TemplateProcessing repeats its text {len(texts)} times: {REMEDY}")
    tokens = _object("special_tokens of a TemplateProcessing", part.get("special_tokens") or {})
    for token in tokens.values():
        ids = token.get("ids") if isinstance(token, dict) else None
        if not isinstance(ids, list) or len(ids) > MOST_PARTS:
            raise ValueError(f"each special token of a TemplateProcessing must have at most {MOST_PARTS} ids: {REMEDY}")


CHECKS: dict[str, Callable[[str, Part], None]] = {
    "Split": _check_split,
    "Prepend": _check_text,
    "Metaspace": _check_text,
    "Strip": _check_strip,
    "TemplateProcessing": _check_template,
}


def _check_model(model: Part, added: int) -> None:
    """Raise ValueError for a model of an unsupported kind, without tokens, or with an id that is too large."""
    kind, vocabulary = model.get("type", "BPE" if "merges" in model else None), model.get("vocab")
    if kind not in MODELS:
        raise ValueError(f"its model is of type {str(kind)[:80]!r}; only {' and '.join(MODELS)} are supported: {REMEDY}")
    if not isinstance(vocabulary, dict) or not vocabulary:
        raise ValueError(f"vocab of its model holds no tokens ({added} are added to it): {REMEDY}")
    largest = max((number for number in vocabulary.values() if isinstance(number, int)), default=0)
    if largest > LARGEST_ID:
        raise ValueError(f"vocab of its model has the id {largest}, the limit is {LARGEST_ID}: {REMEDY}")
    if kind == "WordLevel" and model.get("unk_token") not in vocabulary:
        raise ValueError(f"unk_token={str(model.get('unk_token'))[:80]!r} of its model is not in its vocab: {REMEDY}")
    if model.get("dropout"):
        raise ValueError(
            f"dropout={str(model['dropout'])[:80]} of its model would split equal texts differently: set it to null"
        )
    for name in ("continuing_subword_prefix", "end_of_word_suffix"):
        if len(str(model.get(name) or "")) > LONGEST_ADDED:
            raise ValueError(f"{name} of its model has more than {LONGEST_ADDED} characters: {REMEDY}")


def _check_padding(padding: Any) -> None:
    """Raise ValueError if every text would be padded to more than `LONGEST_PADDING` tokens."""
    if not isinstance(padding, dict):
        return
    strategy = padding.get("strategy")
    for length in (strategy.get("Fixed") if isinstance(strategy, dict) else None, padding.get("pad_to_multiple_of")):
        if isinstance(length, int | float) and not length <= LONGEST_PADDING:
            raise ValueError(f"padding pads to {length} tokens, the limit is {LONGEST_PADDING}: set it to null")

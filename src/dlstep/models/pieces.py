"""The bytes that each id of a tokenizer decodes to."""

import json
from functools import cache

from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast


@cache
def _byte_of_character() -> dict[str, int]:
    """Return the byte map of byte-level BPE: printable bytes as they are, others from 256 on."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    named = {chr(byte): byte for byte in printable}
    return named | {chr(256 + number): byte for number, byte in enumerate(others)}


def _parts(description: object) -> set[str]:
    """Return the `type` of every part of a tokenizer's description, nested parts included."""
    kinds: set[str] = set()
    if isinstance(description, dict):
        if isinstance(kind := description.get("type"), str):
            kinds.add(kind)
        for part in description.values():
            kinds |= _parts(part)
    elif isinstance(description, list):
        for part in description:
            kinds |= _parts(part)
    return kinds


def _piece(token: str, kinds: set[str]) -> bytes:
    """Return the bytes of one token, for a decoder with these parts."""
    if "ByteLevel" in kinds:
        byte_of = _byte_of_character()
        if all(character in byte_of for character in token):
            return bytes(byte_of[character] for character in token)
        return token.encode()
    if "ByteFallback" in kinds and len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
        return bytes([int(token[3:5], 16)])
    if "Replace" in kinds or "Metaspace" in kinds:
        return token.replace("\u2581", " ").encode()
    return token.encode()


def pieces(tokenizer: PreTrainedTokenizerBase) -> tuple[bytes, ...]:
    """Return the bytes of each id up to the largest one; b"" for special tokens and unused ids."""
    kinds: set[str] = set()
    if isinstance(tokenizer, PreTrainedTokenizerFast):
        backend = json.loads(tokenizer.backend_tokenizer.to_str())
        kinds = _parts([backend.get("decoder"), backend.get("pre_tokenizer")])
    silent = set(tokenizer.all_special_ids)
    added = dict(tokenizer.added_tokens_decoder)
    # Ids may have gaps, so the number of tokens can be smaller.
    names = tokenizer.convert_ids_to_tokens(list(range(max(tokenizer.get_vocab().values()) + 1)))
    result: list[bytes] = []
    for index, name in enumerate(names):
        token = added.get(index)
        if index in silent or name is None or (token is not None and token.special):
            result.append(b"")
        else:
            result.append(name.encode() if token is not None else _piece(name, kinds))
    return tuple(result)

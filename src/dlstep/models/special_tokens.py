"""Look up special tokens in the vocabulary of a checkpoint's tokenizer."""

from .families import Token


def find_token(token: Token, vocabulary: dict[str, int], embedded: int) -> int | None:
    """Return the vocabulary's id of one of the token's texts, else the published id, else None.

    The published id must be below `embedded` and not the id of another token of the vocabulary.
    """
    for text in token.texts:
        if text in vocabulary:
            return vocabulary[text]
    if token.id is None or token.id >= embedded or token.id in vocabulary.values():
        return None
    return token.id

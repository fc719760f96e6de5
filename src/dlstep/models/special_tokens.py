"""The special tokens that decoding needs, looked up in the vocabulary of a checkpoint's tokenizer."""

from .families import Token


def find_token(token: Token, vocabulary: dict[str, int], embedded: int) -> int | None:
    """The id that the tokenizer's vocabulary gives one of the texts; the published one where it does not contradict; else None.

    `embedded` ids are known to the network. A token of another text in the place of the published id is a contradiction.
    """
    for text in token.texts:
        if text in vocabulary:
            return vocabulary[text]
    if token.id is None or token.id >= embedded or token.id in vocabulary.values():
        return None
    return token.id

"""The tokenizer of a checkpoint folder, and the special tokens that decoding needs. Code that a folder brings is never run."""

from pathlib import Path

from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast, Qwen2Tokenizer

from .families import Token

TOKENIZER = "tokenizer.json"
QWEN_FILES = ("vocab.json", "merges.txt")


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """The fast tokenizer in `folder`, whatever class its tokenizer_config.json names.

    Raises FileNotFoundError if there is none, nor the two files from which that of Qwen, GPT-2 and their kin is made.
    """
    if (folder / TOKENIZER).is_file():
        return PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)
    if all((folder / name).is_file() for name in QWEN_FILES):
        return Qwen2Tokenizer.from_pretrained(folder, local_files_only=True)
    raise FileNotFoundError(
        f"{folder} holds no {TOKENIZER}: save its tokenizer as a fast one there (code that a checkpoint brings is never run)"
    )


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

"""The tokenizer of a checkpoint folder, read without torch. Code that a folder brings is never run."""

from pathlib import Path

from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast, Qwen2Tokenizer

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

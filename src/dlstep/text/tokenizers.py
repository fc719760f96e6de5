"""Loading of a checkpoint's tokenizer, without torch. Code in the folder is never executed."""

from pathlib import Path

from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast, Qwen2Tokenizer

TOKENIZER = "tokenizer.json"
QWEN_FILES = ("vocab.json", "merges.txt")


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """Load the fast tokenizer in `folder`, ignoring the class in tokenizer_config.json.

    Raises FileNotFoundError without tokenizer.json, or the vocab.json and merges.txt of Qwen2 models.
    """
    if (folder / TOKENIZER).is_file():
        return PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)
    if all((folder / name).is_file() for name in QWEN_FILES):
        return Qwen2Tokenizer.from_pretrained(folder, local_files_only=True)
    raise FileNotFoundError(
        f"{folder} holds no {TOKENIZER}: save its tokenizer as a fast one there (code that a checkpoint brings is never run)"
    )

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
        tokenizer = PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)
    elif all((folder / name).is_file() for name in QWEN_FILES):
        tokenizer = Qwen2Tokenizer.from_pretrained(folder, local_files_only=True)
    else:
        raise FileNotFoundError(
            f"{folder} holds no {TOKENIZER}: save its tokenizer as a fast one there (code that a checkpoint brings is never "
            "run)"
        )
    # Omit the warning of transformers about "indexing errors" for a long prompt: such a request is rejected with a reason.
    tokenizer.deprecation_warnings["sequence-length-is-longer-than-the-specified-maximum"] = True
    return tokenizer

"""The facts of a model that the server and the batch runner need to translate and check bodies."""

from dataclasses import dataclass

from .. import tiny
from ..core import State, init
from ..text.detokenize import Tokenizer
from .messages import ModelInfo


@dataclass(frozen=True, slots=True)
class ModelTexts:
    """The tokenizer of a model and the texts that its prompts are built with."""

    tokenizer: Tokenizer | None
    prompt_end: str
    chat_template: str | None


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts of a loaded engine.

    `first` is the engine's state before any request; `model` is the model name that clients use. One
    body may request at most `most_answers` answers. The steps of a body with at most `most_kept` answers are kept.
    """

    info: ModelInfo
    texts: ModelTexts
    first: State
    model: str
    most_answers: int
    most_kept: int = 0


def description_of(info: ModelInfo) -> str | None:
    """Return what an embedded model is for, and how to load another model; None for any other model."""
    if not tiny.is_embedded(info.folder):
        return None
    return f"{tiny.PURPOSE[0].upper()}{tiny.PURPOSE[1:]}. {tiny.REMEDY[0].upper()}{tiny.REMEDY[1:]}."


def known_facts(
    info: ModelInfo, tokenizer: Tokenizer | None, name: str | None, template: str | None, most: int, most_kept: int = 0
) -> Facts:
    """Return the facts of an engine; `name` and `template` override those of `info`. `most`: see `most_answers`."""
    texts = ModelTexts(tokenizer, info.prompt_end, template or info.chat_template)
    return Facts(info, texts, init(info.config, info.strategy), name or info.name, most, most_kept)

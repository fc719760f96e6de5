"""The facts of a model that the server and the batch runner need to translate and check bodies."""

from dataclasses import dataclass

from ..core import State, init
from ..text.detokenize import Tokenizer
from .messages import Card


@dataclass(frozen=True, slots=True)
class Texts:
    """The tokenizer of a model and the texts that its prompts are built with."""

    tokenizer: Tokenizer | None
    prompt_end: str
    chat_template: str | None


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts of a loaded engine.

    `first` is the engine's state before any request; `model` is the model name that clients use. One
    body may ask for at most `most_answers` answers; the steps of at most `most_kept` are kept.
    """

    card: Card
    texts: Texts
    first: State
    model: str
    most_answers: int
    most_kept: int = 0


def known_facts(
    card: Card, tokenizer: Tokenizer | None, name: str | None, template: str | None, most: int, most_kept: int = 0
) -> Facts:
    """Return the facts of an engine; `name` and `template` override those of its card."""
    texts = Texts(tokenizer, card.prompt_end, template or card.chat_template)
    return Facts(card, texts, init(card.config, card.strategy), name or card.name, most, most_kept)

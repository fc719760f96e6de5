"""The facts of a model by which bodies are translated and checked, whoever answers them: a server or a batch."""

from dataclasses import dataclass
from typing import Protocol

from ..core import State, init
from ..text.detokenize import Tokenizer
from .messages import Card


@dataclass(frozen=True, slots=True)
class Texts:
    """How this model's texts become tokens and the other way round."""

    tokenizer: Tokenizer | None
    prompt_end: str
    chat_template: str | None


class Facts(Protocol):
    """Facts that bodies are translated by. Each of these raises NotReady where the engine has not told it yet."""

    @property
    def model(self) -> str:
        """The name of the model to clients."""
        ...

    @property
    def card(self) -> Card:
        """The facts of the engine."""
        ...

    @property
    def texts(self) -> Texts:
        """How texts become tokens."""
        ...

    @property
    def first(self) -> State:
        """The engine's state before any request."""
        ...

    @property
    def most_answers(self) -> int:
        """Most answers that one body may ask for."""
        ...

    @property
    def most_kept(self) -> int:
        """Most answers whose steps are kept."""
        ...


@dataclass(frozen=True, slots=True)
class KnownFacts:
    """The facts of an engine that is there. No steps are kept."""

    card: Card
    texts: Texts
    first: State
    model: str
    most_answers: int
    most_kept: int = 0


def known_facts(card: Card, tokenizer: Tokenizer | None, name: str | None, template: str | None, most: int) -> KnownFacts:
    """The facts of an engine with this card; `name` and `template` stand for its own where they are given."""
    texts = Texts(tokenizer, card.prompt_end, template or card.chat_template)
    return KnownFacts(card, texts, init(card.config, card.strategy), name or card.name, most)

"""Conversations: rendering of messages to prompt tokens, with a chat template."""

from collections.abc import Container, Mapping, Sequence
from typing import Any

from ..core.checks import listed, short, text_of
from .detokenize import Tokenizer, encode

Message = Mapping[str, str]  # with `role` and `content`
Conversation = Sequence[Message]


def chat_prompt(
    tokenizer: Tokenizer | None,
    template: str | None,
    messages: Conversation,
    *,
    continues: bool = False,
    tools: Sequence[Mapping[str, Any]] = (),
    variables: Mapping[str, Any] | None = None,
    optional: Container[str] = (),
) -> tuple[int, ...]:
    """Return the prompt for the next assistant turn, or with `continues` the rest of the last.

    `tools` are descriptions of functions in OpenAI's form, which most templates of models that call
    functions write into the prompt. `variables` are further variables of the template; those in
    `optional` are ignored if the template does not read them.

    `template` is used if the tokenizer has no chat template. Encoding adds no special tokens, because
    the template writes them. Raises ValueError if neither exists, or cannot render the messages.
    """
    from .rendering import render, template_variables

    check_conversation(messages)
    if tokenizer is None:
        raise ValueError("a conversation needs a tokenizer, and the engine has none: give token ids to generate()")
    own = template_of(tokenizer, template)
    if own is None:
        raise ValueError(
            "neither the tokenizer nor the family of the model has a chat template: give a plain prompt, or put a "
            "chat_template.jinja into the checkpoint folder"
        )
    plain = [_own(message) for message in messages]
    known = template_variables(own, {} if variables is None else variables, optional)
    text = render(own, plain, tokenizer.special_tokens_map, continues=continues, tools=tools, variables=known)
    return encode(tokenizer, text, add_special_tokens=False)


def template_of(tokenizer: Tokenizer | None, template: str | None) -> str | None:
    """Return the chat template of a tokenizer, or else `template`. Raises ValueError if it is not text."""
    own: Any = (tokenizer and tokenizer.chat_template) or template
    if isinstance(own, Mapping):
        own = own.get("default")
    if own is not None and not isinstance(own, str):
        raise ValueError(f"the chat template of the tokenizer must be a text, got {type(own).__name__}")
    return own


def check_conversation(messages: object) -> None:
    """Raise ValueError unless `messages` is a non-empty list of messages with role and content."""
    many = listed(messages)
    if many is None:
        raise ValueError(f"a conversation must be a list of messages with role and content, got {short(messages)}")
    if not many:
        raise ValueError("a conversation needs at least one message, like {'role': 'user', 'content': 'Hello'}")
    for number, message in enumerate(many):
        if not isinstance(message, Mapping):
            raise ValueError(f"message {number} must be a mapping with role and content, got {short(message)}")
        own = _own(message)
        for key in ("role", "content"):
            if text_of(own.get(key)) is None:
                raise ValueError(f"message {number} needs a text as its {key}, got {short(own.get(key))}")


def _own(message: Message) -> dict[str, Any]:
    """Return a message as a plain dictionary of plain strings (not subclasses)."""
    return {key: text_of(value) if isinstance(value, str) else value for key, value in message.items()}


def as_conversations(messages: Conversation | Sequence[Conversation]) -> list[Conversation]:
    """Return one conversation or many as a list. A list of messages is one conversation."""
    many: Sequence[Any] | None = listed(messages)
    if many is None:
        raise ValueError(f"messages must be a conversation or a list of conversations, got {short(messages)}")
    return list(many) if many and not any(isinstance(part, str | Mapping) for part in many) else [many]

"""Rendering of untrusted chat templates."""

import json
from collections.abc import Container, Mapping, Sequence
from typing import Any

from ..core.checks import short
from .limited_worker import LimitedWorker

LONGEST_TEMPLATE = 1 << 18  # characters
END_OF_LAST = "CONTINUE_FINAL_MESSAGE_TAG "  # marks where an answer continues the last message
REASONING = ("reasoning_content", "thinking", "reasoning")
OWN = frozenset(("messages", "tools", "documents", "add_generation_prompt"))  # variables that `render` sets
LONGEST_VARIABLES = 1 << 16  # characters as JSON


_worker = LimitedWorker()


def plain(value: Any) -> Any:
    """Return a value as plain JSON types. Replace any other object by its class name."""
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, Mapping):
        return {plain(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return f"<{type(value).__name__}>"


def as_message(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message for templates: without None values, with its reasoning under all names."""
    present = {key: plain(value) for key, value in message.items() if value is not None}
    reasoning = next((present[name] for name in REASONING if name in present), None)
    return present if reasoning is None else {"thinking": reasoning, **present, "reasoning_content": reasoning}


def render(
    template: str,
    messages: Sequence[Mapping[str, Any]],
    special_tokens: Mapping[str, str],
    *,
    continues: bool = False,
    tools: Sequence[Mapping[str, Any]] = (),
    variables: Mapping[str, Any] | None = None,
) -> str:
    """Render messages with a chat template, up to the start of the assistant's answer.

    With `continues`, the text ends with the content of the last message, which the answer continues
    (like `continue_final_message` of transformers). `variables` are those of `template_variables`.
    Raises ValueError if the template is invalid, rejects the messages, takes too long, produces too
    much text, or omits the last message.
    """
    if len(template) > LONGEST_TEMPLATE:
        raise ValueError(f"the chat template has {len(template)} characters, and at most {LONGEST_TEMPLATE} are read")
    try:
        plain_messages = [as_message(message) for message in messages]
        if continues:
            plain_messages[-1]["content"] += END_OF_LAST
        facts = {
            **plain(special_tokens),
            **(variables or {}),
            "messages": plain_messages,
            "tools": plain(tools) or None,
            "documents": None,
            "add_generation_prompt": not continues,
        }
        text = _worker.ask("template", template, facts)["text"]
        return text_before_end(text, str(messages[-1]["content"])) if continues else text
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the chat template cannot render these messages: {error}") from error


def template_variables(template: str, given: object, optional: Container[str] = ()) -> dict[str, Any]:
    """Return the variables `given` for a chat template as JSON types, without `optional` ones that it does not read.

    Raises ValueError if they are not a JSON object, too large, or contain another variable that the
    template does not read or that `render` sets.
    """
    try:
        text = json.dumps(given, ensure_ascii=False, allow_nan=False)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"chat_template_kwargs must contain JSON values only: {error}") from error
    if len(text) > LONGEST_VARIABLES:
        raise ValueError(f"chat_template_kwargs has {len(text)} characters as JSON: at most {LONGEST_VARIABLES} are allowed")
    variables = json.loads(text)
    if not isinstance(variables, dict):
        raise ValueError(f"chat_template_kwargs must be a mapping of variables to values, got {short(given)}")
    if not variables:
        return {}
    known = [name for name in _worker.ask("variables", template)["names"] if name not in OWN]
    for name in variables:
        if name not in known and name not in optional:
            read = ", ".join(known) or "none"
            raise ValueError(f"chat_template_kwargs cannot set {short(name)}: the variables of this chat template are {read}")
    return {name: value for name, value in variables.items() if name in known}


def text_before_end(text: str, last: str) -> str:
    """Return a rendered text up to the end of its message `last`. Raises ValueError without it."""
    end = text.rfind(END_OF_LAST.strip())
    if end < 0 or last.strip() not in text:
        raise ValueError("the last message, which the answer continues, is not in the text")
    # If the template trimmed the blank after the mark, also trim blanks before the mark.
    return text[:end] if text.startswith(END_OF_LAST, end) else text[:end].rstrip()

"""Conversations: rendering of messages to prompt tokens, with a chat template.

A template is a program that comes with the checkpoint. transformers runs it in Jinja's immutable sandbox, in this process.
"""

import json
import re
from collections.abc import Container, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

from ..core import Fields, Ids, Json, Refused
from ..core.checks import listed, short, text_of
from .detokenize import Tokenizer
from .prompts import encode_text

Message = Mapping[str, str]  # with `role` and `content`
Conversation = Sequence[Message]
OWN = frozenset(("messages", "tools", "documents", "add_generation_prompt"))  # variables that `render` sets
LONGEST_VARIABLES = 1 << 16  # characters as JSON
DROPS = "{# drops messages #}"  # in a template that drops messages on purpose, such as that of the embedded models
MARK = "dlstep%smark"
TAGS = re.compile(r"{%-?\s*(end)?generation\s*-?%}")  # tags of transformers, which plain Jinja does not know


def chat_prompt(
    tokenizer: Tokenizer | None,
    template: str | None,
    messages: Conversation,
    *,
    tools: Sequence[Fields] = (),
    variables: Fields | None = None,
    optional: Container[str] = (),
    add_generation_prompt: bool = True,
    continue_final_message: bool = False,
) -> Ids:
    """Return the prompt for the next assistant turn.

    Without `add_generation_prompt`, the prompt ends after the last message, or inside it with `continue_final_message`.

    `tools` are descriptions of functions in OpenAI's form, which most templates of models that call
    functions write into the prompt. `variables` are further variables of the template; those in
    `optional` are ignored if the template does not read them.

    `template` replaces the tokenizer's chat template. Encoding adds no special tokens, because the
    template writes them. Raises Refused if neither exists, or as `render` does.
    """
    check_conversation(messages)
    tokenizer, own = with_template(tokenizer, template)
    known = template_variables(own, {} if variables is None else variables, optional)
    text = render(tokenizer, own, messages, add_generation_prompt, continue_final_message, tools=tools, variables=known)
    return encode_text(tokenizer, text, add_special_tokens=False)


def render(
    tokenizer: Tokenizer,
    template: str,
    messages: Conversation,
    add_generation_prompt: bool = True,
    continue_final_message: bool = False,
    *,
    tools: Sequence[Fields] = (),
    variables: Fields | None = None,
) -> str:
    """Render messages with a chat template, up to the start of the assistant's answer if `add_generation_prompt`.

    With `continue_final_message`, the text ends with the content of the last message, which the answer
    continues. `variables` are those of `template_variables`. The role `developer` becomes `system` if
    the template does not mention `developer`. Raises Refused if the template is invalid, rejects the
    messages, or leaves out a message or its tool calls.
    """
    from jinja2 import TemplateError

    rendered: Any = partial(
        tokenizer.apply_chat_template,
        tools=[dict(tool) for tool in tools] or None,
        chat_template=template,
        add_generation_prompt=add_generation_prompt,
        continue_final_message=continue_final_message,
        tokenize=False,
        **(variables or {}),
    )
    own = [_own(message) for message in messages]
    if "developer" not in template:
        own = [message | {"role": "system"} if message["role"] == "developer" else message for message in own]
    try:
        text = rendered(own)
        if DROPS in template:
            return text
        # A short content may also occur elsewhere in the text, so render marks. They are at the end of each content,
        # because templates strip reasoning from its beginning, and at the end of the name of each call.
        marked = rendered([_marked(message, number) for number, message in enumerate(own)])
    except Exception as error:
        named = "" if isinstance(error, TemplateError | ValueError) else f"{type(error).__name__}: "
        # transformers raises ValueError itself only for a last message that cannot be continued.
        field = "continue_final_message" if continue_final_message and isinstance(error, ValueError) else "messages"
        raise Refused(field, "invalid_value", f"the chat template cannot render these messages: {named}{error}") from error
    for number, message in enumerate(own):
        if message["content"].strip() and MARK % number not in marked:
            raise Refused(
                f"messages.{number}",
                "message_dropped",
                f"its role is {short(messages[number]['role'])}, and the chat template leaves this message out, so the model "
                "would not see it: use another role or template",
            )
        for place, call in enumerate(listed(message.get("tool_calls")) or ()):
            if (mark := MARK % f"{number}.{place}") not in marked and _named(call, mark) != call:
                raise Refused(
                    f"messages.{number}.tool_calls",
                    "message_dropped",
                    "the chat template leaves these calls out, so the model would not see them: use another template",
                )
    return text


def _marked(message: Json, number: int) -> Json:
    """Return a message with marks at the ends of its content and of the names of its calls."""
    calls = [_named(call, MARK % f"{number}.{place}") for place, call in enumerate(listed(message.get("tool_calls")) or ())]
    return message | {"content": message["content"] + MARK % number} | ({"tool_calls": calls} if calls else {})


def _named(call: Any, mark: str) -> Any:
    """Return a call with a mark at the end of its name. A call without a name is returned unchanged."""
    match call:
        case {"function": {**function}}:
            return {**call, "function": _named(function, mark)}
        case {"name": str(name)}:
            return {**call, "name": name + mark}
        case _:
            return call


def template_variables(template: str, given: object, optional: Container[str] = ()) -> Json:
    """Return the variables `given` for a chat template as JSON types, without `optional` ones that it does not read.

    Raises Refused if they are not a JSON object, too large, or contain another variable that the
    template does not read or that `render` sets.
    """
    field = "chat_template_kwargs"
    try:
        text = json.dumps(given, ensure_ascii=False, allow_nan=False)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise Refused(field, "invalid_type", f"must contain JSON values only: {error}") from error
    if len(text) > LONGEST_VARIABLES:
        raise Refused(field, "too_long", f"it has {len(text)} characters as JSON: at most {LONGEST_VARIABLES} are allowed")
    variables = json.loads(text)
    if not isinstance(variables, dict):
        raise Refused(field, "invalid_type", f"must be a mapping of variables to values, got {short(given)}")
    known = variables_of(template) if variables else ()
    for name in variables:
        if name not in known and name not in optional:
            read = ", ".join(known) or "none"
            raise Refused(field, "unknown_name", f"it cannot set {short(name)}: the variables of this chat template are {read}")
    return {name: value for name, value in variables.items() if name in known}


@lru_cache(maxsize=8)
def variables_of(template: str) -> tuple[str, ...]:
    """Return the names of the variables that a template reads. Raises Refused for an invalid template."""
    from jinja2 import Environment, TemplateError
    from jinja2.meta import find_undeclared_variables

    try:
        parsed = Environment(extensions=["jinja2.ext.loopcontrols"]).parse(TAGS.sub("", template))
    except TemplateError as error:
        raise Refused("chat_template", "invalid_value", f"it is not valid: {error}") from error
    return tuple(sorted(find_undeclared_variables(parsed) - OWN))


def template_of(tokenizer: Tokenizer | None, template: str | None) -> str | None:
    """Return `template`, or else the chat template of a tokenizer. Raises Refused if it is not text."""
    own: Any = template or (tokenizer and tokenizer.chat_template)
    if isinstance(own, Mapping):
        own = own.get("default")
    if own is not None and not isinstance(own, str):
        raise Refused("chat_template", "invalid_type", f"that of the tokenizer must be a text, got {type(own).__name__}")
    return own


def with_template(tokenizer: Tokenizer | None, template: str | None) -> tuple[Tokenizer, str]:
    """Return the tokenizer with `template`, or else with its own chat template. Raises Refused if there is none."""
    if tokenizer is None:
        raise Refused(
            "messages", "unsupported", "a conversation needs a tokenizer, and the engine has none: give token ids to generate()"
        )
    own = template_of(tokenizer, template)
    if own is None:
        raise Refused(
            "messages",
            "unsupported",
            "neither the tokenizer nor the family of the model has a chat template: give a plain prompt, or put a "
            "chat_template.jinja into the checkpoint folder",
        )
    return tokenizer, own


def check_conversation(messages: object) -> None:
    """Raise Refused unless `messages` is a non-empty list of messages with role and content."""
    many = listed(messages)
    if many is None:
        raise Refused("messages", "invalid_type", f"must be a list of messages with role and content, got {short(messages)}")
    if not many:
        raise Refused("messages", "missing", "give at least one message, like {'role': 'user', 'content': 'Hello'}")
    for number, message in enumerate(many):
        if not isinstance(message, Mapping):
            raise Refused(
                f"messages.{number}", "invalid_type", f"must be a mapping with role and content, got {short(message)}"
            )
        own = _own(message)
        for key in ("role", "content"):
            if text_of(own.get(key)) is None:
                raise Refused(f"messages.{number}.{key}", "invalid_type", f"must be a text, got {short(own.get(key))}")


def _own(message: Message) -> Json:
    """Return a message as a plain dictionary of plain strings (not subclasses), without fields that are None."""
    return {key: text_of(value) if isinstance(value, str) else value for key, value in message.items() if value is not None}


def as_conversations(messages: Conversation | Sequence[Conversation]) -> list[Conversation]:
    """Return one conversation or many as a list. A list of messages is one conversation."""
    many: Sequence[Any] | None = listed(messages)
    if many is None:
        raise Refused("messages", "invalid_type", f"must be a conversation or a list of conversations, got {short(messages)}")
    return list(many) if many and not any(isinstance(part, str | Mapping) for part in many) else [many]

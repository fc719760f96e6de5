"""Prompts of the built-in tasks: those of lm_eval 0.4, byte for byte, or this package's own.

As text, the forms of `lm_eval` are those of its tasks gsm8k, minerva_math500, humaneval and mbpp.
In conversations they are those of gsm8k, minerva_math500, humaneval_instruct and mbpp_instruct with
`--apply_chat_template`, each worked example a pair of turns.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from ..text.chat import Message
from .documents import Document

Prompts = Literal["lm_eval", "dlstep"]
SHOWN = 3  # tests of a problem of mbpp in its prompt


@dataclass(frozen=True, slots=True)
class Form:
    """The form of a task's prompts; the first three texts are format strings over `fields_of`.

    Args:
        ask: The question: a user's turn, or text that is followed by `delimiter` and the answer.
        answer: A worked answer.
        prefix: In conversations, the beginning of the assistant's turn, which the model continues.
        delimiter: Between a question and its worked answer in text.
        between: After a worked answer in text.
        stop: Texts that end an answer.
        max_tokens: Maximum number of tokens of an answer, unless the options set it.
        shots: Number of worked examples, unless the options set it.
    """

    ask: str
    answer: str = "{gold}"
    prefix: str = ""
    delimiter: str = ""
    between: str = "\n\n"
    stop: tuple[str, ...] = ()
    max_tokens: int = 256
    shots: int = 0


LISTED: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("forms.yaml").read_text(encoding="utf-8"))
# By prompts, task, and whether the form is for conversations.
FORMS = {
    (prompts, task, kind == "chat"): Form(**{**form, "stop": tuple(form.get("stop", ()))})
    for prompts, tasks in LISTED.items() for task, kinds in tasks.items() for kind, form in kinds.items()
}  # fmt: skip


def fields_of(document: Document) -> dict[str, str]:
    """Return the texts of a document that a form may contain.

    `asserts` are the first tests of a problem of mbpp, without its imports, `described` is its
    question with the first one, and `commented` the same as the lines of a comment. `steps` and
    `result` are a worked answer of gsm8k.
    """
    asserts = [test for test in document.tests if test.startswith("assert")]
    described = "\n".join([document.question, "".join(asserts[:1])])
    steps, _, result = document.gold.rpartition("\n#### ")
    return {
        "question": document.question, "code": document.code, "gold": document.gold, "asserts": "\n".join(asserts[:SHOWN]),
        "described": described, "commented": described.replace("\n", "\n# "), "steps": steps, "result": result,
    }  # fmt: skip


def text_prompt(form: Form, document: Document) -> str:
    """Return the prompt as text to continue: the document's worked examples, then the question."""
    worked = form.ask + form.delimiter + form.answer + form.between
    texts = [worked.format(**fields_of(each)) for each in document.examples]
    return "".join([*texts, form.ask.format(**fields_of(document))])


def conversation(form: Form, document: Document) -> tuple[Message, ...]:
    """Return the prompt as a conversation, with worked examples and a prefix as turns."""
    turns: list[Message] = []
    for each in document.examples:
        turns += [_turn("user", form.ask, each), _turn("assistant", form.prefix + form.answer, each)]
    turns.append(_turn("user", form.ask, document))
    return (*turns, _turn("assistant", form.prefix, document)) if form.prefix else tuple(turns)


def _turn(role: str, text: str, document: Document) -> Message:
    return {"role": role, "content": text.format(**fields_of(document))}

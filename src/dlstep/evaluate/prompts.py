"""Prompts of the built-in tasks, as text or as a conversation: those of lm_eval 0.4, byte for byte, or this package's own.

As text, the forms of `lm_eval` are those of its tasks gsm8k, minerva_math500, humaneval and mbpp. In conversations they are
those of gsm8k, minerva_math500, humaneval_instruct and mbpp_instruct with `--apply_chat_template`, each worked example a pair
of turns.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from ..text.chat import Message
from .documents import Document

Prompts = Literal["lm_eval", "dlstep"]
BOXED = "Please reason step by step, and put your final answer within \\boxed{}."
CODE = "Give the whole program in one block of Python."
Render = Callable[[Document], str]


@dataclass(frozen=True, slots=True)
class Form:
    """The form of a task's prompts.

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

    ask: Render
    answer: Render = lambda document: document.gold
    prefix: Render = lambda document: ""
    delimiter: str = ""
    between: str = "\n\n"
    stop: tuple[str, ...] = ()
    max_tokens: int = 256
    shots: int = 0


def question(document: Document) -> str:
    """Return the question alone."""
    return document.question


def asserts(document: Document, most: int = 3) -> str:
    """Return the first tests of a problem of mbpp, without its imports; lm_eval shows three."""
    return "\n".join([test for test in document.tests if test.startswith("assert")][:most])


def told(document: Document) -> str:
    """Return a problem of mbpp with its first test."""
    return f"{document.question}\n{asserts(document, 1)}"


def boxed(document: Document) -> str:
    """Return a worked answer of gsm8k as a sentence with a box."""
    steps, _, result = document.gold.rpartition("\n#### ")
    return f"{steps} The answer is \\boxed{{{result}}}."


EXPERT = "You are an expert Python programmer, and here is your task:"
SOLVE = "Write a solution to the following problem and make sure that it passes the tests:\n```python\n"
HARNESS_STOP = ("Question:", "</s>", "<|im_end|>")
CODE_STOP = ("\nclass", "\ndef", "\n#", "\nif", "\nprint")
GSM8K = Form(lambda doc: f"Question: {doc.question}\nAnswer:", delimiter=" ", stop=HARNESS_STOP, shots=5)
MINERVA = Form(lambda doc: f"Problem:\n{doc.question}\n\nSolution:", delimiter=" ", stop=("Problem:",), shots=4)
OWN_STOP = ("\ndef ", "\nclass ", "\nif __name__", "\nprint(", "\nassert ", "\n#")
SHELLS = Form(question, between="\n", max_tokens=64)

# By prompts, task, and whether it is a conversation. Tasks that lm_eval does not have use the same form with both prompts.
FORMS: dict[tuple[str, str, bool], Form] = {
    ("lm_eval", "humaneval", False): Form(lambda doc: doc.code, stop=CODE_STOP, max_tokens=1024),
    ("lm_eval", "humaneval", True): Form(
        lambda doc: f"{SOLVE}{doc.code}\n```\n",
        prefix=lambda doc: f"Here is the completed function:\n```python\n{doc.code}\n",
        stop=CODE_STOP,
        max_tokens=1024,
    ),
    ("lm_eval", "mbpp", False): Form(
        lambda doc: f"{EXPERT} {doc.question} Your code should pass these tests:\n\n{asserts(doc)}\n[BEGIN]\n",
        lambda doc: f"{doc.gold}\n[DONE]",
        stop=("[DONE]",),
        shots=3,
    ),
    ("lm_eval", "mbpp", True): Form(
        lambda doc: f"{EXPERT}\n{doc.question}\nYour code should pass these tests:\n{asserts(doc)}",
        lambda doc: f"{doc.gold}\n```",
        prefix=lambda doc: "\n```python\n",
        shots=3,
    ),
    ("dlstep", "gsm8k", False): Form(
        lambda doc: f"Question: {doc.question}\nAnswer:", delimiter=" ", stop=("\nQuestion:", "\n\n\n")
    ),
    ("dlstep", "gsm8k", True): Form(lambda doc: f"{doc.question}\n{BOXED}", boxed),
    ("dlstep", "math500", False): Form(
        lambda doc: f"Problem: {doc.question}\nSolution:", delimiter=" ", stop=("\nProblem:", "\n\n\n"), max_tokens=512
    ),
    ("dlstep", "math500", True): Form(lambda doc: f"{doc.question}\n{BOXED}", max_tokens=512),
    ("dlstep", "humaneval", False): Form(lambda doc: doc.code, stop=OWN_STOP, max_tokens=512),
    ("dlstep", "humaneval", True): Form(
        lambda doc: f"Complete this function:\n{doc.code}\n{CODE}",
        lambda doc: f"```python\n{doc.code}{doc.gold}```",
        max_tokens=512,
    ),
    ("dlstep", "mbpp", False): Form(
        lambda doc: "# {}\n".format(told(doc).replace("\n", "\n# ")),
        stop=("\n# ", "\nassert ", "\nif __name__", "\nprint("),
        max_tokens=512,
    ),
    ("dlstep", "mbpp", True): Form(
        lambda doc: f"{told(doc)}\n{CODE}", lambda doc: f"```python\n{doc.gold}\n```", max_tokens=512
    ),
}  # fmt: skip
for _chat in (False, True):
    FORMS |= {("lm_eval", "gsm8k", _chat): GSM8K, ("lm_eval", "math500", _chat): MINERVA}
    FORMS |= {(prompts, "shells", _chat): SHELLS for prompts in ("lm_eval", "dlstep")}
    FORMS |= {(prompts, "questions", _chat): Form(question) for prompts in ("lm_eval", "dlstep")}


def text_prompt(form: Form, document: Document) -> str:
    """Return the prompt as text to continue: the document's worked examples, then the question."""
    worked = [f"{form.ask(each)}{form.delimiter}{form.answer(each)}{form.between}" for each in document.examples]
    return "".join([*worked, form.ask(document)])


def conversation(form: Form, document: Document) -> tuple[Message, ...]:
    """Return the prompt as a conversation: worked examples are earlier turns, and a prefix is the turn to continue."""
    turns: list[Message] = []
    for each in document.examples:
        turns += [_turn("user", form.ask(each)), _turn("assistant", form.prefix(each) + form.answer(each))]
    prefix = form.prefix(document)
    return (*turns, _turn("user", form.ask(document)), *([_turn("assistant", prefix)] if prefix else []))


def _turn(role: str, content: str) -> Message:
    return {"role": role, "content": content}

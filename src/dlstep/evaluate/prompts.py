"""Prompts of the built-in tasks: text to continue or a conversation, with worked examples in front or without."""

from dataclasses import dataclass

from ..chat import Message
from .documents import Document, worked

MOST_SHOTS = 3
BOXED = "Please reason step by step, and put your final answer within \\boxed{}."
CODE = "Give the whole program in one block of Python."


@dataclass(frozen=True, slots=True)
class Form:
    """How a task asks: `head` and `middle` stand around a question in text, `ask` behind it in a conversation.

    An answer in text ends in front of the first of `stop`, and after `max_tokens` unless something else is said.
    """

    head: str
    middle: str
    ask: str
    stop: tuple[str, ...]
    max_tokens: int


FORMS = {
    "shells": Form("", "", "", (), 64),
    "gsm8k": Form("Question: ", "\nAnswer:", BOXED, ("\nQuestion:", "\n\n\n"), 256),
    "math500": Form("Problem: ", "\nSolution:", BOXED, ("\nProblem:", "\n\n\n"), 512),
    "humaneval": Form("", "", CODE, ("\ndef ", "\nclass ", "\nif __name__", "\nprint(", "\nassert ", "\n#"), 512),
    "questions": Form("", "", "", (), 256),
    "mbpp": Form("# ", "\n", CODE, ("\n# ", "\nassert ", "\nif __name__", "\nprint("), 512),
}


def question_of(task: str, document: Document) -> str:
    """The question as both forms say it."""
    if task == "humaneval":
        return document.code.rstrip("\n") + "\n"
    if task == "mbpp":
        tests = [test for test in document.tests if test.startswith("assert")]
        return "\n".join([document.question, *tests[:1]])
    return document.question


def text_prompt(task: str, document: Document, shots: int) -> str:
    """The prompt as text to continue: `shots` worked examples, then the question."""
    blank = " " if FORMS[task].middle.endswith(":") else ""
    examples = [f"{framed(task, asked)}{blank}{answer}" for asked, answer in worked(task)[:shots]]
    return ("\n" if task == "shells" else "\n\n").join([*examples, framed(task, question_of(task, document))])


def framed(task: str, question: str) -> str:
    """A question as text that an answer continues."""
    form = FORMS[task]
    if task == "mbpp":  # lines of the question are comments
        question = question.replace("\n", "\n# ")
    return f"{form.head}{question}{form.middle}"


def conversation(task: str, document: Document, shots: int) -> tuple[Message, ...]:
    """The prompt as a conversation whose next turn is the answer; worked examples are earlier turns."""
    turns: list[Message] = []
    for asked, answer in worked(task)[:shots]:
        turns += [{"role": "user", "content": spoken(task, asked)}, {"role": "assistant", "content": said(task, asked, answer)}]
    return (*turns, {"role": "user", "content": spoken(task, question_of(task, document))})


def spoken(task: str, question: str) -> str:
    """A question as a user's turn."""
    lead = "Complete this function:\n" if task == "humaneval" else ""
    ask = FORMS[task].ask
    return f"{lead}{question}\n{ask}" if ask else question


def said(task: str, question: str, answer: str) -> str:
    """A worked answer as the assistant's turn, in the form that the question asks for."""
    match task:
        case "gsm8k":
            steps, _, result = answer.rpartition("\n#### ")
            return f"{steps} The answer is \\boxed{{{result}}}."
        case "humaneval":
            return f"```python\n{question}{answer}```"
        case "mbpp":
            return f"```python\n{answer}\n```"
        case _:
            return answer

"""A thousand answers for scorers, generated alike everywhere: right, shuffled, adversarial and garbled ones.

Problems and answers were written for these tests, so that no benchmark is needed.
"""

import json
import os
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from random import Random
from typing import Any

from dlstep.evaluate.documents import Document

from .forms import BODY, WHOLE

FROZEN = Path(__file__).with_name("lm_eval_verdicts.json")  # what lm_eval says; the tests of clients write it
NUMBERS = ("36", "1234", "1,234", "0", "-5", "18", "100000", "3.5", "0.75", "12.50", "7", "228")
FORMULAS = (
    r"\frac{1}{2}",
    "12",
    "-3",
    "x^2+2x+1",
    "(1,2)",
    "[0,1)",
    r"\{1,2\}",
    r"\sqrt{8}",
    r"2\sqrt{2}",
    r"90^\circ",
    "3\\pi",
    r"\text{Evelyn}",
    r"\text{(C)}",
    r"50\%",
    "1000",
    "1,000",
    "18.90",
    r"\$18.90",
    "p - q",
    "2516_8",
    "y = 2x + 3",
    "6 - 5i",
    r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}",
    r"\left( 3, \frac{\pi}{2} \right)",
    r"5\text{ cm}",
    r"\infty",
    "0.5",
    "2^{10}",
    r"\frac{\sqrt{3}}{2}",
    r"x \in [-2,7]",
    r"\log_2 3",
    r"11\sqrt2",
    r"-\frac{35}{9}",
    "7.5",
    r"3\frac{1}{2}",
    r"\pm 2",
    "-5",
)
NUMBER_ANSWERS = (
    "#### {}",
    "{}",
    "The answer is {}.",
    "So it is ${}.",
    "Steps: 1, 2.\n#### {}",
    "\\boxed{{{}}}",
    "It is {}km",
    "{} apples",
    "#### {}.",
    "#### {}.00",
    "First 12, then {}",
    "#### {}\nQuestion: 5?",
    "Leo{} shells.",
    "####{}",
    "#### ${}",
    "{}%",
    "**{}**",
)
NUMBER_TRAPS = (
    "",
    " ",
    "_18_",
    "\\boxed18",
    "3 1/2",
    "65-37=28 shells. Leo228 shells.",
    "53-39=14",
    "thirty-six",
    "1,2",
    "10/0",
    "#### ",
    "####36",
    "#### -",
    "#### ,",
    "#### .",
    "-",
    "$",
    "$$",
    "..",
    "36..",
    "36.,",
    "$-5",
    "-$5",
    "\u22125",
    "\u0663\u0666",
    "36\u00a0000",
    "1e3",
    "0x24",
    "#### 36 #### 37",
    "#### 12\nWait.\n#### 36",
    "36\n\n\n",
    "36\x00",
    "room B36",
    "[invalid]",
    "#### [invalid]",
    "12 or 36?",
    "1.234,00",
    "36, 37,",
    "--5",
    "5-",
    "<<6*6=36>>36",
    "#### 36 eggs",
    "#### 3 6",
    "007",
    "36.0",
    "\uff13\uff16",
)
FORMULA_ANSWERS = (
    "The answer is $\\boxed{{{}}}$.",
    "\\boxed{{{}}}",
    "Thus ${}$.",
    "{}",
    "So $\\boxed{{1}}$, no, $\\boxed{{{}}}$.",
    "\\fbox{{{}}}",
    "Final Answer: The final answer is ${}$. I hope it is correct.",
    "Final Answer: The final answer is {}. I hope it is correct.",
    "Final Answer: The final answer is $\\boxed{{{}}}$. I hope it is correct.\n\nProblem:",
    "$\\boxed{{{}}}",
    "\\[x = {}\\]",
    "We get 7.\nFinal Answer: The final answer is $\\text{{{}}}$. I hope it is correct.",
    "Final Answer: The final answer is {}.",
)
FORMULA_TRAPS = (
    "",
    "\\boxed{}",
    "\\boxed 12",
    "\\boxed12",
    "Final Answer: The final answer is. I hope it is correct.",
    "{{{",
    "}}}",
    "$$$",
    "\\frac12",
    "\\dfrac{1}{2}",
    "$1/2$",
    "0.50",
    "twelve",
    "\\boxed{12}\\boxed{-3}",
    "$x=12$",
    "12_8",
    "\\boxed{(2,1)}",
    "\\sqrt",
    "Final Answer: The final answer is $\\frac12$. I hope it is correct.",
    "\\boxed{2516}",
    "\\boxed{x^2+2x+1",
    "(x+1)^2",
    "Final Answer: The final answer is $2 \\sqrt 2$. I hope it is correct.",
    "$\\{2,1\\}$",
    "$3.5$",
    "\\boxed{\\frac{7}{2}}",
    "Final Answer: The final answer is 1,000 cents. I hope it is correct.",
    "Final Answer: The final answer is $\\frac{}{}$. I hope",
)
DOUBLE = 'FACTOR = 2\n\n\ndef double(n):\n    """Twice a number."""\n'
BODIES = (
    "    return 2 * n\n",
    "    total = n\n    total += n\n    return total\n",
    "    if n:\n        return FACTOR * n\n    return 0\n",
)
CODE_TRAPS = (
    "",
    "```",
    "``````",
    "````",
    "```python",
    "I cannot do this.",
    "    return 2 * n\n```\n```",
    "`return`",
    "```python\n\n```",
    "```\n```python\ndef double(n):\n    return 2 * n\n```",
    "import sys\nsys.exit(0)",
    "def double(n):\n    return 3 * n",
    "```py3\nx\n```",
    "```\tpython\nx```",
    "~~~\n    return 2 * n\n~~~",
    "[DONE]",
    "def double(n): return n * 2```",
    "\n\n```\n",
)
CALLS = ("assert double(3) == 6", "assert double(4) == 8", "assert double(0) == 0")


TEXTS = (
    "How many? ",
    "{{ 7 * 7 }} and {% raw %}",
    "[1, 2]",
    "Ünïcode \u2212 \U0001f600\n\nlines\n",
    " <<1+1=2>> \\boxed{2} $x$\r\nend",
)
AWKWARD = [
    Document(
        number, text, "7", ("assert f(1) == 1", f"assert f(2) == {text!r}", "assert f(3)"), f"def f(x):\n    # {text!r}\n", "f"
    )
    for number, text in enumerate(TEXTS)
]
TRAINING = [
    {"question": f"How many are {n} + {n}?\n", "answer": f"{n} + {n} = <<{n}+{n}={2 * n}>>{2 * n}.\n#### {2 * n}"}
    for n in range(50)
]
SHOTS = {"gsm8k": (0, 3, 5), "math500": (0, 2, 4), "humaneval": (0,), "mbpp": (0, 2, 3)}  # the last are lm_eval's defaults


@dataclass(frozen=True)
class Case:
    """An answer to a problem. `kind` says how it was made, `chat` whether a conversation asked."""

    task: str
    document: Document
    answer: str
    kind: str
    chat: bool = False

    @property
    def name(self) -> str:
        """A name that no other answer has."""
        return json.dumps([self.task, self.chat, self.document.gold, self.answer])


def garbled(text: str, source: Random) -> str:
    """A text with characters lost, doubled, moved or put in, as from tokens decided too early."""
    for _ in range(source.randint(1, 4)):
        place = source.randrange(len(text) + 1)
        piece = text[place : place + source.randint(1, 3)]
        put = source.choice(["", piece * 2, source.choice("0123456789.,$-#{}\\ \n`"), piece[::-1]])
        text = text[:place] + put + text[place + len(piece) :]
    return text


def numbers(count: int, source: Random) -> list[Case]:
    """Answers with numbers, for gsm8k and questions."""
    cases: list[Case] = []
    for gold in NUMBERS:
        document, other = Document(len(cases), "", gold), source.choice(NUMBERS)
        cases += [Case("gsm8k", document, form.format(gold), "gold") for form in NUMBER_ANSWERS]
        cases += [Case("gsm8k", document, form.format(other), "shuffled") for form in NUMBER_ANSWERS[::2]]
    cases += [Case("gsm8k", Document(0, "", source.choice(("36", "18", "28"))), text, "adversarial") for text in NUMBER_TRAPS]
    return spoiled(cases, count, source)


def formulas(count: int, source: Random) -> list[Case]:
    """Answers with formulas, for math500."""
    cases: list[Case] = []
    for place, gold in enumerate(FORMULAS):
        document, other = Document(place, "", gold), source.choice(FORMULAS)
        forms = source.sample(FORMULA_ANSWERS, 4)
        cases += [Case("math500", document, form.format(gold), "gold") for form in forms]
        cases += [Case("math500", document, form.format(other), "shuffled") for form in forms[:2]]
    for text in FORMULA_TRAPS:
        gold = source.choice((r"\frac{1}{2}", "12", "x^2+2x+1", "2516_8", r"2\sqrt{2}", "7.5"))
        cases.append(Case("math500", Document(0, "", gold), text, "adversarial"))
    return spoiled(cases, count, source)


def programs(task: str, count: int, source: Random) -> list[Case]:
    """Answers with programs."""
    document = Document(0, "Write a function to double a number.", "", CALLS, DOUBLE if task == "humaneval" else "", "double")
    head = "def double(n):\n"
    cases: list[Case] = []
    for chat in (False, True):
        for number, (name, form) in enumerate(WHOLE.items()):
            body = BODIES[number % 2]  # without names of the beginning, which mbpp does not have
            cases.append(Case(task, document, form(head + body, "double"), name, chat))
        for number, (name, wrap) in enumerate(BODY.items() if task == "humaneval" else ()):
            cases.append(Case(task, document, wrap(BODIES[number % 3]), name, chat))
        cases += [Case(task, document, text, "adversarial", chat) for text in CODE_TRAPS]
    return spoiled(cases, count, source)


def spoiled(cases: list[Case], count: int, source: Random) -> list[Case]:
    """The different ones of some answers, with as many garbled ones behind them as make `count`."""
    found = {(each.document.gold, each.answer, each.chat): each for each in cases}
    while len(found) < count:
        each = source.choice(cases)
        text = garbled(each.answer, source)
        found.setdefault((each.document.gold, text, each.chat), Case(each.task, each.document, text, "garbled", each.chat))
    return list(found.values())


def suite() -> list[Case]:
    """All answers, 1,000."""
    source = Random(20)
    return [*numbers(420, source), *formulas(320, source), *programs("humaneval", 140, source), *programs("mbpp", 120, source)]


def digest_of_prompts(prompts: list[Any]) -> str:
    """A short name of some prompts, texts or conversations."""
    return blake2b(json.dumps(prompts).encode(), digest_size=8).hexdigest()


def frozen(name: str) -> dict[str, Any]:
    """Return what lm_eval says: `verdicts` on answers by their names, or digests of its `prompts`."""
    return json.loads(FROZEN.read_text(encoding="utf-8"))[name]


def keep_frozen(name: str, found: dict[str, Any]) -> None:
    """Write what lm_eval says into the file, if that is asked for."""
    if os.environ.get("DLSTEP_FREEZE"):
        kept = json.loads(FROZEN.read_text(encoding="utf-8")) if FROZEN.exists() else {}
        kept[name] = found if name == "verdicts" else kept.get(name, {}) | found
        FROZEN.write_text(json.dumps(kept, indent=0, sort_keys=True) + "\n", encoding="utf-8")


def frozen_cases(found: list[Any]) -> list[Any]:
    """The part of all answers, or of what was said to them, whose verdicts are kept in a file."""
    return found[::7]

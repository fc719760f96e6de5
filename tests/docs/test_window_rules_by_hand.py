"""The tables "Five rows by hand" on the pages of rules that need a canvas say what the rules do."""

import re
from math import exp
from pathlib import Path

import pytest

from dlstep.core import Config, Request, Rows, Rule, SamplingParams, Sequence, Spec, add, commit, init, schedule
from dlstep.core.block import Block
from dlstep.rules.ada_block import AdaBlock
from dlstep.rules.early_commit import EarlyCommit
from dlstep.rules.sliding import Sliding
from dlstep.strategies.dual_cache import DualCache
from dlstep.testing.scripted import ScriptedDriver

FOLDER = Path(__file__).parents[2] / "docs" / "strategies"
MASK, DOT = 99, 50


def table(name: str) -> list[tuple[str, ...]]:
    """The cells of the five rows."""
    section = (FOLDER / f"{name}.md").read_text().partition("## Five rows by hand")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if re.match(r"\| `", line)]
    assert len(rows) == 5
    return [tuple(cell.strip(" `") for cell in row.strip("|").split("|")) for row in rows]


def after(rule: Rule, tokens: list[int], chances: list[float], seconds: list[float] | None = None, size: int = 32) -> Sequence:
    """The sequence after the first forward, whose rows say this of all positions of the answer."""
    state = init(Config(Spec(MASK, (98,), 100)), DualCache(size, "none", rule))
    state = add(state, Request(0, (1,), SamplingParams(max_tokens=len(tokens), ignore_eos=True)))
    plan = schedule(state)
    (span,) = plan.spans
    rows = [position - 1 for position in span.wanted]
    best = rule.wants.best
    pairs = [pair for row in rows for pair in ((tokens[row], chances[row]), (97, seconds[row] if seconds else 0.0))[:best]]
    driver = ScriptedDriver(
        lambda _: Rows(
            tuple(tokens[row] for row in rows),
            tuple(chances[row] for row in rows),
            best_ids=tuple(token for token, _ in pairs),
            best_probabilities=tuple(chance for _, chance in pairs),
        )
    )
    sequence = commit(state, driver.run(plan)).find(0)
    assert sequence is not None
    return sequence


def taken(block: Block) -> str:
    """Offsets that hold a token."""
    return " ".join(str(offset) for offset, token in enumerate(block.tokens) if token != MASK)


@pytest.mark.parametrize(("answer", "expected"), table("sliding"))
def test_sliding(answer: str, expected: str) -> None:
    cells = answer.split()
    start = Block(1, (MASK,) * len(cells), tuple(range(1, len(cells) + 1)), (0.0,) * len(cells))
    decided = [offset for offset, cell in enumerate(cells) if cell.isalpha()]
    block = start.decide(decided, 0, (7,) * len(cells), (1.0,) * len(cells))
    rule = Sliding(window=3)
    wanted = rule.wanted(block, len(cells) + 1, 0)
    chances = tuple(float(cells[position - 1]) for position in wanted)
    spec, request = Spec(MASK, (98,), 100), Request(0, (1,), SamplingParams(max_tokens=len(cells)))
    (waiting,) = add(init(Config(spec), DualCache(cache="none", rule=rule)), request).waiting
    done = rule.decided(waiting, block, Rows((8,) * len(chances), chances), 0, True, spec)
    assert " ".join(str(offset) for offset, token in enumerate(done.tokens) if token == 8) == expected


@pytest.mark.parametrize(("forward", "end", "expected"), table("ada_block"))
def test_ada_block(forward: str, end: str, expected: str) -> None:
    cells = [cell.split() for cell in forward.split(", ")]
    tokens = [DOT if token == "." else ord(token) - ord("a") for token, _ in cells]
    sequence = after(AdaBlock((DOT,), look_ahead=1.0), tokens, [float(chance) for _, chance in cells], size=3)
    block = Block(1, sequence.tokens(1, len(cells) + 1), (), ())
    assert taken(block) == expected
    ends = [sealed.end for sealed in sequence.past] or [sequence.window[0].end]
    assert ends == [int(end) + 1]


@pytest.mark.parametrize(("gaps", "expected"), table("early_commit"))
def test_early_commit(gaps: str, expected: str) -> None:
    chances = [1 / (1 + exp(-float(gap))) for gap in gaps.split()]
    rule = EarlyCommit(early_gap=2.0, middle_gap=2.0, late_gap=2.0)
    sequence = after(
        rule, [7] * len(chances), chances, [exp(-float(gap)) * one for gap, one in zip(gaps.split(), chances, strict=True)]
    )
    assert taken(Block(1, sequence.tokens(1, len(chances) + 1), (), ())) == expected

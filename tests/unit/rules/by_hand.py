"""Single forwards under one rule, and the rows of tables on the rules' pages."""

from pathlib import Path

from dlstep.core import Block, Request, Rule, SamplingParams, SequenceState, open_block
from dlstep.strategies.multi_bd import MultiBD
from dlstep.testing.generators import MASK

from ...helpers.decoding import waiting


def begun(rule: Rule, block: Block, temperature: float = 0.0) -> SequenceState:
    """A sequence whose first forward has just been counted."""
    params = SamplingParams(max_tokens=len(block.tokens), temperature=temperature, seed=5)
    sequence = waiting(MultiBD(rule=rule), Request(0, (1,), params))
    return sequence.after_forward(sequence.storage, 1)


def shown(block: Block) -> str:
    """Tokens, `_` for masks."""
    masks = set(block.masked)
    return " ".join("_" if block.start + offset in masks else str(token) for offset, token in enumerate(block.tokens))


def fresh(size: int) -> Block:
    return open_block(1, size, 1 + size, (1,), MASK)


PAGES = Path(__file__).parents[3] / "docs" / "strategies"


def rows_of(name: str) -> list[list[str]]:
    """The cells of the table below "Five rows by hand"."""
    section = (PAGES / f"{name}.md").read_text().partition("## Five rows by hand\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    assert len(lines) == 5
    return [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines]


def numbers(cell: str) -> tuple[float, ...]:
    return tuple(map(float, cell.split()))

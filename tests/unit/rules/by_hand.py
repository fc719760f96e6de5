"""Whole decodes and single forwards under one rule, and the rows of tables on the rules' pages."""

from pathlib import Path

from hypothesis import strategies as st

from dlstep.core import (
    Block,
    Config,
    Request,
    Rule,
    SamplingParams,
    SequenceState,
    Span,
    SpanSamples,
    Spec,
    Strategy,
    add,
    commit,
    init,
    open_block,
    schedule,
)
from dlstep.strategies.dual_cache import DualCache
from dlstep.strategies.multi_bd import MultiBD
from dlstep.testing.generators import EOS, MASK, VOCABULARY
from dlstep.testing.scripted import ScriptedDriver

SPEC = Spec(MASK, (EOS,), VOCABULARY)
SALTS = st.integers(0, 1 << 30)
STEPS = st.one_of(st.none(), st.integers(1, 12))
REQUESTS = st.builds(
    Request,
    id=st.just(0),
    prompt=st.lists(st.integers(0, EOS - 1), min_size=1, max_size=9).map(tuple),
    params=st.builds(SamplingParams, max_tokens=st.integers(1, 20), ignore_eos=st.just(True), seed=st.integers(0, 9)),
)


def answered(
    strategy: Strategy, request: Request, salt: int, *, constant: bool = False
) -> tuple[tuple[int, ...], tuple[float, ...], int]:
    """Answer, probabilities and forwards; rows are a function of what is fed and the position, or of the position alone."""

    def rows(span: Span) -> SpanSamples:
        drawn = [hash((salt, position, () if constant else span.rows.tokens)) for position in span.wanted.sampled]
        tokens = tuple(number % MASK for number in drawn)
        chances = tuple((number // MASK % 11) / 10 for number in drawn)
        best = strategy.sample_spec.best
        ids = tuple((token + rank) % MASK for token in tokens for rank in range(best))
        pairs = tuple(chance / (1 + rank) for chance in chances for rank in range(best))
        return SpanSamples(tokens, chances, best_ids=ids, best_probabilities=pairs)

    driver = ScriptedDriver(rows)
    state = add(init(Config(SPEC), strategy), request)
    while not state.done:
        state = commit(state, driver.run(schedule(state)))
    sequence = state.finished[0]
    return sequence.answer, sequence.probabilities, sequence.steps


def carriers(size: int, rule: Rule) -> list[Strategy]:
    return [MultiBD(block_size=size, rule=rule), DualCache(size, "none", rule), DualCache(size, "dual", rule)]


def begun(rule: Rule, block: Block, temperature: float = 0.0) -> SequenceState:
    """A sequence whose first forward has just been counted."""
    params = SamplingParams(max_tokens=len(block.tokens), temperature=temperature, seed=5)
    state = add(init(Config(SPEC), MultiBD(rule=rule)), Request(0, (1,), params))
    (sequence,) = state.waiting
    return sequence.after_forward(sequence.storage, 1)


def after(rule: Rule, block: Block, rows: SpanSamples, forwards: int = 1) -> Block:
    """The block after forward number `forwards`."""
    sequence = begun(rule, block)
    for _ in range(forwards - 1):
        sequence = sequence.after_forward(sequence.storage, 1)
    return rule.commit(sequence, block, rows, 0, True, SPEC)


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

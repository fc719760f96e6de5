"""Strategies that revise their blocks, decoded step by step beside the plainest loops."""

# Requests that were added are found.
# pyright: reportArgumentType=false, reportOptionalMemberAccess=false

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from hypothesis import strategies as st

from dlstep.core import (
    Block,
    Config,
    Request,
    SamplingParams,
    SequenceState,
    Span,
    SpanSamples,
    Spec,
    add,
    commit,
    init,
    schedule,
)
from dlstep.strategies.dmax import DMax
from dlstep.strategies.multi_bd_edit import MultiBDEdit
from dlstep.testing.generators import hyperparameters
from dlstep.testing.scripted import ScriptedDriver
from dlstep.text.dfa import regex
from dlstep.text.token_automaton import token_automaton

VOCABULARY, EOS, MASK = 12, 10, 11
SPEC = Spec(MASK, (EOS,), VOCABULARY)
CONFIG = Config(SPEC, 4, 100, 64, 200, 1)
CHANCES = (0.0, 0.1, 0.3, 0.4, 0.5, 0.7, 0.9, 0.95, 0.99, 1.0)  # thresholds among them
RANDOMS = st.randoms(use_true_random=False)
EDITS = hyperparameters(MultiBDEdit).filter(lambda value: isinstance(value, MultiBDEdit))
DMAXES = hyperparameters(DMax).filter(lambda value: isinstance(value, DMax))
Revising = MultiBDEdit | DMax


@dataclass(frozen=True)
class Step:
    """One sampling forward of a request."""

    before: SequenceState
    span: Span
    rows: SpanSamples
    after: SequenceState

    @property
    def blocks(self) -> list[Block]:
        """The blocks that were open."""
        return [block for block in self.before.progress.window if block.start >= self.before.progress.final]

    def editable(self, block: Block) -> list[int]:
        """The positions of the answer in a block."""
        length = len(self.before.request.prompt)
        return [position for position in range(block.start, block.end) if length <= position < self.before.request.limit]

    def answer(self, position: int) -> tuple[int, float]:
        """Token and probability that the forward gave for a position."""
        row = self.span.wanted.sampled.index(position)
        return self.rows.tokens[row], self.rows.probabilities[row]


def restless(random: Random, best: int, calm: float, temperature: float = 0.0) -> ScriptedDriver:
    """Answers that stay the same for a position with probability `calm`."""
    favourites = [random.choice((0, 1, 2, 3, 4, 5, EOS)) for _ in range(64)]

    def rows(span: Span) -> SpanSamples:
        tokens = tuple(favourites[p] if random.random() < calm else random.choice((1, 2, EOS)) for p in span.wanted.sampled)
        chances = tuple(random.choice(CHANCES) for _ in tokens)
        tops = tuple(5 if temperature else token for token in tokens)
        ids = tuple((top + rank) % MASK for top in tops for rank in range(best))
        return SpanSamples(
            tokens, chances, best_ids=ids, best_probabilities=tuple(c / 2**r for c in chances for r in range(best))
        )

    return ScriptedDriver(rows)


def decode(strategy: Revising, random: Random, **params: Any) -> Iterator[Step]:
    """A request decoded by random answers, step by step."""
    prompt = tuple(random.randrange(6) for _ in range(random.randint(1, 12)))
    asked = SamplingParams(**{"max_tokens": random.randint(1, 20), "ignore_eos": random.random() < 0.3, **params})
    driver = restless(random, strategy.sample_spec.best, random.choice((0.0, 0.8, 1.0)), asked.temperature)
    state = add(init(CONFIG, strategy), Request(0, prompt, asked))
    while not state.done:
        plan = schedule(state)
        samples = driver.run(plan)
        before, state = state.find(0), commit(state, samples)
        after = state.find(0)
        if plan.spans[0].wanted.sampled:
            yield Step(before, plan.spans[0], samples.spans[0], after)


AB_OR_BA = token_automaton("ab|ba", regex("ab|ba"), (b"a", b"b", *[b""] * 10), (EOS, MASK))


def under_a_constraint(strategy: Revising, answers: list[tuple[tuple[int, ...], tuple[float, ...]]]) -> list[tuple[int, ...]]:
    """The two tokens of an answer that is `ab` or `ba` after each of these forwards.

    The masks allow the tokens of the forwards, and each forward lowers the measure.
    """
    script, found = iter(answers), []

    def say(span: Span) -> SpanSamples:
        tokens, chances = next(script)
        allowed = [mask.ids() for mask in span.wanted.masks]
        assert all(token in ids for token, ids in zip(tokens, allowed, strict=True)), allowed
        return SpanSamples(tokens, chances)

    request = Request(0, (5, 5), SamplingParams(max_tokens=2, stop_token_ids=()), automaton=AB_OR_BA)
    state = add(init(CONFIG, strategy), request)
    while not state.done:
        before, state = state.find(0), commit(state, ScriptedDriver(say).run(schedule(state)))
        sequence = state.find(0)
        assert sequence.finish or strategy.measure(sequence) < strategy.measure(before)
        found.append(sequence.tokens(2, 4))
    assert next(script, None) is None, "it needs fewer forwards"
    return found

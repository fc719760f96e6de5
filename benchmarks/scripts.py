"""Scripted network outputs for host-cost benchmarks, for each strategy."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from dlstep.core import SequenceState, Span, SpanSamples, Spec
from dlstep.testing.scripted import ScriptedDriver

BLOCK, BUFFER = 32, 4
CANVAS = 256
VOCABULARY = 150_000
MASK, EOS = VOCABULARY - 1, VOCABULARY - 2

RowsOf = Callable[[Random, Span], SpanSamples]


@dataclass(frozen=True, slots=True)
class StrategyScript:
    """How a strategy is measured: options, spec, and rows that fill the answer fast (`whole`) and steadily (`steady`)."""

    strategy: str
    options: dict[str, Any]
    whole: RowsOf
    steady: RowsOf
    spec: Spec = field(default=Spec(MASK, (EOS,), VOCABULARY))

    def filling(self, random: Random) -> ScriptedDriver:
        """Return a driver that fills answers fast."""
        return ScriptedDriver(partial(self.whole, random))

    def driver(self, random: Random) -> ScriptedDriver:
        """Return a driver that fills answers steadily."""
        return ScriptedDriver(partial(self.steady, random))


def fed_tokens(span: Span) -> list[int]:
    """Return the token that is fed at each sampled position; the mask for positions after the span."""
    return [
        span.rows.tokens[position - span.rows.start] if position < span.rows.stop else MASK for position in span.wanted.sampled
    ]


def _drawn(random: Random, fed: list[int]) -> tuple[int, ...]:
    """Return the tokens with each mask replaced by a random token."""
    return tuple([_token(random) if token == MASK else token for token in fed])


def _token(random: Random) -> int:
    return random.randrange(EOS)


def whole_blocks(random: Random, span: Span) -> SpanSamples:
    """Give every masked position a random token with certainty, and confirm all other tokens."""
    tokens = _drawn(random, fed_tokens(span))
    # Distinct probabilities, as a network would give.
    return SpanSamples(tokens, tuple([1.0 - token * 1e-9 for token in tokens]))


def two_tokens(random: Random, span: Span) -> SpanSamples:
    """Make two masked positions confident, one of them in the first block; confirm all other tokens."""
    fed = fed_tokens(span)
    masked = [index for index, token in enumerate(fed) if token == MASK]
    probabilities = [0.5 if token == MASK else 0.95 for token in fed]
    if masked:
        first_block_end = (span.wanted.sampled[masked[0]] // BLOCK + 1) * BLOCK
        first = sum(span.wanted.sampled[index] < first_block_end for index in masked)
        probabilities[masked[random.randrange(first)]] = 0.95
        probabilities[masked[random.randrange(len(masked))]] = 0.95
    return SpanSamples(_drawn(random, fed), tuple(probabilities))


def _with_best(plain: RowsOf, random: Random, span: Span) -> SpanSamples:
    """Return the same answers, with each token also as the most probable id of its position."""
    samples = plain(random, span)
    return SpanSamples(samples.tokens, samples.probabilities, (), (), samples.tokens, samples.probabilities)


def one_a_block(random: Random, span: Span) -> SpanSamples:
    """Make no masked position confident, but one of each block surer than the rest; confirm all other tokens."""
    fed = fed_tokens(span)
    probabilities = [0.5 if token == MASK else 0.85 for token in fed]
    of_block: dict[int, list[int]] = {}
    for index, (position, token) in enumerate(zip(span.wanted.sampled, fed, strict=True)):
        if token == MASK:
            of_block.setdefault(position // BLOCK, []).append(index)
    for masked in of_block.values():
        probabilities[random.choice(masked)] = 0.6
    return SpanSamples(_drawn(random, fed), tuple(probabilities))


def sure_canvas(random: Random, span: Span) -> SpanSamples:
    """Return a canvas with constant, certain predictions, which ends as early as possible."""
    count = len(span.wanted.sampled)
    best = tuple([position % EOS for position in span.wanted.sampled])
    sure = (1.0,) * count
    noise = tuple([_token(random) for _ in best])
    return SpanSamples(best, sure, (0.0,) * count, (), best, sure, noise)


def restless_canvas(random: Random, span: Span) -> SpanSamples:
    """Return a canvas with partly certain predictions that keep changing."""
    count = len(span.wanted.sampled)
    tokens, best, noise = (tuple([_token(random) for _ in range(count)]) for _ in range(3))
    entropies = tuple([random.random() ** 4 for _ in range(count)])
    return SpanSamples(tokens, (0.5,) * count, entropies, (), best, (0.5,) * count, noise)


_BLOCKS = {"block_size": BLOCK, "buffer_size": BUFFER}
_CONFIDENT = _BLOCKS | {"semi_complete_threshold": 1.0}
# Strategies that fill a mask in every block per forward pass unmask two tokens per step if two
# blocks have masks. With default options, four blocks have some, which `_full` measures.
_TWO_BLOCKS = _BLOCKS | {"add_block_threshold": 0.5}
_DMAX = {"accept_threshold": 0.9}
_DMAX_ROWS = (partial(_with_best, whole_blocks), partial(_with_best, one_a_block))
SCRIPTS = {
    "multi_bd": StrategyScript("multi_bd", _CONFIDENT, whole_blocks, two_tokens),
    "d2f": StrategyScript("d2f", _CONFIDENT, whole_blocks, two_tokens),
    "multi_bd_edit": StrategyScript("multi_bd_edit", _TWO_BLOCKS, whole_blocks, one_a_block),
    "multi_bd_edit_full": StrategyScript("multi_bd_edit", _BLOCKS, whole_blocks, one_a_block),
    "dmax": StrategyScript("dmax", _TWO_BLOCKS | _DMAX, *_DMAX_ROWS),
    "dmax_full": StrategyScript("dmax", _BLOCKS | _DMAX, *_DMAX_ROWS),
    "fast_dllm_v2": StrategyScript(
        "fast_dllm_v2",
        {"block_size": BLOCK // BUFFER, "buffer_size": BUFFER},
        whole_blocks,
        two_tokens,
        Spec(MASK, (EOS,), VOCABULARY, 1),
    ),
    "dual_cache": StrategyScript("dual_cache", {"block_size": BLOCK}, whole_blocks, two_tokens),
    "diffusion_gemma": StrategyScript(
        "diffusion_gemma", {"canvas_length": CANVAS}, sure_canvas, restless_canvas, Spec(None, (EOS,), VOCABULARY)
    ),
}


def unmasked(sequence: SequenceState) -> int:
    """Return the number of unmasked positions up to the window's end."""
    end = sequence.progress.window[-1].end if sequence.progress.window else sequence.progress.final
    return end - sum(len(block.masked) for block in sequence.progress.window)

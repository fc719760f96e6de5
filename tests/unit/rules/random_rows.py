"""Whole decodes by random rows, in which the strategy's measure falls with every forward."""

from hypothesis import strategies as st

from dlstep.core import Request, SamplingParams, Span, SpanSamples, Strategy
from dlstep.testing.generators import EOS, MASK
from dlstep.testing.scripted import ScriptedDriver

from ...helpers.decoding import CONFIG, passes, with_requests

REQUESTS = st.builds(
    Request,
    id=st.just(0),
    prompt=st.lists(st.integers(0, EOS - 1), min_size=1, max_size=9).map(tuple),
    params=st.builds(SamplingParams, max_tokens=st.integers(1, 20), ignore_eos=st.booleans()),
)


def answered(strategy: Strategy, request: Request, salt: int) -> tuple[tuple[int, ...], tuple[float, ...], int]:
    """Answer, probabilities and forwards, where rows are a function of what is fed and of the position."""

    def rows(span: Span) -> SpanSamples:
        drawn = [hash((salt, span.rows.tokens, position)) for position in span.wanted.sampled]
        tokens = tuple(EOS if number % 17 == 0 else number % MASK for number in drawn)
        chances = tuple((number // MASK % 11) / 10 for number in drawn)
        best = strategy.sample_spec.best
        ids = tuple(token if rank == 0 else (token + rank) % MASK for token in tokens for rank in range(best))
        pairs = tuple(chance / (1 + rank) for chance in chances for rank in range(best))
        return SpanSamples(tokens, chances, best_ids=ids, best_probabilities=pairs)

    begun = with_requests(CONFIG, strategy, [request]).find(0)
    *_, sequence = begun, *[after for _, _, after in passes(CONFIG, strategy, request, ScriptedDriver(rows))]
    assert sequence is not None
    return sequence.answer, sequence.probabilities, sequence.steps


SALTS = st.integers(0, 1 << 30)

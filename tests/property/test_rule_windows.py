"""Rules that become other rules at the ends of their options answer as those do, in as many forwards."""

from dataclasses import replace

from hypothesis import given, strategies as st

from dlstep.core import Config, Request, Rows, SamplingParams, Span, Spec, Strategy, add, commit, init, schedule
from dlstep.rules.ada_block import AdaBlock
from dlstep.rules.early_commit import EarlyCommit
from dlstep.rules.quota import Quota
from dlstep.rules.sliding import Sliding
from dlstep.rules.threshold import Threshold
from dlstep.strategies.dual_cache import DualCache
from dlstep.testing.generators import EOS, MASK, VOCABULARY
from dlstep.testing.scripted import ScriptedDriver

SPEC = Spec(MASK, (EOS,), VOCABULARY)
THRESHOLDS = st.sampled_from([0.0, 0.3, 0.5, 0.9, 1.0])
REQUESTS = st.builds(
    Request,
    id=st.just(0),
    prompt=st.lists(st.integers(0, EOS - 1), min_size=1, max_size=9).map(tuple),
    params=st.builds(SamplingParams, max_tokens=st.integers(1, 20), ignore_eos=st.booleans()),
)


def answered(strategy: Strategy, request: Request, salt: int) -> tuple[tuple[int, ...], tuple[float, ...], int]:
    """Answer, probabilities and forwards, where rows are a function of what is fed and of the position.

    Fewer forwards are ahead after each one, by the strategy's measure.
    """

    def rows(span: Span) -> Rows:
        drawn = [hash((salt, span.tokens, position)) for position in span.wanted]
        tokens = tuple(EOS if number % 17 == 0 else number % MASK for number in drawn)
        chances = tuple((number // MASK % 11) / 10 for number in drawn)
        best = strategy.wants.best
        ids = tuple(token if rank == 0 else (token + rank) % MASK for token in tokens for rank in range(best))
        pairs = tuple(chance / (1 + rank) for chance in chances for rank in range(best))
        return Rows(tokens, chances, best_ids=ids, best_probabilities=pairs)

    driver = ScriptedDriver(rows)
    state = add(init(Config(SPEC), strategy), request)
    ahead = sum(strategy.measure(sequence) for sequence in state.waiting)
    while not state.done:
        state = commit(state, driver.run(schedule(state)))
        before, ahead = ahead, sum(strategy.measure(sequence) for sequence in state.running)
        assert ahead < before
    sequence = state.finished[0]
    return sequence.answer, sequence.probabilities, sequence.steps


SALTS = st.integers(0, 1 << 30)


# early_commit


@given(request=REQUESTS, salt=SALTS, size=st.integers(1, 9), steps=st.one_of(st.none(), st.integers(1, 5)))
def test_early_commit_without_gaps_is_quota(request: Request, salt: int, size: int, steps: int | None) -> None:
    rule = EarlyCommit(None, None, None, part_size=size, inner=Quota(steps))
    parts = answered(DualCache(cache="none", rule=rule), request, salt)
    assert parts == answered(DualCache(size, "none", Quota(steps)), request, salt)


@given(request=REQUESTS, salt=SALTS)
def test_early_commit_with_no_gap_due_takes_all_at_once(request: Request, salt: int) -> None:
    rule = EarlyCommit(0.0, 0.0, 0.0)
    assert answered(DualCache(cache="none", rule=rule), request, salt)[2] == 1


# sliding


@given(request=REQUESTS, salt=SALTS, accept=THRESHOLDS, inclusive=st.booleans(), more=st.integers(0, 3))
def test_a_window_over_the_whole_answer_is_one_block(
    request: Request, salt: int, accept: float, inclusive: bool, more: int
) -> None:
    answer, inner = request.params.max_tokens, Threshold(accept, inclusive=inclusive)
    window = answered(DualCache(cache="none", rule=Sliding(answer + more, inner=inner)), request, salt)
    assert window == answered(DualCache(answer, "none", inner), request, salt)


@given(request=REQUESTS, salt=SALTS, inner=st.sampled_from([Threshold(0.5), Quota(2)]))
def test_a_window_of_one_position_goes_from_left_to_right(request: Request, salt: int, inner: Threshold | Quota) -> None:
    one = answered(DualCache(cache="none", rule=Sliding(1, inner=inner)), request, salt)
    assert one == answered(DualCache(1, "none", inner), request, salt)
    assert one == answered(DualCache(cache="none", rule=Sliding(20, 1, inner=inner)), request, salt)


# ada_block


@given(
    request=REQUESTS,
    salt=SALTS,
    size=st.integers(1, 9),
    inner=st.sampled_from([Threshold(0.5), Threshold(0.9, inclusive=True), Quota(2), Quota()]),
    look_ahead=st.sampled_from([0.1, 0.25, 1.0]),
    cache=st.sampled_from(["none", "prefix", "dual"]),
)
def test_blocks_without_delimiters_have_the_canvas_size(
    request: Request, salt: int, size: int, inner: Threshold | Quota, look_ahead: float, cache: str
) -> None:
    canvas = DualCache(size, cache, inner)  # type: ignore[arg-type]
    expected = answered(canvas, request, salt)
    assert answered(replace(canvas, rule=AdaBlock((), 0.0, look_ahead, inner)), request, salt) == expected
    assert answered(replace(canvas, rule=AdaBlock((MASK,), 0.0, look_ahead, inner)), request, salt) == expected


@given(
    request=REQUESTS,
    salt=SALTS,
    pinned=st.sets(st.integers(0, 19), max_size=19),
    size=st.integers(1, 5),
    look_ahead=st.sampled_from([0.25, 1.0]),
    delimiters=st.sampled_from([(), tuple(range(0, MASK, 2))]),
)
def test_pinned_positions_that_a_block_gives_back_are_not_forwards(
    request: Request, salt: int, pinned: set[int], size: int, look_ahead: float, delimiters: tuple[int, ...]
) -> None:
    pairs = tuple([(place, 1) for place in sorted(pinned) if place < request.params.max_tokens - 1])
    request = replace(request, params=replace(request.params, pinned=pairs))
    answered(DualCache(size, "none", AdaBlock(delimiters, 0.0, look_ahead)), request, salt)


@given(request=REQUESTS, size=st.integers(1, 9))
def test_of_equal_delimiters_the_first_ends_the_block(request: Request, size: int) -> None:
    request = replace(request, params=replace(request.params, ignore_eos=True))
    rule = AdaBlock(tuple(range(VOCABULARY)), 0.0, 1.0, Threshold(0.0))
    state = add(init(Config(SPEC), DualCache(size, "none", rule)), request)

    def sure(span: Span) -> Rows:
        ones = (1.0,) * len(span.wanted)
        return Rows(span.wanted, ones, best_ids=span.wanted, best_probabilities=ones)

    while not state.done:
        state = commit(state, ScriptedDriver(sure).run(schedule(state)))
    assert state.finished[0].steps == request.params.max_tokens

"""Sliding windows: what is fed, by hand, and where they are another rule."""

import pytest
from hypothesis import given, strategies as st

from dlstep.core import Config, Request, SamplingParams, SpanSamples, Spec, with_options
from dlstep.rules.sliding import Sliding
from dlstep.strategies.dual_cache import DualCache
from dlstep.testing.generators import batches, hyperparameters, specs
from dlstep.testing.harness import answered_alone
from dlstep.testing.scripted import ScriptedDriver

from ...helpers.decoding import passes


def shapes(strategy, script, shift=0):
    """First fed position, the one after the last, and sampled positions of the spans of a prompt of 3 and an answer of 8."""
    chances = [chance for _, chance in script]

    def rows(span):
        assert (span.rows.end, span.rows.query_only, span.rows.final_rows) == (11, 0, 0), "rows are left to the core"
        return SpanSamples(span.wanted.sampled, chances.pop(0))

    config = Config(Spec(mask_id=99, eos_ids=(98,), vocab_size=100, head_shift=shift), 8, 64, 64)
    request = Request(0, (0, 1, 2), SamplingParams(max_tokens=8))
    spans = [span for _, span, _ in passes(config, strategy, request, ScriptedDriver(rows))]
    assert not chances, "fewer forwards than expected"
    return [(span.rows.start, span.rows.stop, span.wanted.sampled) for span in spans]


WINDOW = [
    ((0, 11, (3, 4, 5)), (0.9, 0.2, 0.9)),  # the canvas; 0.9 is enough
    ((4, 8, (4, 6, 7)), (0.4, 0.4, 0.3)),  # two more are on offer; the first of equals
    ((0, 11, (6, 7, 8)), (0.2, 0.95, 0.1)),  # three were unmasked: a refresh
    ((6, 10, (6, 8, 9)), (0.1, 0.2, 0.3)),
    ((6, 10, (6, 8)), (0.5, 0.1)),  # the window spans four positions, so 10 is not on offer
    ((0, 11, (8, 10)), (0.5, 0.4)),  # a refresh, and all that is left
    ((10, 11, (10,)), (0.1,)),
]


@pytest.mark.parametrize("delay, starts", [(1, (3, 5, 5, 9)), (9, (3, 3, 3, 3))])
def test_what_is_in_front_of_a_window_is_fed_with_it(delay, starts):
    """As far as the answer goes, and with a shifted head the row before in any case."""
    rule = Sliding(window=3, max_window=4, refresh_count=3, window_delay=delay)
    fed = [shape[0] for shape in shapes(DualCache(rule=rule), WINDOW) if shape[:2] != (0, 11)]
    assert tuple(fed) == starts
    shifted = [shape[0] for shape in shapes(DualCache(rule=rule), WINDOW, shift=1) if shape[:2] != (0, 11)]
    assert tuple(shifted) == starts


def test_with_a_shifted_head_the_row_in_front_of_a_window_is_fed():
    rule = Sliding(window=3, max_window=4, refresh_count=3)
    fed = [shape[0] for shape in shapes(DualCache(rule=rule), WINDOW, shift=1)]
    assert fed == [0, 3, 0, 5, 5, 0, 9]


@given(data=st.data())
def test_a_window_that_is_refreshed_each_time_is_one_without_a_cache(data):
    value = data.draw(hyperparameters(DualCache(cache="none", rule=Sliding(refresh_count=1))))
    assert isinstance(value.rule, Sliding)
    rule = with_options(value.rule, {"refresh_count": 1})
    spec = data.draw(specs(value))
    (request,) = data.draw(batches(value, most=1))
    runs = [answered_alone(spec, DualCache(cache=cache, rule=rule), request) for cache in ("none", "prefix", "dual")]
    assert len({(run.answer, run.finish, run.error, run.steps) for run in runs}) == 1

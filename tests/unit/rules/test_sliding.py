"""Sliding windows that are refreshed in each pass; `tests/reference` has the others."""

from hypothesis import given, strategies as st

from dlstep.core import with_options
from dlstep.rules.sliding import Sliding
from dlstep.strategies.dual_cache import DualCache
from dlstep.testing.generators import batches, hyperparameters, specs
from dlstep.testing.harness import answered_alone


@given(data=st.data())
def test_a_window_that_is_refreshed_each_time_is_one_without_a_cache(data):
    value = data.draw(hyperparameters(DualCache(cache="none", rule=Sliding(refresh_count=1))))
    assert isinstance(value.rule, Sliding)
    rule = with_options(value.rule, {"refresh_count": 1})
    spec = data.draw(specs(value))
    (request,) = data.draw(batches(value, most=1))
    runs = [answered_alone(spec, DualCache(cache=cache, rule=rule), request) for cache in ("none", "prefix", "dual")]
    assert len({(run.answer, run.finish, run.error, run.steps) for run in runs}) == 1

"""SDLM: forks and requests that change the size of the window; also of WeDLM's."""

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from dlstep.core import Config, Request, SamplingParams, Spec
from dlstep.strategies.sdlm import SDLM
from dlstep.strategies.wedlm import WeDLM
from dlstep.testing.generators import EOS, MASK, PIECES, VOCABULARY, Case
from dlstep.testing.harness import answered_alone, run_case

SIZES = st.integers(1, 8)


@pytest.mark.parametrize("cls, shift", [(SDLM, 1), (WeDLM, 0)])
@given(size=SIZES, forks=st.lists(st.tuples(st.integers(1, 5), SIZES), max_size=2), length=st.integers(1, 8))
def test_a_fork_may_change_the_size_of_an_open_window(cls, shift, size, forks, length):
    config = Config(Spec(MASK, (EOS,), VOCABULARY, shift, pieces=PIECES), page_size=4, num_pages=64, max_model_len=64)
    params = SamplingParams(max_tokens=12, ignore_eos=True, seed=0)
    changes = tuple([(step, {"block_size": other}) for step, other in forks])
    done = run_case(Case(config, cls(block_size=size), (Request(0, (1,) * length, params),), (0,), forks=changes))
    assert done.state.finished[0].finish == "length"


@pytest.mark.parametrize("cls, shift", [(SDLM, 1), (WeDLM, 0)])
@given(engine=SIZES, own=SIZES, length=st.integers(1, 8), seed=st.integers(0, 99))
def test_a_request_may_have_windows_for_which_the_engine_has_room(cls, shift, engine, own, length, seed):
    spec = Spec(MASK, (EOS,), VOCABULARY, shift, pieces=PIECES)
    params = SamplingParams(max_tokens=12, seed=seed, strategy_options={"block_size": own})
    found = answered_alone(spec, cls(block_size=engine), Request(0, (1,) * length, params))
    if cls is SDLM and own > engine:  # the last masks lie past the end of the answer
        assert found.finish == "rejected" and found.error.startswith("block_size: it needs blocks")
    else:
        assert (
            found.answer
            == answered_alone(spec, cls(block_size=own), Request(0, (1,) * length, replace(params, strategy_options=()))).answer
        )

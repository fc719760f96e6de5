"""What strategies refuse by name, and how they treat probabilities equal to the threshold."""

import pytest
from hypothesis import given, strategies as st

from dlstep.core import Config, Request, SamplingParams, SpanSamples, Spec, init, probe, refusal
from dlstep.strategies import available, load
from dlstep.strategies.dual_cache import DualCache
from dlstep.strategies.fast_dllm_v2 import FastDLLMV2
from dlstep.testing import ScriptedDriver
from dlstep.testing.generators import EOS, MASK, PIECES, VOCABULARY, specs

from ...helpers.decoding import passes
from ...helpers.refusals import refused


@pytest.mark.parametrize(
    "name, mask_id, head_shift",
    [
        *(
            (name, None, 0)
            for name in ("autoregressive", "self_speculation", "causal_blocks", "wedlm", "dual_cache", "dreamon")
        ),
        *((name, *model) for name in ("self_speculation", "causal_blocks", "wedlm") for model in ((None, 0), (MASK, 1))),
        *((name, *model) for name in ("strided", "fast_dllm_v2") for model in ((MASK, 0), (None, 1))),
        *(("diffusion_gemma", *model) for model in ((MASK, 0), (None, 1))),
    ],
)
def test_models_that_do_not_fit_are_refused(name, mask_id, head_shift):
    with refused("decoding_strategy", "unsupported"):
        init(Config(Spec(mask_id, (EOS,), VOCABULARY, head_shift, pieces=PIECES)), load(name)())


FIELDS = {"pinned": ("holds_pins", {0: 5}), "canvas": ("takes_canvas", (5,) * 4), "suffix": ("takes_suffix", (3,))}


@pytest.mark.parametrize(
    "name, field", [(name, field) for name in available() for field in FIELDS if not getattr(load(name), FIELDS[field][0])]
)
@given(data=st.data())
def test_fields_of_requests_that_have_no_effect_are_refused(name, field, data):
    strategy = load(name)()
    spec = data.draw(specs(strategy))
    reason = refusal(
        Config(spec, num_pages=400), strategy, probe(spec, SamplingParams(max_tokens=4, **{field: FIELDS[field][1]}))
    )
    assert (reason.field, reason.code) == (field, "unsupported") and type(strategy).__name__ in reason.message


def test_values_that_do_not_fit_are_refused():
    with refused("buffer_size", "out_of_range"):
        FastDLLMV2(buffer_size=1)
    with refused("cache", "invalid_value"):
        DualCache(cache="suffix")


@pytest.mark.parametrize("name, steps", [("fast_dllm_v2", 4), ("dual_cache", 1)])
def test_dual_cache_unmasks_at_the_threshold_and_fast_dllm_v2_only_above(name, steps):
    driver = ScriptedDriver(lambda span: SpanSamples((5,) * len(span.wanted.sampled), (0.9,) * len(span.wanted.sampled)))
    request = Request(0, (1,), SamplingParams(max_tokens=4))
    *_, (_, _, done) = passes(Config(Spec(MASK, (EOS,), VOCABULARY, 1)), load(name)(), request, driver)
    assert done.steps == steps

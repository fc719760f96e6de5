"""Options of a strategy that a request brings, and keywords that `SamplingParams` does not have."""

from dataclasses import fields
from inspect import signature

import pytest

from dlstep.core import Request, SamplingParams
from dlstep.core.request import explains

from ...helpers.refusals import refused


@pytest.mark.parametrize("odd", [("a",), (1.5,), (True,), ((1,),), (1 << 70,), {1: 2}, {4}, b"12", (None,)])
def test_other_lists_are_refused(odd):
    with refused("delimiters", "invalid_type"):
        SamplingParams(strategy_options={"delimiters": odd})


def test_an_unknown_keyword_hints_at_its_place():
    known = {field.name for field in fields(SamplingParams)}
    assert set(signature(SamplingParams).parameters) == known, "the signature is that of the dataclass"
    for name in known:
        with pytest.raises(TypeError, match=rf"has no option '{name}x', but {name}x=3 is given: did you mean {name}\?"):
            SamplingParams(**{f"{name}x": 3})
    with pytest.raises(TypeError, match=r"SamplingParams\(strategy_options={'accept_threshold': 3}\)"):
        SamplingParams(accept_threshold=3)
    with pytest.raises(
        TypeError, match=r"call has no option 'top_k', but top_k=3 is given: it belongs in SamplingParams\(top_k=3\)"
    ):
        explains("call")(lambda prompt: prompt)(prompt=1, top_k=3)


@pytest.mark.parametrize("seed", [None, 0, -3, 7, (1 << 64) - 1])
def test_each_answer_has_a_seed_of_its_own(seed):
    several = SamplingParams(n=3, seed=seed, temperature=0.5).each
    assert [params.n for params in several] == [1, 1, 1] and several[0] == SamplingParams(seed=seed, temperature=0.5)
    if seed is not None:
        assert [params.seed for params in several[1:]] == [(seed + 1) % (1 << 64), (seed + 2) % (1 << 64)]
    assert all(params.each == (params,) for params in several)
    assert SamplingParams(seeds=[5, 5, -1]).each == tuple(SamplingParams(seed=given) for given in (5, 5, -1))


@pytest.mark.parametrize("options", [{"n": 2}, {"seeds": (4,)}])
def test_a_request_has_one_answer(options):
    with refused("params", "conflict"):
        Request(3, (1,), SamplingParams(**options))
    with refused("seeds", "conflict"):
        SamplingParams(**{"seeds": (1, 2), "n": 2} | options | {"seed": 3})


@pytest.mark.parametrize(
    "name, pairs",
    [("pinned", [(3, 5), (3, 6)]), ("strategy_options", [("accept_threshold", 0.5), ("accept_threshold", 1.0)])],
)
def test_a_key_that_is_given_twice_is_refused(name, pairs):
    """Otherwise, pairs would silently lose all but the last value."""
    with refused(name, "conflict"):
        SamplingParams(**{name: pairs})

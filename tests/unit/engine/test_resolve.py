"""Every option of an engine is decided, for the model and the device."""

from dataclasses import fields, replace

import pytest

from dlstep import EngineConfig
from dlstep.core import init
from dlstep.engine import resolve as resolving
from dlstep.engine.config import engine_config
from dlstep.engine.resolve import ResolvedConfig, resolve

from ...helpers.descriptions import Facts
from ...helpers.refusals import refused

UNDECIDED = {"adapter", "buffer_policy", "quantization", "num_threads", "kv_cache_gib"}  # None: there is none, or torch decides


def test_what_is_not_given_is_decided():
    facts = Facts()
    resolved = resolve(EngineConfig(), facts)
    assert {each.name for each in fields(ResolvedConfig) if getattr(resolved, each.name) is None} == UNDECIDED
    assert (resolved.max_model_len, resolved.page_size, resolved.max_tokens) == (512, 8, 512)
    assert resolved.choices.startswith("weights in float32 (the network is small), KV cache in float32 of 65,536 positions")
    init(resolved.core_config(facts.spec), resolved.strategy)


def test_what_is_given_is_kept():
    given = {"page_size": 16, "max_model_len": 100, "dtype": "bfloat16", "enforce_eager": True, "compile_layers": True}
    resolved = resolve(engine_config(given), replace(Facts(), max_tokens=7))
    assert (resolved.max_model_len, resolved.page_size, resolved.max_tokens) == (100, 16, 7)
    assert (str(resolved.dtype), resolved.graphs, resolved.compile_layers) == ("torch.bfloat16", "never", True)
    assert "bfloat16 (as requested)" in resolved.choices


@pytest.mark.parametrize("given", [{}, {"num_pages": 99}, {"num_pages": -1}, {"kv_cache_gib": 1.0}])
def test_the_kv_cache_takes_what_is_left_on_cuda_or_where_memory_is_given(given, monkeypatch):
    pages = given.get("num_pages")
    expected = None if pages == -1 else pages
    assert resolve(engine_config(given), Facts()).num_pages == (expected if given else 65_536 // 8)
    monkeypatch.setattr(resolving, "find_device", lambda name: "cuda")
    resolved = resolve(engine_config(given | {"compile_layers": False}), Facts())
    assert (resolved.num_pages, str(resolved.dtype), resolved.device) == (expected, "torch.bfloat16", "cuda")
    assert ("as large as the memory allows" in resolved.choices) == (expected is None)


@pytest.mark.parametrize("longest, least, most", [(100_000, 100_000, 101_000), (2048, 65_536, 65_537)])
def test_default_pages_are_capped_but_hold_the_longest_request(longest, least, most):
    facts = replace(Facts(), max_model_len=longest)
    config = resolve(EngineConfig(), facts).core_config(facts.spec)
    assert least <= config.num_pages * config.page_size < most


def test_a_length_beyond_the_model_is_refused():
    with refused("max_model_len", "out_of_range"):
        resolve(EngineConfig(max_model_len=513), Facts())

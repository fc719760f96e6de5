"""Every strategy on the embedded model that was trained for it."""

from functools import cache
from typing import Any

from dlstep import LLM, Request, SamplingParams, tiny
from dlstep.core.lifecycle import largest_fed_end

LIMIT = SamplingParams(max_tokens=64)


# Names of strategies, some with a variant after a comma, and their options.
DECODERS: dict[str, dict[str, Any]] = {
    "multi_bd": {},
    "d2f": {},
    "multi_bd, edit": {"sampling_mode": "edit", "buffer_size": 2},
    "dmax": {"accept_threshold": 0.5},
    "fast_dllm_v2": {},
    "fast_dllm_v2, no block cache": {"fdv2_use_block_cache": False},
    "dual_cache": {},
    "dual_cache, none": {"cache": "none"},
    "diffusion_gemma": {},
    "causal_blocks": {},
    "self_speculation": {},
}


def llm_of(name: str, **others: Any) -> LLM:
    """An engine of a decoder."""
    return LLM(decoding_strategy=name.partition(",")[0], **DECODERS[name], **others)


@cache
def first(name: str) -> LLM:
    """An engine of a decoder, for its facts only."""
    return llm_of(name)


def exact(name: str) -> bool:
    """Whether the strategy answers a preempted request as any other."""
    return first(name).state.strategy.exact


def fed_end(name: str, length: int) -> int:
    """Positions that the longest request of `length` tokens may feed."""
    return largest_fed_end(first(name).state.strategy, length)


def holds_all(name: str) -> bool:
    """Whether a request gets all of its pages at once, so that nobody must give any back."""
    strategy, request = first(name).state.strategy, Request(0, (1,), SamplingParams(max_tokens=64))
    return strategy.rows_at_once(request) == strategy.fed_end(request)


@cache
def prompts(count: int) -> tuple[str, ...]:
    """Prompts of held-out problems."""
    return tuple(problem.prompt for problem in tiny.problems(count, seed=11))

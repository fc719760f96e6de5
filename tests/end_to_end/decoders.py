"""Every strategy on the embedded model that was trained for it."""

from dataclasses import dataclass, field
from functools import cache
from typing import Any

from dlstep import LLM, Request, SamplingParams, tiny
from dlstep.core.lifecycle import largest_fed_end

LIMIT = SamplingParams(max_tokens=64)


@dataclass(frozen=True)
class Decoder:
    """Options of an `LLM`."""

    options: dict[str, Any] = field(default_factory=dict)

    def llm(self, **others: Any) -> LLM:
        """An engine that decodes so."""
        return LLM(**self.options, **others)


DECODERS = {
    "multi_bd": Decoder({"decoding_strategy": "multi_bd"}),
    "d2f": Decoder({"decoding_strategy": "d2f"}),
    "edit": Decoder({"decoding_strategy": "multi_bd", "sampling_mode": "edit", "buffer_size": 2}),
    "dmax": Decoder({"decoding_strategy": "dmax", "accept_threshold": 0.5}),
    "fast_dllm_v2": Decoder({"decoding_strategy": "fast_dllm_v2"}),
    "fast_dllm_v2, no block cache": Decoder({"decoding_strategy": "fast_dllm_v2", "fdv2_use_block_cache": False}),
    "dual_cache": Decoder({"decoding_strategy": "dual_cache"}),
    "dual_cache, none": Decoder({"decoding_strategy": "dual_cache", "cache": "none"}),
    "diffusion_gemma": Decoder({"decoding_strategy": "diffusion_gemma"}),
    "causal_blocks": Decoder({"decoding_strategy": "causal_blocks"}),
    "self_speculation": Decoder({"decoding_strategy": "self_speculation"}),
}


@cache
def first(name: str) -> LLM:
    """An engine of a decoder, for its facts only."""
    return DECODERS[name].llm()


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

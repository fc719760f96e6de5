"""LLMs on a device made of dictionaries, with the tokenizer of the embedded models."""

from collections.abc import Callable
from functools import cache

from dlstep import LLM, Config, Spec, Strategy, init
from dlstep.core import Driver
from dlstep.engine.loader import LoadedEngine
from dlstep.models.description import pieces
from dlstep.strategies import load
from dlstep.testing.shadow import ShadowDriver
from training.tokenizer import EOS_ID, MASK_ID, build_tokenizer

PAGE_SIZE = 8


@cache
def spec() -> Spec:
    """Facts of a model that does not exist, for a tokenizer that does."""
    tokenizer = build_tokenizer()
    return Spec(mask_id=MASK_ID, eos_ids=(EOS_ID,), vocab_size=len(tokenizer), pieces=pieces(tokenizer))


def make_llm(
    strategy: str | type[Strategy] = "multi_bd",
    num_pages: int = 64,
    wrap: Callable[[Driver], Driver] = lambda driver: driver,
    eos_share: float = 0.0,
    **budgets: int,
) -> LLM:
    """An LLM on a new shadow device; `wrap` may put another driver around it."""
    limits = {"max_model_len": 128, "max_num_batched_tokens": 256, "max_num_reqs": 4} | budgets
    config = Config(spec(), page_size=PAGE_SIZE, num_pages=num_pages, **limits)
    state = init(config, (load(strategy) if isinstance(strategy, str) else strategy)(block_size=8))
    return LLM.of(
        LoadedEngine(state, wrap(ShadowDriver(PAGE_SIZE, num_pages, spec(), eos_share, places=4)), build_tokenizer(), "shadow")
    )

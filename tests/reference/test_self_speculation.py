"""Self-speculation against a loop over a list of ids, and against the engine's autoregressive decoding."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch

from dlstep.models.adapter import adapt, read_adapter

from ..helpers.draft_adapter import write_draft_adapter
from . import self_speculation
from .causal import CLOSE, Draws, asked, engine_decode, preferring
from .engine import Pair
from .models import Dense
from .self_speculation import Adapted

OPTIONS: dict[str, Callable[[Random], dict[str, Any]]] = {
    "autoregressive": lambda random: {},
    "self_speculation": lambda random: {"block_size": random.choice((1, 2, 4, 4, 8))},
}


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("count", [60, pytest.param(2000, marks=pytest.mark.stress)])
def test_tokens_and_passes_are_those_of_the_loop(
    pairs: list[Pair], name: str, count: int, report: Callable[[str], None]
) -> None:
    compared = stopped = tokens = verified = total = 0
    for index, case in enumerate(asked(7, count, OPTIONS[name])):
        pair = pairs[index % len(pairs)]
        with preferring(pair, case.likely):
            network, size = Dense(pair.network), case.options.get("block_size", 1)
            draws = Draws(network, case.seed, case.temperature)
            expected, drafts, others = self_speculation.decode(network, case.prompt, case.limit, size, draws)
            if network.smallest < CLOSE:
                continue
            spec = replace(pair.checkpoint.spec, head_shift=0)
            found = engine_decode(pair, case, name, spec)
            if index % 5 == 0:
                plain = engine_decode(pair, replace(case, options={}), "autoregressive", spec)
                ends = plain.finish == "stop"  # one more pass, for the end of sequence
                assert found.answer == plain.answer and others <= plain.steps == len(plain.answer) + ends
                assert found.probabilities == pytest.approx(plain.probabilities, abs=1e-4)
        assert (list(found.answer), found.steps, found.nfe) == (expected, drafts + others, drafts + others), case
        compared += 1
        stopped += len(expected) < case.max_tokens
        if size > 1 or name == "autoregressive":
            tokens, verified, total = tokens + len(expected), verified + others, total + drafts + others
    report(
        f"{name}: {compared} answers compared, {stopped} stopped early, {tokens / verified:.2f} tokens per verifying "
        f"pass, {tokens / total:.2f} per forward pass"
    )
    assert compared > 0.9 * count and stopped > count // 10
    assert tokens > 1.2 * verified if name == "self_speculation" else tokens <= verified


def with_adapter(pair: Pair, folder: Path) -> tuple[Pair, Adapted]:
    """A copy of the pair whose engine has an adapter for drafts, and a context that applies the adapter in the loop."""
    pair = deepcopy(pair)
    updates = write_draft_adapter(folder, pair.network)
    adapt(pair.checkpoint, read_adapter(folder), merge=True)

    @contextmanager
    def adapted(since: int) -> Iterator[None]:
        def added(update: torch.Tensor, inputs: tuple[torch.Tensor, ...], product: torch.Tensor) -> torch.Tensor:
            more = inputs[0] @ update.T
            more[:, :since] = 0.0
            return product + more

        with ExitStack() as stack:
            for module, update in updates:
                hook = partial(lambda update, _module, inputs, product: added(update, inputs, product), update)
                stack.callback(module.register_forward_hook(hook).remove)
            yield

    return pair, adapted


def test_an_adapter_for_drafts_changes_only_drafts(pairs: list[Pair], tmp_path: Path) -> None:
    plain = pairs[0]
    gated, adapted = with_adapter(plain, tmp_path / "linear_spec_lora")
    spec, others = replace(plain.checkpoint.spec, head_shift=0), 0
    for case in asked(8, 40, lambda random: {"block_size": random.choice((4, 8))}):
        with preferring(gated, case.likely), preferring(plain, case.likely):
            network, size = Dense(gated.network), case.options["block_size"]
            draws = Draws(network, case.seed, case.temperature)
            expected, drafts, verified = self_speculation.decode(network, case.prompt, case.limit, size, draws, adapted)
            if network.smallest < CLOSE:
                continue
            found = engine_decode(gated, case, "self_speculation", spec)
            bare = engine_decode(plain, case, "self_speculation", spec)
        assert (list(found.answer), found.steps) == (expected, drafts + verified), case
        assert (found.answer, found.probabilities) == (bare.answer, pytest.approx(bare.probabilities, abs=1e-5))
        others += found.steps != bare.steps
    assert others > 5, "the adapter changed no draft"

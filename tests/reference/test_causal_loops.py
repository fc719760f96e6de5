"""Strategies with causal rows against loops over a list of ids, and against the engine's autoregressive decoding."""

from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import replace
from functools import partial

import pytest

from dlstep.models.adapter import adapt, read_adapter

from ..helpers.draft_adapter import write_draft_adapter
from . import self_speculation
from .causal import CLOSE, Draws, asked, engine_decode, preferring
from .loops import CAUSAL_OPTIONS, causal_loop_of
from .models import Dense

# The autoregressive form of each strategy that has one.
PLAIN = {
    "autoregressive": ("autoregressive", {}),
    "self_speculation": ("autoregressive", {}),
    "strided": ("strided", {"block_size": 0}),
}
GAINS = {
    "self_speculation": 1.15,
    "strided": 1.05,
    "causal_blocks": 1.0,
    "wedlm": 1.0,
    "sdlm": 1.0,
}  # tokens for each pass that is no draft, at least


@pytest.mark.parametrize("name", CAUSAL_OPTIONS)
@pytest.mark.parametrize("count", [40, pytest.param(2000, marks=pytest.mark.stress)])
def test_tokens_and_passes_are_those_of_the_loop(pairs, name, count, report):
    compared = stopped = tokens = verified = total = 0
    for index, case in enumerate(asked(7, count, CAUSAL_OPTIONS[name])):
        pair = pairs[index % len(pairs)]
        with preferring(pair, case.likely):
            network = Dense(pair.network)
            draws = Draws(network, case.seed, case.temperature)
            expected, *passes = causal_loop_of(name)(network, case.prompt, case.limit, case.options, draws)
            if network.smallest < CLOSE:
                continue
            spec = replace(pair.checkpoint.spec, head_shift=int(name in ("strided", "sdlm")))
            found = engine_decode(pair, case, name, spec)
            if index % 5 == 0 and name in PLAIN:
                plain_name, options = PLAIN[name]
                plain = engine_decode(pair, replace(case, options=options), plain_name, spec)
                ends = plain.finish == "stop"  # one more pass, for the end of sequence
                assert found.answer == plain.answer and passes[-1] <= plain.steps == len(plain.answer) + ends
                assert found.probabilities == pytest.approx(plain.probabilities, abs=1e-4)
        # Before each window of SDLM, a pass stores the tokens before the last one, if there are any.
        storing = sum(passes) - (len(case.prompt) == 1) if name == "sdlm" else 0
        assert (list(found.answer), found.steps, found.nfe) == (expected, sum(passes), sum(passes) + storing), case
        compared += 1
        stopped += len(expected) < case.max_tokens
        tokens, verified, total = tokens + len(expected), verified + passes[-1], total + sum(passes)
    report(
        f"{name}: {compared} answers compared, {stopped} stopped early, {tokens / verified:.2f} tokens per verifying "
        f"pass, {tokens / total:.2f} per forward pass"
    )
    assert compared > 0.8 * count and stopped > count // 10
    assert tokens > GAINS[name] * verified if name in GAINS else tokens <= verified


def with_adapter(pair, folder):
    """A copy of the pair whose engine has an adapter for drafts, and a context that applies the adapter in the loop."""
    pair = deepcopy(pair)
    updates = write_draft_adapter(folder, pair.network)
    adapt(pair.checkpoint, read_adapter(folder), merge=True)

    @contextmanager
    def adapted(since):
        def added(update, inputs, product):
            more = inputs[0] @ update.T
            more[:, :since] = 0.0
            return product + more

        with ExitStack() as stack:
            for module, update in updates:
                hook = partial(lambda update, _module, inputs, product: added(update, inputs, product), update)
                stack.callback(module.register_forward_hook(hook).remove)
            yield

    return pair, adapted


def test_an_adapter_for_drafts_changes_only_drafts(pairs, tmp_path):
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

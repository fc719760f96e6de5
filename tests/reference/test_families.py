"""Every family decodes what a loop over its class of transformers does, under every strategy that supports it.

The loops are those of `tests/reference`: they compute everything anew, without pages.
"""

from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch

from dlstep.core.spec import TRAININGS
from dlstep.models import load_checkpoint
from dlstep.models.families import FAMILIES

from ..helpers.tiny_configs import FACTS
from ..helpers.tiny_families import write_checkpoint
from . import blockwise, causal_blocks, dmax, dual_cache, edit, fast_dllm_v2, self_speculation, strided
from .causal import Draws
from .engine import Case, Loop, Pair, compare, random_cases
from .models import EOS, MASK, PAD, ROWS, BiasedHead, save_tokenizer

CASES = 12
EOS_IDS = {"eos_token_id": EOS, "pad_token_id": PAD}


def loop_of(name: str, always_force: bool) -> Loop:
    """The loop of a strategy, as a function of its fields."""
    if name in ("multi_bd", "d2f"):
        own = {"from_prompt": name == "d2f", "always_force": always_force}
        return lambda network, prompt, limit, fields: blockwise.decode(network, prompt, limit, blockwise.Rules(**fields, **own))
    if name == "strided":
        return lambda network, prompt, limit, fields: strided.decode(
            network, prompt, limit, fields["block_size"], Draws(network, 0, 0.0)
        )[0]
    if name in ("autoregressive", "self_speculation"):
        return lambda network, prompt, limit, fields: self_speculation.decode(
            network, prompt, limit, fields.get("block_size", 1), Draws(network, 0, 0.0)
        )[0]
    if name == "causal_blocks":
        return lambda network, prompt, limit, fields: causal_blocks.decode(
            network, prompt, limit, fields["block_size"], fields["accept_threshold"], Draws(network, 0, 0.0)
        )[0]
    module: Any = {"multi_bd_edit": edit, "dmax": dmax, "fast_dllm_v2": fast_dllm_v2, "dual_cache": dual_cache}[name]
    return lambda network, prompt, limit, fields: module.decode(network, prompt, limit, module.Rules(**fields))


def options_of(name: str, random: Random) -> dict[str, Any]:
    """Fields of a strategy."""
    accept = {"accept_threshold": random.choice((0.1, 0.3, 0.6))}
    if name == "fast_dllm_v2":
        return accept | {"block_size": 2, "buffer_size": 2, "fdv2_use_block_cache": random.random() < 0.7}
    if name == "strided":
        return {"block_size": random.choice((0, 1, 3))}
    if name == "autoregressive":
        return {}
    if name == "self_speculation":
        return {"block_size": random.choice((1, 3, 4))}
    if name == "causal_blocks":
        return accept | {"block_size": random.choice((1, 3, 4))}
    if name == "dual_cache":
        return accept | {"block_size": 4, "cache": random.choice(("none", "prefix", "dual"))}
    return accept | {"block_size": 4, "buffer_size": random.choice((1, 2, 3))}


def pair_of(family: str, folder: Path) -> Pair:
    """A network of the class of transformers, and the same one loaded by the engine."""
    sizes = {"vocab_size": ROWS} | ({"embedding_size": ROWS} if family == "llada" else {})
    network, _ = write_checkpoint(folder, family, mask_token_id=MASK, **EOS_IDS, **sizes)
    save_tokenizer(folder)
    checkpoint = load_checkpoint(folder, model_name=family)
    head = BiasedHead(network.get_output_embeddings())
    network.lm_head = checkpoint.network.lm_head = head  # pyright: ignore[reportAttributeAccessIssue]
    return Pair(network, checkpoint, head)


def cases_of(name: str, seed: int) -> list[Case]:
    return random_cases(seed, CASES, 4, lambda random: options_of(name, random))


def supported() -> list[tuple[str, str]]:
    """Every family with every strategy that decodes it; canvases have a loop of their own."""
    trainings = {family: FAMILIES[family].training for family in FACTS if FAMILIES[family].masked}
    return [(family, name) for family, training in trainings.items() if training for name in TRAININGS[training]]


def test_every_family_and_class_is_decoded() -> None:
    decoded = {family for family, _ in supported()}
    assert decoded == set(FACTS) - {"diffusion_gemma"}
    assert {FAMILIES[family].network for family in decoded} == {f.network for f in FAMILIES.values() if f.masked}


@pytest.mark.parametrize(("family", "name"), supported(), ids=map("-".join, supported()))
def test_answers_are_those_of_the_loop(family: str, name: str, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    pair, entry = pair_of(family, tmp_path), FAMILIES[family]
    assert pair.checkpoint.spec.head_shift == entry.head_shift
    tally = compare([pair], cases_of(name, len(family)), name, loop_of(name, entry.accept_rule == "B"), entry.head_shift)
    assert tally.compared > CASES / 2, tally

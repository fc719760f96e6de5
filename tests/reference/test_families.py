"""Every family decodes what a loop over its class of transformers does, under every strategy that supports it.

The loops are those of `tests/reference`: they compute everything anew, without pages.
"""

from functools import partial

import pytest
import torch

from dlstep.core.spec import TRAININGS
from dlstep.models import load_checkpoint
from dlstep.models.families import FAMILIES
from dlstep.rules.quota import Quota

from ..helpers.random_checkpoints import PAD_ID, save_tokenizer
from ..helpers.tiny_configs import FACTS
from ..helpers.tiny_families import write_checkpoint
from .causal import Draws
from .engine import Pair, compare, random_cases
from .loops import CAUSAL_OPTIONS, causal_loop_of, loop_of
from .models import EOS, MASK, ROWS, BiasedHead

CASES = 12
EOS_IDS = {"eos_token_id": EOS, "pad_token_id": PAD_ID}


def loop_for(name, **own):
    """The loop of a strategy, as a function of its fields."""
    if name not in CAUSAL_OPTIONS:
        return loop_of(name, **own if name in ("multi_bd", "d2f") else {})
    causal = causal_loop_of(name)
    return lambda network, prompt, limit, fields: causal(network, prompt, limit, fields, Draws(network, 0, 0.0))[0]


def options_of(name, random):
    """Fields of a strategy."""
    accept = {"accept_threshold": random.choice((0.1, 0.3, 0.6))}
    size = {"block_size": random.choice((1, 3, 4))}
    cached = accept | {"cache": random.choice(("none", "prefix", "dual"))}
    # As most authors decode: the most certain positions, in even shares.
    shares = {"rule": Quota(random.choice((1, 2, 4)), order=random.choice(("confidence", "entropy"))), "cache": "none"}
    own = {
        "fast_dllm_v2": accept | {"block_size": 2, "buffer_size": 2, "fdv2_use_block_cache": random.random() < 0.7},
        "strided": {"block_size": random.choice((0, 1, 3))},
        "autoregressive": {},
        "self_speculation": size,
        "causal_blocks": accept | size,
        "sdlm": accept | size,
        "wedlm": size | {"entropy_threshold": random.choice((0.3, 1.0)), "position_penalty": random.choice((0.0, 0.1))},
        "dual_cache": {"block_size": 4} | random.choice((cached, shares)),
    }
    return own.get(name, accept | {"block_size": 4, "buffer_size": random.choice((1, 2, 3))})


def pair_of(family, folder):
    """A network of the class of transformers, and the same one loaded by the engine."""
    sizes = {"vocab_size": ROWS} | ({"embedding_size": ROWS} if family == "llada" else {})
    network, _ = write_checkpoint(folder, family, mask_token_id=MASK, **EOS_IDS, **sizes)
    save_tokenizer(folder)
    checkpoint = load_checkpoint(folder, family=family)
    head = BiasedHead(network.get_output_embeddings())
    network.lm_head = checkpoint.network.lm_head = head
    return Pair(network, checkpoint, head)


def supported():
    """Every family with every strategy that decodes it; canvases have a loop of their own."""
    trainings = {family: FAMILIES[family].training for family in FACTS if FAMILIES[family].masked}
    return [(family, name) for family, training in trainings.items() if training for name in TRAININGS[training]]


def test_every_family_and_class_is_decoded():
    decoded = {family for family, _ in supported()}
    assert decoded == set(FACTS) - {"diffusion_gemma"}
    assert {FAMILIES[family].network for family in decoded} == {f.network for f in FAMILIES.values() if f.masked}


@pytest.mark.parametrize("family, name", supported(), ids=map("-".join, supported()))
def test_answers_are_those_of_the_loop(family, name, tmp_path):
    torch.set_num_threads(1)
    pair, entry = pair_of(family, tmp_path), FAMILIES[family]
    assert pair.checkpoint.spec.head_shift == entry.head_shift
    cases = random_cases(len(family), CASES, 4, partial(options_of, name))
    tally = compare([pair], cases, name, loop_for(name, always_force=entry.accept_rule == "B"), entry.head_shift)
    assert tally.compared > CASES / 2, tally

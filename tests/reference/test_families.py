"""Every family decodes what a loop over its class of transformers does, under every strategy that supports it.

The loops are those of `tests/reference`: they compute everything anew, without pages. The engine decodes several requests at
once, of which some share pages and some are preempted.
"""

from dataclasses import replace
from functools import partial
from itertools import pairwise

import pytest
import torch

from dlstep.core.spec import TRAININGS
from dlstep.models import adapt, load_checkpoint, read_adapter
from dlstep.models.families import FAMILIES
from dlstep.rules.quota import Quota
from dlstep.rules.running_confidence import RunningConfidence

from ..helpers.files import edit_tensors
from ..helpers.random_checkpoints import PAD_ID, save_tokenizer
from ..helpers.tiny_configs import FACTS
from ..helpers.tiny_families import write_checkpoint
from ..unit.models.test_adapter import noisy_adapter
from . import left_padded
from .authors_code import p2
from .causal import Draws
from .dreamon import Rules, decode
from .engine import Pair, compare_crowds, crowds
from .loops import CAUSAL_OPTIONS, causal_loop_of, loop_of
from .models import EOS, MASK, ROWS, BiasedHead, before_end

# peft asks networks for this when it wraps them.
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")
BLOCK = 4
EXPAND = 5
# Families with the network and tensors of another family.
ALIKE = ("diffucoder", "llada2_moe", "llada2_mini", "llada2dot1_mini", "llada2_mini_dmax", "a2d_qwen3_bd3lm", "opdlm")
EOS_IDS = {"eos_token_id": EOS, "pad_token_id": PAD_ID}


def loop_for(name, **own):
    """The loop of a strategy, as a function of its fields."""
    if name == "dreamon":
        return dreamon_loop
    if name not in CAUSAL_OPTIONS:
        return loop_of(name, **own if name in ("multi_bd", "d2f") else {})
    causal = causal_loop_of(name)
    return lambda network, prompt, limit, fields: causal(network, prompt, limit, fields, Draws(network, 0, 0.0))[0]


def decode_p2(network, prompt, limit, fields):
    """P2 on the network."""
    found = {}

    def chances(position, canvas):
        if (key := tuple(canvas)) not in found:
            rows = network.predict(canvas, lambda _: 0)
            for one, other in pairwise(sorted(network.propose(row).probability for row in rows[len(prompt) :])):
                network.note(other - one)
            found[key] = [network.chances(row) for row in rows]
        return found[key][position]

    answer, _ = p2(chances, list(prompt), limit - len(prompt), fields["rule"].steps_per_block or limit - len(prompt))
    ended = before_end(answer)
    return answer if ended is None else ended


def blocks_of_llada(random):
    return {"block_size": BLOCK, "cache": "none", "rule": Quota(random.choice((1, 2, 4)))}


def whole_answer(rule, *steps):
    """The whole answer as one block, by a rule with one of these numbers of forward passes."""
    return lambda random: {"block_size": 64, "cache": "none", "rule": rule(random.choice(steps))}


def single_blocks(random):
    """One block at a time, and the most certain position if none is above the threshold."""
    return {"block_size": BLOCK, "buffer_size": 1, "accept_threshold": random.choice((0.1, 0.3, 0.9, 1.0))}


# How the authors of a family decode: options of its strategy.
AUTHORS = dict.fromkeys(("a2d_qwen3", "a2d_qwen2", "a2d_llama", "illada", "llada_moe"), blocks_of_llada) | {
    "a2d_qwen3_bd3lm": left_padded.single_blocks,
    "opdlm": single_blocks,
    "efficient_dlm": single_blocks,
    "coda": whole_answer(partial(Quota, schedule="dream", order="entropy"), 3, 8, 30),
    "open_dcoder": whole_answer(partial(RunningConfidence, confidence="current"), None, 2, 5, 30),
    "rnd1": whole_answer(partial(Quota, order="entropy"), None),
    "sdlm": lambda random: options_of("sdlm", random),
    "dreamon": lambda random: options_of("dreamon", random),
    "wedlm": lambda random: options_of("wedlm", random),
    "wedlm_qwen3": lambda random: options_of("wedlm", random),
}
LOOPS = {"a2d_qwen3_bd3lm": left_padded.decode, "open_dcoder": decode_p2}


def dreamon_loop(network, prompt, limit, fields):
    """DreamOn's loop without a suffix, whose prompt may hold any token."""
    most = limit - len(prompt)
    rules = Rules(EXPAND, fields["initial_masks"], most, most, fields["delete_right"])
    return decode(network, prompt, (), rules, Draws(network, 0, 0.0), released=True, start=len(prompt))[0]


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
        "dreamon": {"expand_token_id": EXPAND, "initial_masks": random.choice((1, 4)), "delete_right": random.random() < 0.5},
        "wedlm": size | {"entropy_threshold": random.choice((0.3, 1.0)), "position_penalty": random.choice((0.0, 0.1))},
        "dual_cache": {"block_size": 4} | random.choice((cached, shares)),
    }
    return own.get(name, accept | {"block_size": 4, "buffer_size": random.choice((1, 2, 3))})


def pair_of(family, folder, how="plain"):
    """A network of the class of transformers, and the same one loaded by the engine; quantized, or with an adapter."""
    sizes = {"vocab_size": ROWS} | ({"embedding_size": ROWS} if family == "llada" else {})
    network, _ = write_checkpoint(folder, family, mask_token_id=MASK, **EOS_IDS, **sizes)
    save_tokenizer(folder)
    checkpoint = load_checkpoint(folder, family=family, quantized=how == "quantized")
    if how == "quantized":
        network = load_checkpoint(folder, family=family, quantized=True).network
        network.set_attn_implementation("sdpa")
    if how == "with an adapter":
        adapted = noisy_adapter(network, target_modules=["q_proj", "o_proj"])
        adapted.save_pretrained(str(folder / "adapter"))
        if family == "efficient_dlm":
            edit_tensors(folder / "adapter" / "adapter_model.safetensors", name_encoder)
        adapt(checkpoint, read_adapter(folder / "adapter"), merge=True)
        network = adapted.merge_and_unload()
    head = BiasedHead(network.get_output_embeddings())
    network.lm_head = checkpoint.network.lm_head = head
    return Pair(network, checkpoint, head)


def name_encoder(tensors):
    """Name the layers of a body as checkpoints of Efficient-DLM do."""
    for name in list(tensors):
        tensors[name.replace(".model.model.", ".model.encoder.")] = tensors.pop(name)


def supported():
    """Every family with every strategy that decodes it; canvases have a loop of their own."""
    trainings = {family: FAMILIES[family].training for family in FACTS if FAMILIES[family].masked}
    return [(family, name) for family, training in trainings.items() if training for name in TRAININGS[training]]


def test_every_family_and_class_is_decoded():
    decoded = {family for family, _ in supported()}
    assert decoded == set(FACTS) - {"diffusion_gemma"}
    assert {FAMILIES[family].network for family in decoded} == {f.network for f in FAMILIES.values() if f.masked}


def cases():
    """Every pair with a few cases; how the authors of new families decode, with many cases and changed weights."""
    many = [("plain", 200), ("quantized", 40), ("with an adapter", 40)]
    few = [pytest.param(*pair, "plain", 12, marks=[pytest.mark.full] * (pair[0] in ALIKE)) for pair in supported()]
    return few + [
        pytest.param(family, FAMILIES[family].decoding_strategy, *how, marks=pytest.mark.full)
        for family in AUTHORS
        for how in many
    ]


@pytest.mark.parametrize("family, name, how, count", cases())
def test_answers_are_those_of_the_loop(family, name, how, count, tmp_path, report):
    torch.set_num_threads(1)
    pair, entry = pair_of(family, tmp_path, how), FAMILIES[family]
    assert pair.checkpoint.spec.head_shift == entry.head_shift
    loop, options = loop_for(name, always_force=entry.accept_rule == "B"), partial(options_of, name)
    if published := name == entry.decoding_strategy and family in AUTHORS:
        loop, options = LOOPS.get(family, loop), AUTHORS[family]
    groups = crowds(len(family), count, BLOCK, options)
    if published:  # the authors' answers consist of whole blocks
        groups = [
            [replace(case, max_tokens=-(-case.max_tokens // BLOCK) * BLOCK, max_model_len=64) for case in group]
            for group in groups
        ]
    tally = compare_crowds(pair, groups, name, loop, entry.head_shift)
    assert tally.compared > count / 2, tally
    if count == 200:
        report(f"{family}: {tally}")
        assert name in ("dual_cache", "dreamon") or (tally.preempted and tally.shared), "a canvas stores nothing"

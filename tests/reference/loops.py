"""The loops that compute everything anew, by the strategies that they restate, and random options of both."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from dlstep.rules.quota import Quota
from dlstep.rules.sliding import Sliding
from dlstep.rules.threshold import Threshold

from . import blockwise, causal_blocks, dmax, dual_cache, edit, fast_dllm_v2, sdlm, self_speculation, sliding, strided, wedlm
from .causal import Draws
from .engine import Loop
from .models import Dense

BLOCK = 4
Options = dict[str, Any]
MODULES = {"multi_bd_edit": edit, "dmax": dmax, "fast_dllm_v2": fast_dllm_v2, "dual_cache": dual_cache, "sliding": sliding}


def loop_of(name: str, **own: Any) -> Loop:
    """The loop of a strategy, as a function of the strategy's fields; `own` are more rules of the loop."""
    own |= {"from_prompt": True} if name == "d2f" else {}
    module: Any = MODULES.get(name, blockwise)
    return lambda network, prompt, limit, fields, *pins: module.decode(
        network, prompt, limit, module.Rules(**fields, **own), *pins
    )


def windows(random: Random, **own: Any) -> Options:
    """Options of blocks that are open at the same time."""
    return own | {
        "block_size": BLOCK,
        "buffer_size": random.choice((1, 1, 2, 3)),
        "accept_threshold": random.choice((0.0, 0.2, 0.5, 0.9, 1.0)),
        "add_block_threshold": random.choice((0.0, 0.1, 0.5, 1.0)),
        "token_stability_threshold": random.choice((0.0, 0.0, 0.5, 1.0)),
    }


def unmasked_once(random: Random) -> Options:
    return windows(random, semi_complete_threshold=random.choice((0.25, 0.5, 0.9, 1.0)))


def on_a_grid(random: Random) -> Options:
    return unmasked_once(random) | {"grid_origin": random.choice(("start", "prompt_end"))}


def edited(random: Random) -> Options:
    remask: Options = {"remasking": True, "remask_threshold": random.choice((0.2, 0.4, 0.6))} if random.random() < 0.4 else {}
    return windows(
        random,
        edit_threshold=random.choice((0.0, 0.0, 0.3, 0.6, 1.0)),
        max_post_edit_steps=random.choice((0, 1, 3, 16)),
        penalty_lambda=random.choice((0.0, 0.0, 2.0)),
        **remask,
    )


def refreshed(random: Random) -> Options:
    several: Options = {"token_merge_mode": "iter_smooth_topk", "token_merge_top_k": random.choice((1, 2, 5))}
    merges = (
        {"token_merge_renormalize": random.random() < 0.6},
        several | {"token_merge_weight": 0.5},
        several,
        {"token_merge_weight": 0.0},
    )
    return windows(random, **random.choice(merges[:1] + merges))


def sub_blocks(random: Random) -> Options:
    return {
        "block_size": 2,
        "buffer_size": random.choice((2, 2, 3)),
        "accept_threshold": random.choice((0.0, 0.2, 0.5, 0.9, 1.0)),
        "fdv2_use_block_cache": random.random() < 0.7,
    }


def blocks_of_canvas(random: Random) -> Options:
    accept: Options = {"accept_threshold": random.choice((0.0, 0.2, 0.5, 0.9, 1.0))}
    if random.random() < 0.5:
        accept = {"rule": Quota(random.choice((1, 2, 3, 9)))}
    return accept | {"block_size": random.choice((3, 4)), "cache": random.choice(("none", "prefix", "dual", "dual"))}


def slides(random: Random) -> Options:
    rule = Sliding(
        window=random.choice((1, 2, 3, 5)),
        max_window=random.choice((None, None, 2, 4)),
        refresh_count=random.choice((1, 2, 4, 16)),
        window_delay=random.choice((0, 0, 1, 3)),
        inner=Threshold(random.choice((0.0, 0.2, 0.5, 0.9)), inclusive=True),
    )
    return {"cache": random.choice(("none", "prefix", "dual", "dual")), "rule": rule}


OPTIONS: dict[str, Callable[[Random], Options]] = {
    "multi_bd": on_a_grid,
    "d2f": unmasked_once,
    "multi_bd_edit": edited,
    "dmax": refreshed,
    "fast_dllm_v2": sub_blocks,
    "dual_cache": blocks_of_canvas,
    "sliding": slides,
}


def causal_loop_of(name: str) -> Callable[..., tuple[list[int], *tuple[int, ...]]]:
    """The loop of a strategy with causal rows; it counts drafts, if any, and other forward passes."""

    def loop(network: Dense, prompt: Sequence[int], limit: int, fields: Options, draws: Draws) -> Any:
        size = fields.get("block_size", 1)
        if name == "sdlm":
            return sdlm.decode(network, prompt, limit, size, fields["accept_threshold"], draws)
        if name == "wedlm":
            return wedlm.decode(network, prompt, limit, size, fields["entropy_threshold"], fields["position_penalty"], draws)
        if name == "causal_blocks":
            return causal_blocks.decode(network, prompt, limit, size, fields.get("accept_threshold"), draws)
        return (strided if name == "strided" else self_speculation).decode(network, prompt, limit, size, draws)

    return loop


def causal_blocks_of_sizes(random: Random) -> Options:
    accept = {"rule": Quota()} if random.random() < 0.2 else {"accept_threshold": random.choice((0.1, 0.3, 0.5, 0.9))}
    return {"block_size": random.choice((1, 2, 4, 4, 8)), **accept}


def beginnings(random: Random) -> Options:
    return {"block_size": random.choice((1, 2, 4, 8)), "accept_threshold": random.choice((0.0, 0.2, 0.5, 0.9))}


def sliding_masks(random: Random) -> Options:
    return {
        "block_size": random.choice((1, 2, 4, 4, 16)),
        "entropy_threshold": random.choice((0.0, 0.3, 1.0, 2.0)),
        "position_penalty": random.choice((0.0, 0.02, 0.2)),
    }


CAUSAL_OPTIONS: dict[str, Callable[[Random], Options]] = {
    "autoregressive": lambda random: {},
    "self_speculation": lambda random: {"block_size": random.choice((1, 2, 4, 4, 8))},
    "strided": lambda random: {"block_size": random.choice((0, 1, 2, 3, 3, 5))},
    "causal_blocks": causal_blocks_of_sizes,
    "wedlm": sliding_masks,
    "sdlm": beginnings,
}

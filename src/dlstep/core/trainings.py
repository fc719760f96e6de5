"""Ways of training a network; they determine which strategies can decode it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Training:
    """A way of training, and this package's strategies for it, the preferred one first."""

    name: str
    strategies: tuple[str, ...]


BLOCK_CAUSAL = "block-causal"
EDITS = "block-causal, corrects tokens"
PROMPT_IN_FULL = "prompt in full, blocks causal"
SUB_BLOCKS = "block-causal, shifted head, sub-blocks"
BIDIRECTIONAL = "bidirectional"
CAUSAL = "strictly causal, shifted head"
JOINT = "causal and bidirectional in blocks"
RANDOM_CANVAS = "canvas of random tokens"

_ENTRIES = (
    Training(BLOCK_CAUSAL, ("multi_bd", "d2f")),
    Training(EDITS, ("multi_bd_edit", "dmax", "multi_bd")),
    Training(PROMPT_IN_FULL, ("d2f", "multi_bd")),
    Training(SUB_BLOCKS, ("fast_dllm_v2", "multi_bd")),
    Training(BIDIRECTIONAL, ("dual_cache", "d2f")),
    Training(CAUSAL, ("strided", "autoregressive")),
    Training(JOINT, ("causal_blocks", "self_speculation", "autoregressive")),
    Training(RANDOM_CANVAS, ("diffusion_gemma",)),
)
TRAININGS: dict[str, Training] = {training.name: training for training in _ENTRIES}


def training_mismatch(strategy: str | None, training: str | None) -> str | None:
    """Return why a strategy cannot decode a network with this training; None if it can.

    Also None for a network without a declared training and for a user-defined strategy.
    """
    if training is None or all(strategy not in known.strategies for known in TRAININGS.values()):
        return None
    able = TRAININGS[training].strategies
    return None if strategy in able else f"it was trained {training}, which {', '.join(able)} can decode"

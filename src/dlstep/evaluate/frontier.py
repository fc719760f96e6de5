"""Accuracy against speed on the embedded models: what each strategy loses by unmasking more tokens at once."""

from ..core import Json
from ..llm import LLM
from .comparing import EvalEntry

ACCEPT: Json = {"accept_threshold": (0.9, 0.7, 0.5)}
MERGED: Json = {"accept_threshold": (0.9, 0.5, 0.0)}
# For each way of decoding: the strategy, other options of `LLM`, and the values of the option that trades accuracy for speed.
DECODERS: dict[str, tuple[str, Json, Json]] = {
    "multi_bd buffer 1": ("multi_bd", {"buffer_size": 1}, ACCEPT),
    "multi_bd buffer 4": ("multi_bd", {"buffer_size": 4}, ACCEPT),
    "d2f buffer 4": ("d2f", {"buffer_size": 4}, ACCEPT),
    "multi_bd_edit buffer 4": ("multi_bd_edit", {"buffer_size": 4}, ACCEPT),
    "dmax": ("dmax", {}, MERGED),
    "dmax token merge weight 0.0": ("dmax", {"token_merge_weight": 0.0}, MERGED),
    "fast_dllm_v2": ("fast_dllm_v2", {}, ACCEPT),
    "dual_cache": ("dual_cache", {}, ACCEPT),
    "diffusion_gemma": ("diffusion_gemma", {}, {"entropy_bound": (0.1, 0.5, 1.0)}),
}


def decoder_entries(device: str | None = None) -> list[EvalEntry]:
    """Return all `DECODERS` as entries of a comparison."""
    return [
        EvalEntry(name, "", LLM(decoding_strategy=strategy, device=device, **options).engine, varied, {})
        for name, (strategy, options, varied) in DECODERS.items()
    ]

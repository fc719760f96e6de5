"""Families of networks that can be decoded: one entry each."""

from dataclasses import dataclass

from transformers import DiffusionGemmaForBlockDiffusion, PreTrainedModel, Qwen3ForCausalLM


@dataclass(frozen=True, slots=True)
class Family:
    """A class of transformers, and what its configuration does not say.

    `head_shift`, `accept_rule` and `decoding_strategy` are used where the checkpoint names none. A family that is not
    `masked` has no mask token, whatever its tokenizer says.
    """

    network: type[PreTrainedModel]
    head_shift: int = 0
    accept_rule: str = "A"
    masked: bool = True
    decoding_strategy: str | None = None


FAMILIES: dict[str, Family] = {
    "Qwen3ForCausalLM": Family(Qwen3ForCausalLM),
    "DiffusionGemmaForBlockDiffusion": Family(
        DiffusionGemmaForBlockDiffusion, masked=False, decoding_strategy="diffusion_gemma"
    ),
}

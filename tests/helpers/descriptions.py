"""Descriptions of models without a folder of their own."""

from dataclasses import dataclass, field
from typing import Any

from dlstep import Spec, tiny
from dlstep.core.spec import BLOCK_CAUSAL, TRAININGS
from dlstep.models.families import FAMILIES, Family
from dlstep.models.reading import Folder

from .shadow_llm import spec

# The strategy that a checkpoint names as its own, and how it was trained then.
TRAINED = {able[0]: training for training, able in TRAININGS.items()}


@dataclass
class Facts:
    """The description of a model, with the weights of an embedded one."""

    spec: Spec = field(default_factory=spec)
    name: str = "a model"
    options: dict[str, Any] = field(default_factory=lambda: {"block_size": 8, "buffer_size": 2})
    decoding_strategy: str | None = "multi_bd"
    training: str | None = BLOCK_CAUSAL
    max_model_len: int = 512
    max_tokens: int | None = None
    source: Folder = Folder(tiny.path("tiny-bd"))
    family: Family = FAMILIES["sdar"]

    @classmethod
    def of(cls, strategy: str, **options: Any) -> "Facts":
        """A model that was trained for a strategy, and names it as its own."""
        return cls(options=options, decoding_strategy=strategy, training=TRAINED[strategy])

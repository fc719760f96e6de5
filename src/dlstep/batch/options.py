"""Options of a batch, in addition to those of the engine."""

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Interval

from ..core import check_ranges


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """Options of a batch. Raises ValueError that names the field, its value and what is allowed."""

    served_model_name: str | None = None
    """Name of the model in requests and answers; null: the name of its folder."""
    chat_template: str | None = None
    """File with a chat template that replaces the checkpoint's."""
    ray: str | None = None
    """Ray cluster that runs the actors: local starts one on this machine, auto or HOST:PORT joins
    one; null: no Ray."""
    actors: Annotated[int, Interval(ge=1, le=4096)] | None = None
    """With --ray: number of engines, each with its own copy of the network; null: one per free GPU
    (per N GPUs of a node with --tp N), also of nodes that join later, or one per node if there are
    no GPUs. The batch begins when the first engine is ready."""
    max_retries: Annotated[int, Interval(ge=0, le=1000)] = 3
    """With --ray: how often a request is repeated after its engine's process or node died. A request
    that still kills its engine when repeated alone gets an error."""
    engine_timeout: Annotated[float, Interval(ge=1.0, le=1e6)] = 360.0
    """Seconds that the first forward pass may take, including compilation, before the process prints
    its stacks and ends; with --ray, Ray restarts it. For later passes, the limit is the largest of
    60 seconds, a sixth of this option and ten times the slowest pass, but at most this option."""

    def __post_init__(self) -> None:
        check_ranges(self)
        for name, default in (("actors", None), ("max_retries", 3)):
            if self.ray is None and (value := getattr(self, name)) != default:
                raise ValueError(f"BatchOptions.{name}={value} has no effect without --ray: give --ray local, or leave it out")
        if self.ray == "":
            raise ValueError("BatchOptions.ray must be local, auto or an address like 10.0.0.1:6379, got an empty text")

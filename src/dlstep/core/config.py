"""Limits of the engine, and the facts of its model."""

from dataclasses import dataclass

from .checks import Checked
from .request import Processor, Seed
from .spec import Count, Length, Seats, Spec


@dataclass(frozen=True, slots=True)
class Config(Checked):
    """Limits of the engine, and the facts of its model. All requests share the pages.

    Raises:
        ValueError: For a field that is out of range.
    """

    spec: Spec
    """Facts of the model."""
    page_size: Count = 32
    """Positions of a KV cache page."""
    num_pages: Count = 256
    """Number of KV cache pages."""
    max_model_len: Length = 2048
    """Maximum number of tokens of a prompt and its answer together."""
    max_num_batched_tokens: Count = 4096
    """Maximum number of rows of one forward pass."""
    max_num_reqs: Seats = 128
    """Maximum number of requests that hold pages at the same time."""
    enable_prefix_caching: bool = True
    """Reuse pages of equal prefixes between requests."""
    seed: Seed = 0
    """Seed from which requests without a seed derive theirs."""
    processors: tuple[Processor, ...] = ()
    """Processors of every request; they run before the request's own."""

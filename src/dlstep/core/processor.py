"""Processors of logits. The core finds them by name and stores them in requests; the driver calls them."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

from .checks import listed, pairs_of, short
from .options import Options, PluginGroup, with_options

if TYPE_CHECKING:
    from .request import SamplingParams
    from .spec import Spec


@dataclass(frozen=True, slots=True)
class SoFar:
    """The tokens of a request when a forward pass feeds it."""

    tokens: tuple[int, ...]
    """Token ids from position 0 on, as fed: the prompt and the answer so far, with the mask id where it is masked."""
    prompt_length: int
    """Number of tokens of the prompt."""


@dataclass(frozen=True, slots=True)
class Context:
    """The input of a processor besides the logits."""

    positions: tuple[int, ...]
    """Position that each row of logits predicts, ascending."""
    so_far: SoFar
    """The tokens of the request."""
    params: "SamplingParams"
    """Sampling parameters of the request."""
    spec: "Spec"
    """Facts of the model."""
    unguided: Any = None
    """The network's logits of the same rows for a masked prompt; None unless a processor of the request is `guided`."""


@dataclass(frozen=True, slots=True)
class Processor(Options, ABC):
    """A pure function of a request's logits, applied before its constraint, temperature and statistics.

    Subclass as a frozen dataclass, whose fields are options.
    """

    @property
    def guided(self) -> bool:
        """Whether the processor reads `context.unguided`, for which each pass runs a second time."""
        return False

    @abstractmethod
    def process(self, logits: Any, context: Context) -> Any:
        """Return the logits to sample from, a tensor of the same shape.

        Args:
            logits: Tensor [rows, ids] in fp32, one row for each sampled position. It includes the mask id and ids
                beyond the vocabulary, which are never sampled.
            context: Positions, tokens and parameters of the request.
        """


PLUGINS = PluginGroup("processor", "PROCESSOR", Processor, "dlstep.processors", ("rule", "dlstep.rules"))


def processors_of(given: object) -> tuple[Processor, ...]:
    """Return processors from a mapping of names to options, or from one or several names, classes and instances.

    Raises ValueError for other types, for an unknown name or option, and for a value out of range.
    """
    many = listed(given)
    try:
        return tuple(chain.from_iterable(map(_named, (given,) if many is None else many)))
    except ValueError as error:
        raise ValueError(f"processors={short(given)}: {error}") from None


def _named(given: Any) -> list[Processor]:
    if not isinstance(given, dict):
        return [PLUGINS.value(given)]
    return [_with_options(*pair) for pair in cast("dict[Any, Any]", given).items()]


def _with_options(name: Any, given: Any) -> Processor:
    options = pairs_of(given or {})
    if options is None or not all(isinstance(option, str) for option, _ in options):
        raise ValueError(f"processor {short(name)} takes a mapping of option names to values, got {short(given)}")
    return with_options(PLUGINS.value(name), dict(options))

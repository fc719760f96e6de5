"""Accuracy against speed: what each strategy pays for deciding more at once."""

from collections.abc import Sequence as Items
from dataclasses import asdict, dataclass, field
from typing import Any

from .. import tiny
from ..core import SamplingParams
from ..engine.compatibility import features
from ..llm import LLM
from .accuracy import Accuracy, evaluate

MAX_TOKENS = 64


@dataclass(frozen=True, slots=True)
class Decoder:
    """One line of the comparison: a strategy with some options, and the option that trades accuracy for speed."""

    strategy: str
    options: dict[str, Any] = field(default_factory=dict)
    knob: str = "accept_threshold"
    values: tuple[float, ...] = (0.9, 0.7, 0.5)

    @property
    def label(self) -> str:
        """Strategy and options in few words."""
        return label(self.strategy, self.options)

    def model(self, value: float, device: str | None = None) -> LLM:
        """The embedded model, decoded so."""
        options: dict[str, Any] = {"decoding_strategy": self.strategy, "device": device, **self.options, self.knob: value}
        return LLM(**options)


DECODERS = (
    Decoder("multi_bd", {"buffer_size": 1}),
    Decoder("multi_bd", {"buffer_size": 4}),
    Decoder("d2f", {"buffer_size": 4}),
    Decoder("multi_bd_edit", {"buffer_size": 4}),
    Decoder("dmax", values=(0.9, 0.5, 0.0)),
    Decoder("dmax", {"token_merge_weight": 0.0}, values=(0.9, 0.5, 0.0)),
    Decoder("fast_dllm_v2"),
    Decoder("dual_cache"),
    Decoder("diffusion_gemma", knob="entropy_bound", values=(0.1, 0.5, 1.0)),
)


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table: `option` was set to `value`, all else but `options` is the strategy's default or the model's."""

    strategy: str
    options: dict[str, Any]
    model: str
    option: str
    value: float
    figures: Accuracy

    @property
    def blocks(self) -> int:
        """Blocks that may be unfinished at a time."""
        return self.options.get("buffer_size", features(self.strategy).blocks_in_flight)


def label(strategy: str, options: dict[str, Any]) -> str:
    """Strategy and options in few words."""
    words = (f"{name.removesuffix('_size').replace('_', ' ')} {value}" for name, value in options.items())
    return " ".join((strategy, *words))


def measure(
    decoder: Decoder, value: float, problems: Items[tiny.Problem], device: str | None = None, *, progress: bool = True
) -> Row:
    """The figures of one decoder; the more is accepted at once, the faster and the less accurate it gets."""
    llm = decoder.model(value, device)
    figures = evaluate(llm, problems, SamplingParams(max_tokens=MAX_TOKENS), progress=progress)
    return Row(decoder.strategy, decoder.options, llm.engine.name, decoder.knob, value, figures)


def as_json(row: Row) -> dict[str, object]:
    """A row as flat data."""
    how: dict[str, object] = {
        "strategy": row.strategy,
        "decoder": label(row.strategy, row.options),
        "blocks": row.blocks,
        "model": row.model,
        "option": row.option,
        "value": row.value,
    }
    return {**how, **asdict(row.figures), "tokens_per_second": row.figures.tokens_per_second}

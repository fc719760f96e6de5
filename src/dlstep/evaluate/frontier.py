"""Accuracy against speed on the embedded models: what each strategy loses by unmasking more tokens at once."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from .. import tiny
from ..core import SamplingParams
from ..engine.compatibility import features
from ..llm import LLM

MAX_TOKENS = 64


@dataclass(frozen=True, slots=True)
class Decoder:
    """A strategy with options, and the option that trades accuracy for speed."""

    strategy: str
    options: dict[str, Any] = field(default_factory=dict)
    knob: str = "accept_threshold"
    values: tuple[float, ...] = (0.9, 0.7, 0.5)

    @property
    def label(self) -> str:
        """Return a short text of strategy and options."""
        names = ((name.removesuffix("_size").replace("_", " "), value) for name, value in self.options.items())
        return " ".join((self.strategy, *(f"{name} {getattr(value, '__name__', value)}" for name, value in names)))

    def model(self, value: float, device: str | None = None) -> LLM:
        """Return the embedded model with these options."""
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


def figures(llm: LLM, problems: Sequence[tiny.Problem], *, progress: bool = False) -> dict[str, Any]:
    """Answer `problems` together and return the figures of the answers.

    `answer` is the share of problems whose last number is right, and `chain` the share whose every
    equation is right, too. `forwards` is the mean `nfe` per answer; ratios are ratios of sums.
    """
    outputs = llm.generate([problem.prompt for problem in problems], SamplingParams(max_tokens=MAX_TOKENS), progress=progress)
    scores = [tiny.score(problem, output.text) for problem, output in zip(problems, outputs, strict=True)]
    tokens, forwards = sum(len(output.token_ids) for output in outputs), sum(output.nfe for output in outputs)
    return {
        "problems": len(problems),
        "answer": fmean(score.answer for score in scores),
        "chain": fmean(score.chain for score in scores),
        "tokens_per_forward": tokens / forwards,
        "forwards": forwards / len(problems),
    }


def measure(
    decoder: Decoder, value: float, problems: Sequence[tiny.Problem], device: str | None = None, *, progress: bool = True
) -> dict[str, Any]:
    """Return the figures of one decoder at a value of its option; `blocks` is the maximum number of unfinished blocks."""
    llm = decoder.model(value, device)
    return {
        "strategy": decoder.strategy,
        "decoder": decoder.label,
        "blocks": decoder.options.get("buffer_size", features(decoder.strategy).blocks_in_flight),
        "model": llm.engine.name,
        "option": decoder.knob,
        "value": value,
        **figures(llm, problems, progress=progress),
    }

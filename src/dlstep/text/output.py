"""The answer to one prompt, as returned to users."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum, log
from typing import Any, Literal

from ..core import FinishReason, Ids, Probabilities, SequenceState, Spec, TableRow, short
from ..core.sequence import Best
from ..core.step_map import StepMap, step_map_of
from .detokenize import Tokenizer, cut, decode
from .words import clipped, counted, print_pretty, printable

Prompt = str | Sequence[int]
Prompts = Prompt | Sequence[Prompt]
LEAST = 2.0**-126  # smallest normal float32: devices may round smaller probabilities to 0


@dataclass(frozen=True, slots=True)
class LogLikelihood:
    """The log-probability of an answer after its prompt, in nats."""

    value: float
    """The sum of the log-probabilities of the answer's tokens, or an estimate of a lower bound."""
    estimator: Literal["exact", "monte_carlo", "recorded_order", "trajectory"]
    """`exact`: the chain rule with causal attention. `monte_carlo`: LLaDA's estimate of a lower bound.
    `recorded_order`: each token in the forward pass that unmasked it. `trajectory`: in that pass, run again."""
    standard_error: float | None = 0.0
    """Standard error: of `monte_carlo`, between batches of samples, None for a single batch; else 0.0."""
    greedy: bool | None = None
    """Whether greedy decoding, token by token, gives the answer; None if that was not computed."""
    log_probabilities: tuple[float, ...] = ()
    """With `trajectory`: those of the tokens that have a recorded log-probability, in the order of `StepMap.changes`."""


def log_of(probability: float) -> float:
    """Return the logarithm of a float32 probability, at least that of the smallest normal one."""
    return log(max(probability, LEAST))


@dataclass(frozen=True, slots=True)
class Output:
    """The answer to one prompt."""

    prompt: str | Ids
    """The prompt as it was given: text or token ids."""
    text: str
    """Text of the answer, which ends before the first stop string."""
    token_ids: Ids
    """All emitted tokens."""
    probabilities: Probabilities
    """Probability of each of them when it was unmasked."""
    finish_reason: FinishReason | None
    """Why the answer ended; None while it is unfinished."""
    nfe: int
    """Number of forward passes that included the request."""
    steps: int
    """Number of forward passes that sampled a position of the request."""
    error: str = ""
    """Why `finish_reason` is `rejected` or `error`; else empty."""
    top_probabilities: tuple[Best, ...] = ()
    """For each token, the `SamplingParams.top_logprobs` most probable ids of the forward pass that unmasked it
    and their probabilities, the most probable first. Ids with probability 0 are left out."""
    weights_version: int = 0
    """Number of updates of the weights (`LLM.update_weights`) before this request began."""
    step_map: StepMap | None = None
    """Which forward pass set each token, with its log-probabilities; None unless `SamplingParams.step_map` asks for it."""

    def __str__(self) -> str:
        errors = [f"error: {printable(self.error)}"] if self.error else []
        lines = filter(None, [printable(self.text.strip()), self.cost, self.why_empty])
        return "\n".join(map(clipped, [*lines, *errors]))

    _repr_pretty_ = print_pretty

    @property
    def cost(self) -> str:
        """Return a text with the numbers of tokens and forward passes, and the finish reason."""
        counts = f"{counted(len(self.token_ids), 'token')} in {counted(self.nfe, 'forward pass')}"
        ended = f"ended by {self.finish_reason}" if self.finish_reason else "not ended"
        return f"{counts}, {self.tokens_per_forward:.2f} tokens per forward pass, {ended}"

    @property
    def why_empty(self) -> str:
        """Return the reason for an answer without tokens that ended by itself; else an empty text."""
        empty = not self.token_ids and self.finish_reason == "stop"
        return "empty, because its first token is an end token: try a smaller max_tokens" if empty else ""

    @property
    def tokens_per_forward(self) -> float:
        """Emitted tokens divided by `nfe`; 0 before the first forward pass."""
        return len(self.token_ids) / self.nfe if self.nfe else 0.0

    @property
    def parsed(self) -> Any:
        """The answer read as JSON. Raises ValueError if it is not JSON: after an abort, or without a `json_schema`."""
        try:
            return json.loads(self.text)
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f"the answer {short(self.text)} is not JSON ({error}): use Output.text, or give SamplingParams(json_schema=...)"
            ) from error

    @property
    def log_likelihood(self) -> LogLikelihood:
        """The sum of the logarithms of `probabilities`; pinned tokens count as certain."""
        return LogLikelihood(fsum(map(log_of, self.probabilities)), "recorded_order")

    def rows(self) -> list[TableRow]:
        """Return one row with the answer and its counts, as `docs/look_inside.md` lists them."""
        row: TableRow = {
            "prompt": self.prompt if isinstance(self.prompt, str) else json.dumps(self.prompt),
            "text": self.text,
            "finish_reason": self.finish_reason,
            "error": self.error,
            "tokens": len(self.token_ids),
            "nfe": self.nfe,
            "steps": self.steps,
            "tokens_per_forward": self.tokens_per_forward,
            "log_likelihood": self.log_likelihood.value,
            "step_map": json.dumps(self.step_map.to_json()) if self.step_map else None,
        }
        return [row]

    @property
    def tokens_per_step(self) -> float:
        """Emitted tokens divided by `steps`; 0 before the first sampling forward pass."""
        return len(self.token_ids) / self.steps if self.steps else 0.0


@dataclass(frozen=True, slots=True)
class ReadOutput:
    """The result of a read: the predictions for the slots of a template after one prompt."""

    prompt: str | Ids
    """The prompt as it was given: text or token ids."""
    slots: tuple[dict[str, float], ...]
    """For each slot, the probability of each label; these add up to 1."""


def output_of(
    sequence: SequenceState, prompt: Prompt, tokenizer: Tokenizer | None, spec: Spec, weights_version: int = 0
) -> Output:
    """Return the answer of `sequence` up to its last settled token."""
    tokens, start = sequence.answer, sequence.request.start
    return Output(
        prompt=prompt if isinstance(prompt, str) else sequence.request.prompt,
        text=cut(decode(tokenizer, tokens), sequence.request.params.stop),
        token_ids=tokens,
        probabilities=sequence.probabilities,
        finish_reason=sequence.finish,
        nfe=sequence.nfe,
        steps=sequence.steps,
        error=sequence.error,
        top_probabilities=sequence.best_of(start, start + len(tokens)),
        weights_version=weights_version,
        step_map=step_map_of(sequence, spec),
    )

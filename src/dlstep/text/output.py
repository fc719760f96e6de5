"""The answer to one prompt, as returned to users."""

from collections.abc import Sequence
from dataclasses import dataclass

from ..core import FinishReason, SequenceState
from .detokenize import Tokenizer, cut, decode
from .words import clipped, counted, printable

Prompt = str | Sequence[int]


@dataclass(frozen=True, slots=True)
class Output:
    """The answer to one prompt.

    `text` ends before the first stop string. `token_ids` are all emitted tokens; `probabilities` has
    the probability of each when it was unmasked. `nfe` counts the request's forward passes, `steps`
    those that sampled. `error` says why `finish_reason` is `rejected` or `error`.
    """

    prompt: str | tuple[int, ...]
    text: str
    token_ids: tuple[int, ...]
    probabilities: tuple[float, ...]
    finish_reason: FinishReason | None
    nfe: int
    steps: int
    error: str = ""

    def __str__(self) -> str:
        counts = f"{counted(len(self.token_ids), 'token')} in {counted(self.nfe, 'forward')}"
        ended = f"ended by {self.finish_reason}" if self.finish_reason else "not ended"
        lines = [printable(self.text.strip())] if self.text.strip() else []
        lines.append(f"{counts}, {self.tokens_per_forward:.2f} tokens per forward, {ended}")
        return "\n".join(map(clipped, [*lines, *([f"error: {printable(self.error)}"] if self.error else [])]))

    @property
    def tokens_per_forward(self) -> float:
        """Emitted tokens / `nfe`; 0 before the first forward pass."""
        return len(self.token_ids) / self.nfe if self.nfe else 0.0

    @property
    def tokens_per_step(self) -> float:
        """Emitted tokens / `steps`; 0 before the first sampling forward pass."""
        return len(self.token_ids) / self.steps if self.steps else 0.0


def output_of(sequence: SequenceState, prompt: Prompt, tokenizer: Tokenizer | None) -> Output:
    """Return the answer of `sequence` up to its last settled token."""
    tokens = sequence.answer
    return Output(
        prompt=prompt if isinstance(prompt, str) else sequence.request.prompt,
        text=cut(decode(tokenizer, tokens), sequence.request.params.stop),
        token_ids=tokens,
        probabilities=sequence.probabilities,
        finish_reason=sequence.finish,
        nfe=sequence.nfe,
        steps=sequence.steps,
        error=sequence.error,
    )

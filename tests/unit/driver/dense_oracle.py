"""Decoding without pages: every forward pass computes its request from the first token on, with the plain transformers
class.
"""

import math
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch
from transformers import Qwen3ForCausalLM

from dlstep.core import Config, Plan, Request, Span, SpanSamples, State, Strategy, draws as numbers

from ...helpers.decoding import by_spans, decoded, with_requests


class DenseDriver:
    """Answers plans from the state itself; holds nothing between forward passes."""

    def __init__(self, folder: Path, head_shift: int) -> None:
        self.network = Qwen3ForCausalLM.from_pretrained(folder, attn_implementation="sdpa", dtype=torch.float32).eval()
        self.head_shift = head_shift

    def rows(self, state: State, _: Plan | None, span: Span) -> SpanSamples:
        if not span.wanted.sampled:
            return SpanSamples((), ())
        sequence = state.find(span.who.id)
        logits = self.logits(sequence.tokens(0, span.rows.start) + span.rows.tokens, span)
        spec = state.config.spec
        answers = [
            self.sample(logits[position - self.head_shift].tolist(), span, position, draw, spec)
            for position, draw in zip(span.wanted.sampled, span.wanted.draws, strict=True)
        ]
        width = len(span.wanted.scored_ids) // len(span.wanted.sampled)
        ids = [span.wanted.scored_ids[row * width : (row + 1) * width] for row in range(len(span.wanted.sampled))]
        named = [
            chance
            for position, own in zip(span.wanted.sampled, ids, strict=True)
            for chance in self.chances(logits[position - self.head_shift], span.who.params.temperature, own, spec)
        ]
        tokens, chances = zip(*answers, strict=True)
        return SpanSamples(tokens, chances, scored_probabilities=tuple(named))

    def chances(self, row: torch.Tensor, temperature: float, ids: tuple[int, ...], spec) -> list[float]:
        """The softmax of what may be sampled, in double precision, at `ids`; 0 for others."""
        row = row.double().clone()
        row[spec.vocab_size :] = -math.inf
        row[spec.mask_id] = -math.inf
        shares = (row / (temperature or 1.0)).softmax(0)
        return [float(shares[i]) if 0 <= i < len(shares) else 0.0 for i in ids]

    @torch.inference_mode()
    def logits(self, tokens: tuple[int, ...], span: Span) -> torch.Tensor:
        count, grid = len(tokens), span.rows.grid
        window = self.network.config.sliding_window
        full = [[grid.group(j) <= grid.group(i) and j < span.rows.end for j in range(count)] for i in range(count)]
        near = [[window is None or j > grid.start(i) - window for j in range(count)] for i in range(count)]
        seen = torch.tensor(full)
        masks = {"full_attention": seen[None, None], "sliding_attention": (seen & torch.tensor(near))[None, None]}
        return self.network(input_ids=torch.tensor([tokens]), attention_mask=masks, use_cache=False).logits[0]

    def sample(self, row: list[float], span: Span, position: int, draw: int, spec) -> tuple[int, float]:
        temperature = span.who.params.temperature
        allowed = {i: x / (temperature or 1.0) for i, x in enumerate(row) if i < spec.vocab_size and i != spec.mask_id}
        best = max(allowed.values())
        keys = allowed
        if temperature:
            stream = numbers.key(span.who.seed, position, draw, "sample")
            keys = {i: x - math.log(-math.log(numbers.token_uniform(stream, i))) for i, x in allowed.items()}
        token = max(keys, key=lambda i: (keys[i], i))
        return token, math.exp(allowed[token] - best) / sum(math.exp(x - best) for x in allowed.values())


def dense_states(driver: DenseDriver, config: Config, strategy: Strategy, requests: Iterable[Request]) -> Iterator[State]:
    """The end of each request alone, with all the room there is."""
    for request in requests:
        yield decoded(with_requests(config, strategy, [request]), by_spans(driver.rows))

"""Decoding without pages: every forward pass computes its request from the first token on, with the plain transformers
class.
"""

import math
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch
from transformers import Qwen3ForCausalLM

from dlstep.core import Config, Plan, Request, Span, SpanSamples, State, Strategy

from ...helpers.decoding import by_spans, decoded, with_requests
from ...reference.counted_draws import sample_numbers


class DenseDriver:
    """Answers plans from the state itself; holds nothing between forward passes."""

    def __init__(self, folder: Path, head_shift: int) -> None:
        self.network = Qwen3ForCausalLM.from_pretrained(folder, attn_implementation="sdpa", dtype=torch.float32).eval()
        self.head_shift = head_shift

    def rows(self, state: State, _: Plan | None, span: Span) -> SpanSamples:
        if not span.wanted.sampled:
            return SpanSamples((), ())
        sequence, spec, temperature = state.find(span.who.id), state.config.spec, span.who.params.temperature
        logits = self.logits(sequence.tokens(0, span.rows.start) + span.rows.tokens, span).double()
        logits[:, spec.vocab_size :] = -math.inf
        logits[:, spec.mask_id] = -math.inf
        width = len(span.wanted.scored_ids) // len(span.wanted.sampled)
        tokens, chances, scored = [], [], []
        for row, (position, draw) in enumerate(zip(span.wanted.sampled, span.wanted.draws, strict=True)):
            shares = keys = (logits[position - self.head_shift] / (temperature or 1.0)).softmax(0)
            if temperature:
                uniform = sample_numbers(span.who.seed, position, draw, len(shares)).double()
                keys = shares.log() - (-uniform.log()).log()
            tokens.append(int(keys.argmax()))
            chances.append(float(shares[tokens[-1]]))
            ids = span.wanted.scored_ids[row * width : (row + 1) * width]
            scored += [float(shares[i]) if 0 <= i < len(shares) else 0.0 for i in ids]
        return SpanSamples(tuple(tokens), tuple(chances), scored_probabilities=tuple(scored))

    @torch.inference_mode()
    def logits(self, tokens: tuple[int, ...], span: Span) -> torch.Tensor:
        count, grid = len(tokens), span.rows.grid
        window = self.network.config.sliding_window
        full = [[grid.group(j) <= grid.group(i) and j < span.rows.end for j in range(count)] for i in range(count)]
        near = [[window is None or j > grid.start(i) - window for j in range(count)] for i in range(count)]
        seen = torch.tensor(full)
        masks = {"full_attention": seen[None, None], "sliding_attention": (seen & torch.tensor(near))[None, None]}
        return self.network(input_ids=torch.tensor([tokens]), attention_mask=masks, use_cache=False).logits[0]


def dense_states(driver: DenseDriver, config: Config, strategy: Strategy, requests: Iterable[Request]) -> Iterator[State]:
    """The end of each request alone, with all the room there is."""
    for request in requests:
        yield decoded(with_requests(config, strategy, [request]), by_spans(driver.rows))

"""A network without weights, for many cases: a row is a function of its position, of what it sees and of what it is fed.

Rows are often ties between ids, or between positions; probabilities are multiples of a tenth.
"""

from collections.abc import Callable, Sequence
from random import Random

import torch
from torch import Tensor

from dlstep import Plan, SamplingParams, SpanSamples, Spec, State, Strategy
from dlstep.core import Span

from ..helpers.decoding import by_spans, decoded_alone, room_for_one
from .dmax import Rules, Soft, merged_embedding
from .models import EOS, MASK, WORDS, Dense, Proposal, allowed

NOTHING = -1000.0  # a logit whose probability is 0


class Scripted(Dense):
    """Rows depend on the position alone in a share `calm` of all cases, so that blocks may come to rest."""

    def __init__(self, seed: int, calm: float, *, ties: str) -> None:
        self.seed, self.calm, self.ties, self.shift = seed, calm, ties, 0
        self.smallest = 1.0
        self.table = torch.randn(WORDS, 3, generator=torch.Generator().manual_seed(seed))

    @property
    def embedding(self) -> Tensor:
        """The rows that ids are fed as."""
        return self.table

    def predict(self, tokens: Sequence[int], group: Callable[[int], int], inputs: Tensor | None = None) -> Tensor:
        """Logits of all positions."""
        fed = self.table[torch.tensor(list(tokens))] if inputs is None else inputs
        parts = [hash(tuple(row)) for row in fed.tolist()]
        ends = {group(position): position + 1 for position in range(len(tokens))}
        return torch.tensor([self.row(position, parts[: ends[group(position)]]) for position in range(len(tokens))])

    def row(self, position: int, seen: list[int]) -> list[float]:
        """Logits of one position; `seen` stands for what is fed at the positions that it sees."""
        own = Random(self.seed * 1009 + position)
        random = own if own.random() < self.calm else Random(hash((self.seed, position, *seen)))
        logits = [NOTHING] * WORDS
        alike = random.choice((0, 0, 1, 1, 2, 4))
        for token in random.sample(range(WORDS), 4 if alike == 0 else alike):
            logits[token] = 0.0 if alike else random.choice((-2.0, -1.0, 0.0, 1.0, 3.0))
        if random.random() < 0.1:
            logits[EOS] = 2.0
        return logits

    def propose(self, row: Tensor) -> Proposal:
        """The proposal of a row: of equally good ids the first or the last."""
        logits, chances = allowed(row), self.chances(row)
        best = (logits == logits.max()).nonzero()[:, 0].tolist()
        token = best[0] if self.ties == "lowest" else best[-1]
        return Proposal(token, chances[token])

    def chances(self, row: Tensor) -> list[float]:
        """Probabilities, rounded so that they often equal thresholds."""
        return [round(chance, 1) for chance in allowed(row).softmax(0).tolist()]

    def samples(self, state: State, plan: Plan, span: Span) -> SpanSamples:
        """The answer for the sampled positions of a span of the engine."""
        sequence, best = state.find(span.who.id), plan.sample_spec.best
        text = sequence.tokens(0, span.rows.start) + span.rows.tokens
        logits = self.predict(text, span.rows.grid.group, self.fed(span, text))
        for position in span.wanted.sampled:
            if span.rows.grid.group(position - 1) == span.rows.grid.group(position):
                logits[position, text[position - 1]] -= span.wanted.penalty
        proposals = [self.propose(logits[position]) for position in span.wanted.sampled]
        ids: list[int] = []
        probabilities: list[float] = []
        for position in span.wanted.sampled:
            chances = self.chances(logits[position])
            ids += (order := sorted(range(WORDS), key=lambda token: (-chances[token], token))[:best])
            probabilities += [chances[token] for token in order]
        return SpanSamples(
            tuple(proposal.token for proposal in proposals),
            tuple(proposal.probability for proposal in proposals),
            best_ids=tuple(ids),
            best_probabilities=tuple(probabilities),
        )

    def fed(self, span: Span, text: Sequence[int]) -> Tensor:
        """The tokens that the positions are fed as."""
        inputs = self.table[torch.tensor(list(text))]
        if span.rows.soft is None:
            return inputs
        soft, merge = span.rows.soft, span.rows.soft.merge
        rules = Rules(
            block_size=1,
            token_merge_mode=merge.mode,
            token_merge_renormalize=merge.renormalize,
            token_merge_weight=merge.weight,
        )
        count = len(soft.ids) // len(soft.positions)
        for number, position in enumerate(soft.positions):
            assert position >= span.rows.start + span.rows.query_only + span.rows.final_rows, "final tokens are fed as they are"
            part = slice(number * count, number * count + count)
            likely = Soft(list(soft.ids[part]), list(soft.probabilities[part]))
            inputs[position] = merged_embedding(self.table, likely, rules, text[position])
        return inputs


def scripted_answer(network: Scripted, prompt: Sequence[int], max_tokens: int, strategy: Strategy) -> list[int]:
    """The engine's answer."""
    config = room_for_one(Spec(MASK, (EOS,), WORDS))
    params = SamplingParams(max_tokens=max_tokens)
    return list(decoded_alone(config, strategy, prompt, params, by_spans(network.samples)).answer)

"""DMax step by step: what every forward writes, when a block is done, and what the next forward is fed."""

from random import Random

import torch

from dlstep import Config, Request, Samples, SamplingParams, Span, SpanSamples, Spec, add, commit, init, schedule
from dlstep.core import SoftTokens
from dlstep.strategies.dmax import DMax
from dlstep_kernels import SoftRows, merge_embeddings

from .dmax import Rules, Soft, merged_embedding, uniform
from .models import EOS, MASK, WORDS, Proposal

STATES = 2000


def random_rows(random: Random, span: Span, sure: float) -> SpanSamples:
    """Tokens that mostly stay, and probabilities of all sizes."""
    fed = [span.rows.tokens[position - span.rows.start] for position in span.wanted.sampled]
    others = [token for token in range(WORDS) if token not in (MASK, EOS)]
    tokens = tuple(token if token != MASK and random.random() < 0.7 else random.choice(others) for token in fed)
    probabilities = tuple(random.random() ** sure for _ in fed)
    return SpanSamples(tokens, probabilities, best_ids=tokens, best_probabilities=probabilities)


def fed_as(table: torch.Tensor, soft: SoftTokens | None, span: Span) -> torch.Tensor:
    """The embeddings that the device makes of a span."""
    embedded = table[torch.tensor(span.rows.tokens)]
    if soft is None:
        return embedded
    count = len(soft.positions)
    rows = SoftRows(
        torch.tensor(soft.positions) - span.rows.start,
        torch.tensor(soft.ids).view(count, -1),
        torch.tensor(soft.probabilities).view(count, -1),
        (1.0 - torch.tensor(soft.probabilities, dtype=torch.float64).view(count, -1).sum(1)).clamp(min=0.0).float(),
        soft.merge.mode,
        soft.merge.renormalize,
        soft.merge.weight,
    )
    return merge_embeddings(embedded, table, MASK, rows)


def test_every_step_writes_commits_and_feeds_what_the_rule_says() -> None:
    random = Random(0)
    table = torch.randn(WORDS + 8, 16, generator=torch.Generator().manual_seed(0))
    spec = Spec(mask_id=MASK, eos_ids=(EOS,), vocab_size=WORDS)
    seen = sealed = softened = 0
    while seen < STATES:
        size, threshold = random.choice((2, 4, 8)), random.choice((0.0, 0.3, 0.5, 0.9))
        rules = Rules(size, accept_threshold=threshold, token_merge_renormalize=random.random() < 0.7)
        value = DMax(size, accept_threshold=threshold, token_merge_renormalize=rules.token_merge_renormalize)
        prompt = tuple(random.choices([3, 4, 5], k=random.randint(1, 9)))
        state = init(Config(spec, max_model_len=64), value)
        state = add(state, Request(0, prompt, SamplingParams(max_tokens=24, ignore_eos=True)))
        known: dict[int, Soft] = {}
        sure = random.choice((0.1, 0.5, 1.0))
        while not state.done:
            plan = schedule(state)
            (span,), (block,) = plan.spans, next(iter((*state.running, *state.waiting))).window
            fed = fed_as(table, span.rows.soft, span)
            for position, row in zip(range(span.rows.start, span.rows.stop), fed, strict=True):
                token = span.rows.tokens[position - span.rows.start]
                expected = merged_embedding(table, known[position], rules, token) if position in known else table[token]
                torch.testing.assert_close(row, expected, atol=1e-5, rtol=1e-5)
            softened += len(known)
            rows = random_rows(random, span, sure)
            proposals = {
                p: Proposal(*row) for p, *row in zip(span.wanted.sampled, rows.tokens, rows.probabilities, strict=True)
            }
            editable = [position - block.start for position in span.wanted.sampled]
            offered = [proposals.get(position, Proposal(MASK, 0.0)) for position in range(block.start, block.end)]
            state = commit(state, Samples(plan, (rows,)))
            sequence = state.find(0)
            verdict = uniform(block.tokens, editable, offered, sequence.steps - block.opened, threshold)
            assert sequence.tokens(block.start, block.end) == tuple(verdict.tokens)
            assert (sequence.settled >= min(block.end, sequence.request.limit)) == verdict.ready
            unmasked = [p for p in span.wanted.sampled if verdict.tokens[p - block.start] != MASK and not verdict.ready]
            known = {p: Soft([proposals[p].token], [proposals[p].probability]) for p in unmasked}
            seen, sealed = seen + 1, sealed + verdict.ready
    assert sealed > 200 and softened > 2000

"""Decisions of the reference implementation where blocks are revised: edit sampling and `dmax`, forward by forward.

It ends a request at an end of sequence before its block has converged, so what is written is compared up to its end or ours,
whichever comes first, and the answers are not. With `dmax`, so is what the next forward is fed softly.
"""

import math
from functools import cache

import pytest

from dlstep.core import (
    NO_SAMPLES,
    Config,
    SpanSamples,
    Spec,
    init,
    schedule,
)
from dlstep.strategies.dmax import DMax
from dlstep.strategies.multi_bd_edit import MultiBDEdit

from .fake_logits import EOS, MASK, VOCABULARY
from .replaying import ReplayingDriver, replayed, requests, trace_of

SPEC = Spec(MASK, (EOS,), VOCABULARY)

# Requests that part from the reference: in which forward, and why.
PROMPT = "the reference's block converges only if the network repeats the prompt's part of it"
PARTING = {
    ("dmax_buffer1", 1): (6, PROMPT),
    ("dmax_page16_block4_buffer2", 0): (4, PROMPT),
    ("dmax_max_batched_tokens", 0): (
        11,
        "the reference opens no more blocks once an end of sequence was there, be it edited since",
    ),
}
MASK_SHARE = 0.02  # of a probability, at most: the reference counts the mask among the ids


class Uncapped(DMax):
    """The reference sets no limit to the forwards of a block."""

    __slots__ = ()

    @property
    def most_forwards(self):
        return 1000


class RankedDriver(ReplayingDriver):
    """Greedy samples of the recorded logits and the most probable ids."""

    def answer(self, span, forward, sample_spec):
        """The samples of a span."""
        assert sample_spec.ties == "lowest" and not sample_spec.tempered
        best = sample_spec.best
        if not span.wanted.sampled:
            return NO_SAMPLES
        ranked = [self._ranked(span.who.id, position, forward)[: max(1, best)] for position in span.wanted.sampled]
        ids = tuple(token for row in ranked for token, _ in row[:best])
        chances = tuple(chance for row in ranked for _, chance in row[:best])
        return SpanSamples(
            tuple(row[0][0] for row in ranked), tuple(row[0][1] for row in ranked), best_ids=ids, best_probabilities=chances
        )

    def _ranked(self, request_id, position, forward):
        logits = self.profiles[request_id].logits(position, forward)
        powers = {token: math.exp(value) for token, value in enumerate(logits) if token != MASK}
        total = sum(powers.values())
        return [(token, powers[token] / total) for token in sorted(powers, key=lambda token: (-powers[token], token))]


def strategy_of(trace):
    """The strategy with the settings and the pacing of the trace."""
    settings, thresholds = trace["config"], trace["config"]["thresholds"]
    fields = {key: settings[key] for key in ("block_size", "buffer_size")}
    fields |= {key: thresholds[key] for key in ("accept_threshold", "add_block_threshold", "token_stability_threshold")}
    if trace["strategy"] == "dmax":
        merging = {key: settings[key] for key in ("token_merge_mode", "token_merge_top_k", "token_merge_weight")}
        return Uncapped(**fields, **merging, fold_commits=False)
    editing = {key: settings[key] for key in ("max_post_edit_steps", "penalty_lambda")}
    return MultiBDEdit(**fields, **editing, fold_commits=False)


def soft_of(state, request_id):
    """Where the open blocks of a request begin, and what the next forward is fed softly of them."""
    sequence = state.find(request_id)
    span = next((span for span in schedule(state).spans if span.who.id == request_id), None)
    if span is None or span.rows.soft is None:
        return sequence.progress.final, {}
    soft, width = span.rows.soft, span.rows.soft.width
    parts = [slice(index * width, (index + 1) * width) for index in range(len(soft.positions))]
    found = zip(soft.positions, parts, strict=True)
    return sequence.progress.final, {position: (soft.ids[part], soft.probabilities[part]) for position, part in found}


@cache
def decode(name):
    """The recorded trace, and of our run by request and forward: what was written, and what is fed softly next."""
    trace = trace_of("edit", name)
    settings = trace["config"]
    # Rows and pages are ample: pacing is what is compared.
    config = Config(SPEC, settings["page_size"], 1024, settings["max_model_len"], 4096, settings["max_num_reqs"])
    writes, softs = ({request["id"]: [] for request in trace["requests"]} for _ in range(2))
    for span, old, new, state in replayed(trace, init(config, strategy_of(trace)), RankedDriver(trace)):
        start, end = (span.wanted.sampled[0], span.wanted.sampled[-1] + 1) if span.wanted.sampled else (0, 0)
        pairs = zip(range(start, end), old.tokens(start, end), new.tokens(start, end), strict=True)
        writes[span.who.id].append([(position, token) for position, before, token in pairs if token != before])
        softs[span.who.id].append(soft_of(state, span.who.id))
    return trace, writes, softs


@pytest.mark.parametrize("name, request_id", requests("edit"))
def test_writes_are_those_of_the_reference(name, request_id):
    trace, writes, softs = decode(name)
    theirs = [r for step in trace["steps"] if "reqs" in step for r in step["reqs"] if r["id"] == request_id]
    ours = writes[request_id]
    assert ours, "nothing was decoded"
    until, _ = PARTING.get((name, request_id), (len(theirs), ""))
    for forward, (mine, reference) in enumerate(zip(ours, theirs[:until], strict=False)):
        assert mine == sorted(map(tuple, reference["writes"])), f"forward {forward}"
        if reference.get("merge") and forward + 1 < len(ours):
            check_soft(*softs[request_id][forward], reference["merge"])
    if until < len(theirs):
        assert ours[until] != sorted(map(tuple, theirs[until]["writes"])), "it does not part any more"


def check_soft(final, ours, merge):
    """Open blocks are fed as softly as by the reference."""
    theirs = {int(position): kept for position, kept in merge.items() if kept is not None and int(position) >= final}
    assert set(ours) == set(theirs)
    for position, (ids, probabilities) in ours.items():
        their_ids, their_probabilities, _ = theirs[position]
        assert list(ids) == their_ids
        assert probabilities == pytest.approx(their_probabilities, rel=MASK_SHARE, abs=1e-5)


def test_every_parting_names_a_request():
    assert set(PARTING) <= set(requests("edit"))

"""Decisions of the reference implementation, replayed: same prompts, same logits, same tokens step by step.

The reference was recorded with its own pacing, so `fold_commits=False`. It decodes on after an answer has ended; what is
compared is every decision up to the forward in which our request ends, the answer, and the reason.
"""

import math
from functools import cache

import pytest

from dlstep import strategies
from dlstep.core import (
    NO_SAMPLES,
    Config,
    SpanSamples,
    Spec,
    init,
)
from dlstep.core.draws import mix

from .fake_logits import EOS, MASK, VOCABULARY, Profile, chain
from .replaying import REASONS, ReplayingDriver, answers_of, replayed, requests, trace_of, unmasked

# Requests that cannot match, and why.
OTHER_GRID = "the reference counts blocks from 0, here the prompt is one block and blocks start at its end"
EXCLUDED = {
    ("d2f_block32", 0): OTHER_GRID,
    ("d2f_page16_block4_buffer2", 0): OTHER_GRID,
    ("d2f_prefix_cache", 0): OTHER_GRID,
    ("d2f_buffer1", 1): OTHER_GRID,
    ("d2f_prefix_cache", 1): OTHER_GRID,
    ("d2f_prefix_cache", 2): OTHER_GRID,
    ("d2f_short_prompt", 0): OTHER_GRID,
    ("d2f_unaligned_eos", 0): OTHER_GRID,
    ("multi_bd_fdv2_model_mix", 1): "that model's own sampler samples nothing in an unaligned prefill",
    ("multi_bd_fdv2_model_mix", 2): "that model's own sampler samples nothing in an unaligned prefill",
    ("multi_bd_prefix_cache", 3): "the reference spends an empty forward on a prompt that is cached in full",
}
OTHER_REASON = {("d2f_max_batched_tokens", 1): "the reference lets a length limit overwrite the end of sequence"}
# The reference's SDAR sampler ignores the configured accept threshold.
ACCEPT = {"multi_bd_thresholds_high": 0.95}


class GreedyDriver(ReplayingDriver):
    """Samples the best id of each position."""

    def __init__(self, trace, spec):
        super().__init__(trace)
        self.spec, self.fed_final = spec, {}

    def answer(self, span, forward, sample_spec):
        """The samples of a span."""
        first = span.rows.start + span.rows.query_only
        for position in range(first, first + span.rows.final_rows):
            self.fed_final[span.who.id, position] = forward
        if not span.wanted.sampled:
            return NO_SAMPLES
        sampled = []
        for position in span.wanted.sampled:
            row, number = position - self.spec.head_shift, forward
            if row < first:  # the reference keeps this row from the forward that stored it
                number = self.fed_final[span.who.id, row]
            logits = self.profiles[span.who.id].logits(row, number)
            sampled.append(greedy(logits, self.spec))
        return SpanSamples(*zip(*sampled, strict=True))


def greedy(logits, spec):
    """The most probable id that is not the mask id, the highest of equal ones, and its probability."""
    allowed = {token: value for token, value in enumerate(logits) if token != spec.mask_id}
    best = max(allowed.values())
    total = sum(math.exp(value - best) for value in allowed.values())
    return max(token for token, value in allowed.items() if value == best), 1 / total


@cache
def decode(name):
    """The recorded trace, and of our run: decisions by request and forward, answers and reasons."""
    trace = trace_of("", name)
    settings, thresholds = trace["config"], trace["config"]["thresholds"]
    shift = 1 if trace["model_name"] in ("dream", "fast_dllm_v2") else 0
    rule = "B" if trace["model_name"] == "stable_diffcoder" else "A"
    spec = Spec(MASK, (EOS,), VOCABULARY, shift, rule)
    strategy = strategies.make(
        trace["strategy"],
        block_size=settings["block_size"],
        buffer_size=settings["buffer_size"],
        accept_threshold=ACCEPT.get(name, thresholds["accept_threshold"]),
        add_block_threshold=thresholds["add_block_threshold"],
        semi_complete_threshold=thresholds["semi_complete_threshold"],
        token_stability_threshold=thresholds["token_stability_threshold"],
        fold_commits=False,
    )
    # Rows and pages are ample: the reference does not count the rows of decoding, and pacing is what is compared.
    config = Config(
        spec, settings["page_size"], 1024, settings["max_model_len"], 4096, settings["max_num_reqs"],
        settings["enable_prefix_caching"],
    )  # fmt: skip
    decisions = {request["id"]: [] for request in trace["requests"]}
    for span, old, new, after in replayed(trace, init(config, strategy), GreedyDriver(trace, spec)):
        decisions[span.who.id].append(unmasked(span, old, new))
        answers = answers_of(after)
    return trace, decisions, answers


@pytest.mark.parametrize("name, request_id", [pair for pair in requests("") if pair not in EXCLUDED])
def test_decisions_are_those_of_the_reference(name, request_id):
    trace, decisions, answers = decode(name)
    theirs = [r["accepted"] for step in trace["steps"] if "reqs" in step for r in step["reqs"] if r["id"] == request_id]
    ours = decisions[request_id]
    assert ours, "nothing was decoded"
    for forward, (mine, reference) in enumerate(zip(ours, theirs, strict=False)):
        assert mine == sorted(map(tuple, reference)), f"forward {forward}"
    assert len(ours) <= len(theirs)
    final = next(f for f, r in zip(trace["final"], trace["requests"], strict=True) if r["id"] == request_id)
    answer, reason = answers[request_id]
    assert answer == final["truncated_response"]
    if (name, request_id) not in OTHER_REASON:
        assert reason == REASONS[final["reason"]]


def test_every_exclusion_names_a_request():
    assert set(EXCLUDED) <= set(requests(""))
    assert set(OTHER_REASON) <= set(requests(""))


def test_fake_logits_are_the_recorded_ones():
    assert (mix(0), chain(1, 2, 3)) == (0xE220A8397B1DCDAF, 0xD0734750FDE362B3)
    profile = Profile(seed=1, prompt_len=16, eos_at=37, wrong16=2, wrong_max_level=3)
    assert profile.peaks(17, 1)[:3] == (61, 5.231689453125, 56)
    assert profile.peaks(53, 9)[:3] == (62, 7.619384765625, 36)

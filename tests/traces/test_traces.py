"""Decisions of the reference implementation, replayed: same prompts, same logits, same tokens step by step.

The reference was recorded with its own pacing, so `fold_commits=False`. It decodes on after an answer has ended; what is
compared is every decision up to the forward in which our request ends, the answer, and the reason.
"""

import json
import math
from functools import cache
from pathlib import Path

import pytest

from dlstep import strategies
from dlstep.core import (
    NO_SAMPLES,
    Config,
    Request,
    Samples,
    SamplingParams,
    SpanSamples,
    Spec,
    add,
    commit,
    init,
    schedule,
)
from dlstep.core.draws import mix

from .fake_logits import EOS, MASK, VOCABULARY, Profile, chain

DATA = Path(__file__).parent / "data"
REASONS = {"eos_token_generated": "stop", "max_new_tokens_reached": "length"}

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


class FakeDriver:
    """Samples the recorded logits; counts the forwards of each request, which its logits depend on."""

    def __init__(self, profiles, spec):
        self.profiles, self.spec = profiles, spec
        self.forwards = dict.fromkeys(profiles, 0)
        self.fed_final = {}

    def run(self, plan):
        """The samples of `plan`."""
        return Samples(plan, tuple(self._rows(span) for span in plan.spans))

    def _rows(self, span):
        forward = self.forwards[span.who.id]
        self.forwards[span.who.id] += 1
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
        return SpanSamples(tuple(token for token, _ in sampled), tuple(probability for _, probability in sampled))


def greedy(logits, spec):
    """The most probable id that is not the mask id, the highest of equal ones, and its probability."""
    allowed = {token: value for token, value in enumerate(logits) if token != spec.mask_id}
    best = max(allowed.values())
    total = sum(math.exp(value - best) for value in allowed.values())
    return max(token for token, value in allowed.items() if value == best), 1 / total


@cache
def decode(name):
    """The recorded trace, and of our run: decisions by request and forward, answers and reasons."""
    trace = json.loads((DATA / f"{name}.json").read_text())
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
    state = init(config, strategy)
    recorded = {request["id"]: request for request in trace["requests"]}
    driver = FakeDriver({key: Profile.read(r["profile"]) for key, r in recorded.items()}, spec)
    decisions = {key: [] for key in recorded}
    for step in range(2000):
        for key, request in recorded.items():
            if request["arrive"] == step:
                limits = SamplingParams(max_tokens=request["params"]["max_tokens"], max_nfe=request["params"]["max_nfe"])
                state = add(state, Request(key, tuple(request["prompt"]), limits))
        plan = schedule(state)
        after = commit(state, driver.run(plan))
        for span in plan.spans:
            new, old = after.find(span.who.id), state.find(span.who.id)
            unmasked = {position for block in old.progress.window for position in block.masked}
            left = {position for block in new.progress.window for position in block.masked}
            positions = [position for position in span.wanted.sampled if position in unmasked - left]
            decisions[span.who.id].append([(position, *new.tokens(position, position + 1)) for position in positions])
        state = after
    answers = {key: (state.finished[key].answer, str(state.finished[key].finish)) for key in recorded}
    return trace, decisions, answers


def requests():
    """Every request of every trace."""
    return [(path.stem, r["id"]) for path in sorted(DATA.glob("*.json")) for r in json.loads(path.read_text())["requests"]]


@pytest.mark.parametrize("name, request_id", [pair for pair in requests() if pair not in EXCLUDED])
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
    assert list(answer) == final["truncated_response"]
    if (name, request_id) not in OTHER_REASON:
        assert reason == REASONS[final["reason"]]


def test_every_exclusion_names_a_request():
    assert set(EXCLUDED) <= set(requests())
    assert set(OTHER_REASON) <= set(requests())


def test_fake_logits_are_the_recorded_ones():
    assert (mix(0), chain(1, 2, 3)) == (0xE220A8397B1DCDAF, 0xD0734750FDE362B3)
    profile = Profile(seed=1, prompt_len=16, eos_at=37, wrong16=2, wrong_max_level=3)
    assert profile.peaks(17, 1)[:3] == (61, 5.231689453125, 56)
    assert profile.peaks(53, 9)[:3] == (62, 7.619384765625, 36)

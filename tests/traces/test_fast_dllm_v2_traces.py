"""Decisions of the reference implementation of Fast-dLLM v2, replayed: same prompts, same logits, same tokens step by step.

The reference stores a prompt in a forward of its own, which may be empty, where here it joins the first forward that samples.
It decodes on after an answer has ended, and looks for its end once a block: what is compared is every decision up to the
forward in which our request ends, the answer, and the reason.
"""

from functools import cache

import pytest

from dlstep import strategies
from dlstep.core import Config, Spec, init

from .fake_logits import EOS, MASK, VOCABULARY
from .replaying import REASONS, answers_of, replayed, requests, trace_of, unmasked
from .test_traces import GreedyDriver

FOLDER = "fast_dllm_v2"
SPEC = Spec(MASK, (EOS,), VOCABULARY, head_shift=1)


@cache
def decode(name):
    """The recorded trace, and of our run: decisions by request and forward, answers and reasons."""
    trace = trace_of(FOLDER, name)
    settings = trace["config"]
    strategy = strategies.load(trace["strategy"])(
        block_size=settings["block_size"],
        buffer_size=settings["buffer_size"],
        accept_threshold=settings["thresholds"]["accept_threshold"],
        fdv2_use_block_cache=settings["fdv2_use_block_cache"],
    )
    driver = GreedyDriver(trace, SPEC)
    for request in trace["requests"]:
        if len(request["prompt"]) % (settings["block_size"] * settings["buffer_size"]):
            driver.forwards[request["id"]] = 1  # the reference's prefill
    state = init(Config(SPEC, settings["page_size"], 1024, settings["max_model_len"]), strategy)
    decisions = {request["id"]: {} for request in trace["requests"]}
    for span, old, new, after in replayed(trace, state, driver):
        decisions[span.who.id][driver.forwards[span.who.id] - 1] = dict(unmasked(span, old, new))
        answers = answers_of(after)
    return trace, decisions, answers


def reference(trace, request_id):
    """Decisions of the reference; the first token of a block comes with the forward that stores the one before."""
    found = {}
    for step in trace["steps"]:
        for r in step.get("reqs", ()):
            if r["id"] == request_id:
                found[r["n"]] = dict(map(tuple, r["accepted"]))
                if "pending" in r["fdv2"]:
                    found[r["n"]][r["q_start"] + r["q_len"]] = r["fdv2"]["pending"]
    return found


# Behind a prompt of whole blocks the reference takes no first token from the prompt's last row: it predicts the first two
# positions by one and the same row, later. The first one is not compared; where that costs another forward, nothing can be.
EXCLUDED = {
    ("fast_dllm_v2_two_modes", 0): "no first token from the prompt's last row, which costs the reference a forward more"
}


@pytest.mark.parametrize("name, request_id", [pair for pair in requests(FOLDER) if pair not in EXCLUDED])
def test_decisions_are_those_of_the_reference(name, request_id):
    trace, decisions, answers = decode(name)
    ours, theirs = decisions[request_id], reference(trace, request_id)
    length, size = len(trace["requests"][request_id]["prompt"]), trace["config"]["block_size"] * trace["config"]["buffer_size"]
    skipped = 0 if length % size else 1
    assert ours and set(ours) <= set(theirs)
    for forward, mine in ours.items():
        compared = {position: token for position, token in mine.items() if position >= length + skipped}
        expected = {position: token for position, token in theirs[forward].items() if position >= length + skipped}
        assert compared == expected, f"forward {forward}"
    final = trace["final"][request_id]
    answer, reason = answers[request_id]
    assert reason == REASONS[final["reason"]]
    answered = final["truncated_response"]
    if reason == "repetition":  # the reference notices when the block is full
        answered = answered[: len(answer)]
    assert answer[skipped:] == answered[skipped:]


def test_every_exclusion_names_a_request():
    assert set(EXCLUDED) <= set(requests(FOLDER))

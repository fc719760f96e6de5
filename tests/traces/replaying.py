"""Recorded traces of the reference implementation, and decodes of the same requests with the same logits."""

import json
from pathlib import Path

from dlstep.core import Request, Samples, SamplingParams, add, commit, schedule

from .fake_logits import Profile

DATA = Path(__file__).parent / "data"
LIMITS = ("max_tokens", "max_nfe", "max_repetition_run")
REASONS = {"eos_token_generated": "stop", "max_new_tokens_reached": "length", "max_repetition_run_reached": "repetition"}


def trace_of(folder, name):
    """The recorded trace."""
    return json.loads((DATA / folder / f"{name}.json").read_text())


def requests(folder):
    """Every request of every trace of a folder: name and number."""
    names = [path.stem for path in sorted((DATA / folder).glob("*.json"))]
    return [(name, request["id"]) for name in names for request in trace_of(folder, name)["requests"]]


class ReplayingDriver:
    """Answers spans by the recorded logits; counts the forwards of each request, which its logits depend on."""

    def __init__(self, trace):
        self.profiles = {request["id"]: Profile.read(request["profile"]) for request in trace["requests"]}
        self.forwards = dict.fromkeys(self.profiles, 0)

    def run(self, plan):
        """The samples of `plan`."""
        found = []
        for span in plan.spans:
            found.append(self.answer(span, self.forwards[span.who.id], plan.sample_spec))
            self.forwards[span.who.id] += 1
        return Samples(plan, tuple(found))


def replayed(trace, state, driver):
    """Decode the requests, each from its step on. Yield every span, its sequence before and after, and the state after."""
    last = max(request["arrive"] for request in trace["requests"])
    for step in range(2000):
        for request in trace["requests"]:
            if request["arrive"] == step:
                limits = SamplingParams(**{name: request["params"].get(name) for name in LIMITS})
                state = add(state, Request(request["id"], tuple(request["prompt"]), limits))
        plan = schedule(state)
        before, state = state, commit(state, driver.run(plan))
        for span in plan.spans:
            yield span, before.find(span.who.id), state.find(span.who.id), state
        if state.done and step >= last:
            break


def unmasked(span, old, new):
    """The sampled positions that were unmasked, and their tokens."""
    masked, left = ({position for block in each.progress.window for position in block.masked} for each in (old, new))
    return [(place, *new.tokens(place, place + 1)) for place in span.wanted.sampled if place in masked - left]


def answers_of(state):
    """Answer and reason of each request."""
    return {number: (list(each.answer), str(each.finish)) for number, each in state.finished.items()}

"""Differences of states: false exactly for equal values, complete enough to go from one to the other, and short."""

# Values of other types are given on purpose.
# pyright: reportArgumentType=false, reportCallIssue=false, reportOptionalMemberAccess=false

import re
from dataclasses import replace
from itertools import pairwise, product

import pytest

from dlstep import strategies
from dlstep.core import (
    Config,
    Request,
    SamplingParams,
    Spec,
    Trace,
    add,
    init,
    with_options,
)
from dlstep.rules.quota import Quota
from dlstep.strategies import load
from dlstep.text.words import piece
from dlstep.views import diff

from ...helpers.recorded import recorded

NAMES = strategies.available()
RUN = re.compile(r"(\d+)(?: to (\d+))? (\w+): (.*)")
SPEC = Spec(mask_id=49, eos_ids=(48,), vocab_size=50, pieces=tuple(b"%c" % (32 + token) for token in range(50)))


def tokens(sequence):
    """The unmasked tokens of an answer, read position by position."""
    blocks = [*sequence.progress.past, *sequence.progress.window]
    masked = {position for block in sequence.progress.window for position in block.masked}
    stop = min(max(block.end for block in blocks), sequence.request.limit) if blocks else 0
    answered = range(len(sequence.request.prompt), stop)
    return {position: sequence.tokens(position, position + 1)[0] for position in answered if position not in masked}


def requests(state):
    """The requests of a state by sequence number and id."""
    found = (*state.running, *state.waiting, *state.finished.values())
    return {(sequence.request.seq_id, sequence.request.id): sequence for sequence in found}


def check_text(value):
    """Lines of `str` fit a terminal and hold nothing that it would act on."""
    for line in str(value).splitlines():
        assert len(line) <= 80 and line.isprintable(), line


def check_difference(old, new):
    """Positions lead from one state's tokens to the other's, counts are those of the states, others are named."""
    found = diff(old, new)
    assert bool(found) == (old != new)
    check_text(found)
    before, after = requests(old), requests(new)
    # Equal ids may belong to several requests of a state, which their sequence numbers order.
    keys = [key for key in sorted(before.keys() | after.keys()) if before.get(key) != after.get(key)]
    assert [request.title for request in found.inner] == [f"request {request_id}" for _, request_id in keys]
    for key, request in zip(keys, found.inner, strict=True):
        assert (key not in before) == (request.parts[0] == "added") and (key not in after) == (request.parts == ("removed",))
        if key in after:
            check_positions(request, tokens(before[key]) if key in before else {}, tokens(after[key]), new.config.spec)
        if key in after and key in before:
            one, two = before[key], after[key]
            for name, was, now in (
                ("settled", one.progress.settled, two.progress.settled),
                ("forward passes", one.nfe, two.nfe),
            ):
                moved = [part for part in request.parts if part.startswith(f"{name} ")]
                assert moved == ([f"{name} {was} -> {now}"] if was != now else [])


def check_positions(request, before, after, spec):
    """The runs hold exactly the positions whose tokens differ, with the old and the new tokens."""
    shown = []
    for run in request.runs:
        first, last, kind, text = RUN.fullmatch(run).groups()
        positions = range(int(first), int(last or first) + 1)
        old, new = ("".join(piece(spec, side.get(position)) for position in positions) for side in (before, after))
        assert text == {"unmasked": new, "changed": f"{old} -> {new}", "remasked": old}[kind]
        for position in positions:
            assert {"unmasked": position not in before, "remasked": position not in after}.get(
                kind, position in before and position in after
            )
        shown += positions
    assert shown == [place for place in sorted(before.keys() | after.keys()) if before.get(place) != after.get(place)]


@pytest.mark.parametrize("name", NAMES)
def test_a_difference_leads_from_one_state_to_another(name):
    for seed in range(4):
        trace, _ = recorded(name, seed)
        states = [*trace.states()]
        for old, new in pairwise(states):
            check_difference(old, new)
        some = states[:: max(1, len(states) // 6)]
        for old, new in product(some, some):
            check_difference(old, new)


def test_fields_that_nothing_else_shows_are_named():
    """Each field of a state, changed alone, is part of the difference."""
    state = start()
    (sequence,) = state.waiting
    other = replace(sequence.request, params=replace(sequence.request.params, temperature=0.5))
    waiting = state.waiting.remove([0]).push_front([replace(sequence, request=other)])
    for changed, name in (
        (replace(state, cache_digest=5), "KV cache"),
        (replace(state, releases=(3,)), "releases"),
        (replace(state, next_seq_id=9), "next_seq_id"),
        (replace(state, ended=state.ended.push_front(5)), "order of endings"),
        (replace(state, cache=replace(state.cache, fresh=3)), "pages"),
        (replace(state, config=replace(state.config, spec=replace(SPEC, head_shift=1))), "spec"),
    ):
        assert diff(state, changed).parts == (f"other {name}",)
        assert str(diff(state, changed)) == f"other {name}"
    assert str(diff(state, replace(state, waiting=waiting))) == "request 0: other params"
    block = sequence.progress.window[0]
    surer = replace(block, probabilities=tuple([1.0] * len(block.probabilities)))
    blocks = state.waiting.remove([0]).push_front(
        [replace(sequence, progress=replace(sequence.progress, window=(surer, *sequence.progress.window[1:])))]
    )
    assert str(diff(state, replace(state, waiting=blocks))) == "request 0: other window"
    assert diff(state, replace(state, config=replace(state.config, num_pages=8))).parts == ("num_pages 16 -> 8",)
    options = with_options(state.strategy, {"accept_threshold": 0.25})
    assert diff(state, replace(state, strategy=options)).parts == ("accept_threshold 0.9 -> 0.25",)
    other_rule = replace(state.strategy, rule=Quota(2))
    assert diff(state, replace(state, strategy=other_rule)).parts == ("rule threshold -> quota",)
    decoded = state.waiting.remove([0]).push_front([replace(sequence, request=replace(sequence.request, strategy=options))])
    assert str(diff(state, replace(state, waiting=decoded))) == "request 0: other strategy"


def start():
    """One request on a small engine."""
    config = Config(SPEC, page_size=4, num_pages=16, max_model_len=64)
    return add(init(config, load("multi_bd")(block_size=4, buffer_size=2)), Request(0, (5, 6), SamplingParams(max_tokens=9)))


def test_only_states_are_compared():
    state = start()
    for pair in ((state, Trace(state)), (Trace(state), state)):
        with pytest.raises(ValueError, match=r"got Trace.*give the `state` of a trace"):
            diff(*pair)

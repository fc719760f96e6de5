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
    request, progress, config = sequence.request, sequence.progress, state.config
    options = with_options(state.strategy, {"accept_threshold": 0.25})
    first, *others = progress.window
    surer = replace(first, probabilities=(1.0,) * len(first.probabilities))

    def waiting(changed):
        return {"waiting": state.waiting.remove([0]).push_front([changed])}

    for changes, text in (
        ({"cache_digest": 5}, "other KV cache"),
        ({"releases": (3,)}, "other releases"),
        ({"next_seq_id": 9}, "other next_seq_id"),
        ({"ended": state.ended.push_front(5)}, "other order of endings"),
        ({"cache": replace(state.cache, fresh=3)}, "other pages"),
        ({"config": replace(config, spec=replace(SPEC, head_shift=1))}, "other spec"),
        ({"config": replace(config, num_pages=8)}, "num_pages 16 -> 8"),
        ({"strategy": options}, "accept_threshold 0.9 -> 0.25"),
        ({"strategy": replace(state.strategy, rule=Quota(2))}, "rule threshold -> quota"),
        (
            waiting(replace(sequence, request=replace(request, params=replace(request.params, temperature=0.5)))),
            "request 0: other params",
        ),
        (waiting(replace(sequence, request=replace(request, strategy=options))), "request 0: other strategy"),
        (waiting(replace(sequence, progress=replace(progress, window=(surer, *others)))), "request 0: other window"),
    ):
        assert str(diff(state, replace(state, **changes))) == text


def start():
    """One request on a small engine."""
    config = Config(SPEC, page_size=4, num_pages=16, max_model_len=64)
    return add(init(config, load("multi_bd")(block_size=4, buffer_size=2)), Request(0, (5, 6), SamplingParams(max_tokens=9)))


def test_only_states_are_compared():
    state = start()
    for pair in ((state, Trace(state)), (Trace(state), state)):
        with pytest.raises(ValueError, match=r"got Trace.*give the `state` of a trace"):
            diff(*pair)

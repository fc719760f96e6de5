"""The most probable ids that `top_logprobs` reports are those of the pass that set the token, alone and in a batch."""

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from dlstep import strategies
from dlstep.core.block import moved
from dlstep.core.trace import from_json, to_json
from dlstep.rules.credit import Credit
from dlstep.testing.generators import cases
from dlstep.testing.harness import answered_alone, disturbed, run_case

MOST = 3


@pytest.mark.full
@pytest.mark.parametrize("name", strategies.available())
@given(data=st.data())
def test_best_ids_come_from_the_pass_that_set_the_token(name, data):
    case = data.draw(cases(strategies.load(name)))
    greedy = data.draw(st.booleans())
    changes = {"top_logprobs": MOST, **({"temperature": 0.0} if greedy else {})}
    asking = tuple(replace(request, params=replace(request.params, **changes)) for request in case.requests)
    case = replace(case, requests=asking, rebuilds=case.rebuilds if case.strategy.exact else ())
    run = run_case(case)
    assert from_json(to_json(run.state)) == run.trace.replay() == run.state
    reported = {}
    for step in run.steps:
        for (span, before, after), rows in zip(step.served(), step.samples.spans, strict=True):
            width = step.plan.sample_spec.best
            for row, position in enumerate(span.wanted.sampled):
                own = slice(row * width, row * width + MOST)
                pairs = tuple(pair for pair in zip(rows.best_ids[own], rows.best_probabilities[own], strict=True) if pair[1])
                reported.setdefault((span.who.id, position), []).append(pairs)
                assert not span.wanted.masks or len(pairs) <= span.wanted.masks[row].count, "an id is not allowed"
            if span.wanted.sampled and before.finish_info is None and (places := after.progress.replaced):
                gone = {(span.who.id, each.position) for each in places}
                kept = {at: own for at, own in reported.items() if at not in gone}
                reported = {(id_, moved(at, places) if id_ == span.who.id else at): own for (id_, at), own in kept.items()}
    spared = set() if case.strategy.exact else disturbed(run)
    for request in asking:
        sequence = run.state.finished[request.id]
        length = len(request.prompt)
        if sequence.finish not in ("abort", "rejected") and request.id not in spared:
            theirs = answered_alone(case.config.spec, case.strategy, request)
            assert sequence.best == theirs.best
        pinned = {offset: True for offset, _ in request.params.pinned}
        cells = sequence.cells(length, length + len(sequence.answer))
        for position, (cell, best) in enumerate(zip(cells, sequence.best_of(length, length + len(cells)), strict=True), length):
            assert best in reported.get((request.id, position), []) or (best == (cell,) and pinned.get(position - length))
            if greedy and cell[0] in dict(best) and type(getattr(sequence.request.strategy, "rule", None)) is not Credit:
                assert cell in best, "the token has another probability among the best ids than in the answer"

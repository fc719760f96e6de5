"""Step maps of one decode by hand, in which a token becomes two masks and another one is removed."""

# What a request did not ask for is None.
# pyright: reportOptionalMemberAccess=false, reportArgumentType=false

from dlstep import SamplingParams, StepMap, TokenChange
from dlstep.core import Config, Request, Samples, SpanSamples, Spec, add, commit, init, schedule
from dlstep.core.step_map import step_map_of
from dlstep.strategies.dreamon import DreamOn
from dlstep.testing.generators import EOS, MASK, PIECES, VOCABULARY

EXPAND = 7
CONFIG = Config(Spec(MASK, (EOS,), VOCABULARY, 1, pieces=PIECES), page_size=4, num_pages=32, max_model_len=64)


def mapped(*passes, **changes):
    """The map of an answer after passes that sample these tokens and entropies by position."""
    state = init(CONFIG, DreamOn(EXPAND, initial_masks=2))
    state = add(state, Request(0, (1, 2), SamplingParams(max_tokens=5, suffix=(3, EOS), step_map=True, **changes)))
    for step, answer in enumerate(passes):
        plan = schedule(state)
        sampled = plan.spans[0].wanted.sampled
        tokens, entropies = zip(*[answer.get(position, (9, 1.0)) for position in sampled], strict=True)
        policy = tuple([number for position in sampled for number in (position / 8, -step - 0.25, -step - 0.5)])
        rows = SpanSamples(tokens, (0.5,) * len(tokens), entropies, policy=policy)
        state = commit(state, Samples(plan, (rows,)))
    return step_map_of(state.find(0), CONFIG.spec)


def test_replaced_positions_are_part_of_the_map():
    found = mapped({3: (EXPAND, 0.1)}, {2: (5, 0.1)}, {4: (6, 0.1)}, {3: (EOS, 0.1)})
    assert found == StepMap(
        (1, 2), (5, 6), (3, EOS), (0,), MASK,
        (
            TokenChange(0, 1, EXPAND, -0.25, -0.5, 3 / 8, 2),
            TokenChange(1, 0, 5, -1.25, -1.5, 2 / 8),
            TokenChange(2, 2, 6, -2.25, -2.5, 4 / 8),
            TokenChange(3, 1, EOS, -3.25, -3.5, 3 / 8, 0),
        ),
    )  # fmt: skip
    assert [[getattr(cell, "token_id", cell) for cell in cells] for cells, _ in found.played()] == [
        [None, None], [None, None, None], [5, None, None], [5, None, 6], [5, 6],
    ]  # fmt: skip
    assert (found.steps, found.token_changes) == ((1, 2), found.changes[1:3])
    assert StepMap.from_json(found.to_json()) == found


def test_only_requests_that_ask_have_a_map():
    state = add(init(CONFIG, DreamOn(EXPAND)), Request(0, (1, 2), SamplingParams(max_tokens=4)))
    assert step_map_of(state.find(0) or next(iter(state.waiting)), CONFIG.spec) is None
    assert "policy" not in schedule(state).sample_spec.statistics

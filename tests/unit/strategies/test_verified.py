"""Drafts and their verification by the same network: refusals, passes by hand, stored rows and laws."""

# Requests that were added are found.
# pyright: reportOptionalMemberAccess=false

from dataclasses import replace

import pytest

from dlstep.core import Request, SamplingParams, SpanSamples, add, commit, init, schedule
from dlstep.core.contract import check_span
from dlstep.core.errors import WrongAnswer
from dlstep.strategies.autoregressive import Autoregressive
from dlstep.strategies.self_speculation import SelfSpeculation
from dlstep.testing.scripted import ScriptedDriver

from ...helpers.decoding import CONFIG, SPEC, passes
from ...helpers.spans import changed

WRONG = 11


def rows_of(span):
    """Predict the number of each position; in a draft, predict a wrong token at every fourth position."""
    tokens = [WRONG if span.wanted.shift == 0 and position % 4 == 0 else position for position in span.wanted.sampled]
    return SpanSamples(tuple(tokens), (0.5 if span.wanted.shift else 0.9,) * len(tokens))


def decode(strategy, max_tokens, **limits):
    """Start, number of rows, sampled positions and group size of each span, and the end of the stored positions after it."""
    spans, request = [], Request(0, (1, 2), SamplingParams(max_tokens=max_tokens))
    for _, span, sequence in passes(replace(CONFIG, **limits), strategy, request, ScriptedDriver(rows_of)):
        spans.append(
            (span.rows.start, len(span.rows.tokens), span.wanted.sampled, span.rows.grid.size, sequence.storage.stored)
        )
    assert sequence.answer == tuple(range(2, 2 + max_tokens))
    assert set(sequence.probabilities) == {0.5}, "a probability comes from a draft"
    return spans


def test_each_draft_is_verified_and_right_rows_stay_stored():
    assert decode(SelfSpeculation(block_size=4), 8) == [
        (0, 2, (2,), 1, 2),  # the prompt, after which the first token is sampled
        (2, 4, (3, 4, 5), 4, 2),  # a draft, whose token at position 4 is wrong; none of its rows is stored
        (2, 4, (3, 4, 5, 6), 1, 4),  # tokens 3 and 4 are settled; token 4 was not fed, so it is not stored
        (4, 4, (5, 6, 7), 4, 4),
        (4, 4, (5, 6, 7, 8), 1, 8),  # all drafted tokens are right; token 8 is sampled after them
        (8, 1, (9,), 1, 0),  # the last token needs no draft; afterwards, all pages are released
    ]


def test_one_row_is_autoregressive_decoding():
    passes = [(0, 2, (2,), 1, 2), (2, 1, (3,), 1, 3), (3, 1, (4,), 1, 0)]
    assert decode(Autoregressive(), 3) == decode(SelfSpeculation(block_size=1), 3) == passes


def test_a_budget_that_cuts_the_prompt_changes_only_how_it_is_stored():
    whole, cut = decode(SelfSpeculation(block_size=2), 8), decode(SelfSpeculation(block_size=2), 8, max_num_batched_tokens=2)
    assert whole == cut


def test_only_rows_that_are_stored_like_final_ones_can_be_kept():
    strategy = SelfSpeculation(block_size=4)
    state = add(init(CONFIG, strategy), Request(0, (1, 2), SamplingParams(max_tokens=8)))
    state = commit(state, ScriptedDriver(rows_of).run(schedule(state)))
    (sequence,) = state.running
    draft = changed(strategy.schedule(sequence, SPEC), keeps_window=True)
    with pytest.raises(WrongAnswer, match="keeps_window=True needs joins=True"):
        check_span(strategy, sequence, draft, SPEC)

"""Edit sampling: edits, remasking and constraints; tests/reference restates its decisions as a loop."""

from dataclasses import replace

import pytest

from dlstep.core import Request, SamplingParams, SpanSamples, add, init
from dlstep.strategies.multi_bd_edit import MultiBDEdit

from ...helpers.decoding import waiting
from .revising import AB_OR_BA, CONFIG, MASK, under_a_constraint


def test_a_request_may_set_when_to_remask_only_if_there_is_remasking():
    asked = Request(0, (1,), SamplingParams(strategy_options=(("remask_threshold", 0.2),)))
    refused = add(init(CONFIG, MultiBDEdit(block_size=4)), asked).finished[0]
    assert refused.finish == "rejected" and "remasking" in refused.error
    assert add(init(CONFIG, MultiBDEdit(block_size=4, remasking=True)), asked).waiting


def test_a_remask_threshold_without_remasking_is_an_error():
    with pytest.raises(ValueError, match="remasking=True"):
        MultiBDEdit(remask_threshold=0.4)


def test_masks_are_filled_before_tokens_are_edited():
    """The second forward is more certain of an edit that contradicts the fill; after it nothing else is allowed."""
    answers = [((0, 0), (0.9, 0.8)), ((1, 1), (0.99, 0.5)), ((0, 1), (0.9, 0.9))]
    assert under_a_constraint(MultiBDEdit(block_size=4, accept_threshold=0.5), answers) == [(0, MASK), (0, 1), (0, 1)]


def test_remasked_positions_count_in_the_measure():
    rule = MultiBDEdit(block_size=4, accept_threshold=0.5, remasking=True)
    answers = [((0, 0), (0.9, 0.8)), ((0, 1), (0.9, 0.9)), ((0, 1), (0.1, 0.1)), ((1, 1), (0.9, 0.8)), ((1, 0), (0.9, 0.9))]
    texts = [(0, MASK), (0, 1), (MASK, MASK), (1, MASK), (1, 0), (1, 0)]
    assert under_a_constraint(rule, [*answers, ((1, 0), (0.9, 0.9))]) == texts


def test_a_block_with_masks_is_not_ready_although_its_passes_are_used_up():
    strategy = MultiBDEdit(block_size=4, remasking=True)
    request = Request(0, (5, 5), SamplingParams(max_tokens=2), automaton=AB_OR_BA)
    sequence = waiting(strategy, request, CONFIG)
    aged = replace(sequence, steps=99)
    rows = SpanSamples((0, 0), (0.9, 0.8))
    after = strategy.commit(aged, strategy.schedule(aged, CONFIG.spec), rows, CONFIG.spec)
    assert (replace(aged, progress=after).tokens(2, 4), after.settled) == ((0, MASK), 2)

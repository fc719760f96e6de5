"""Checks of what a strategy returns: they accept what is right, and say what is wrong with the rest."""

from dataclasses import replace

import pytest

from dlstep.core import Block, Grid, Replacement, Request, SamplingParams
from dlstep.core.constraint import all_but
from dlstep.core.contract import check_span, sequence_after
from dlstep.core.errors import WrongAnswer
from dlstep.strategies.multi_bd import MultiBD

from ...helpers.decoding import SPEC, waiting
from ...helpers.spans import changed


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"params": None}, "params=None: it must be a SamplingParams"),
        ({"start": True}, "start=True: it must be a whole number of 64 bits"),
        (
            {"grid": Grid(1, 2)},
            r"grid=Grid\(.*\): a span with joins=True needs Grid\(origin=0, size=32\), the grid of the request",
        ),
        ({"masks": (all_but(3, 50),)}, "1 masks: give one from `all_but` per sampled position"),
        ({"masks": (all_but(3, 51),) * 4}, "4 masks: give one from `all_but`"),
    ],
)
def test_each_fault_of_a_span_has_its_own_message(changes, message):
    strategy = MultiBD()
    sequence = waiting(strategy, Request(0, (1, 2), SamplingParams(max_tokens=4)))
    span = strategy.schedule(sequence, SPEC)
    check_span(strategy, sequence, span, SPEC)
    with pytest.raises(WrongAnswer, match=message):
        check_span(strategy, sequence, changed(span, **changes), SPEC)


def test_finished_blocks_stay_in_the_progress_of_a_sequence():
    sequence = waiting(MultiBD(), Request(0, (1, 2)))
    past = sequence.progress.past.push_front(Block(0, (1, 2), (), (1.0, 1.0)))
    sequence = replace(sequence, progress=replace(sequence.progress, past=past))
    assert sequence_after(sequence, "commit", sequence.progress) == sequence
    for lost in (past.drop_first(), tuple(past), None):
        progress = replace(sequence.progress, past=lost)
        with pytest.raises(WrongAnswer, match="past="):
            sequence_after(sequence, "commit", progress)


def test_a_sequence_with_more_passes_than_tokens_has_to_advance_in_each():
    sequence = waiting(MultiBD(), Request(0, (1, 2), SamplingParams(max_tokens=4)))
    for steps in range(5):
        sequence_after(replace(sequence, steps=steps), "commit", sequence.progress)
    with pytest.raises(WrongAnswer, match="every forward pass must lower it"):
        sequence_after(replace(sequence, steps=5), "commit", sequence.progress)


@pytest.mark.parametrize("replaced", [None, [], ((3, 1),), (Replacement(4, 1), Replacement(3, 0)), (Replacement(1, 2),)])
def test_positions_that_are_settled_or_out_of_order_are_not_replaced(replaced):
    sequence = waiting(MultiBD(), Request(0, (1, 2)))
    fine = replace(sequence.progress, replaced=(Replacement(3, 0), Replacement(4, 2)))
    assert sequence_after(sequence, "commit", fine).progress == fine
    with pytest.raises(WrongAnswer, match="replaced="):
        sequence_after(sequence, "commit", replace(fine, replaced=replaced))

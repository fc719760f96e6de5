"""The table of token masks: its bits are the masks' ids, and no forward pass loses a mask that it needs."""

import pytest
import torch
from hypothesis import example, given, strategies as st

from dlstep.core.constraint import TokenMask, bound
from dlstep.driver import tables as driver_tables
from dlstep.driver.tables import MaskTable, packed
from dlstep.testing.generators import table_automaton

from ...helpers.spans import span_with

VOCABULARY = 70  # the last of three words is partly used
CPU = torch.device("cpu")


def mask_of(number, classes, stop_ids, chosen):
    """A mask of the ids whose class is in the bitmap `chosen`."""
    count = 1 + max(classes)
    automaton = table_automaton("drawn", classes, [0], [dict.fromkeys(range(1, count), 0)])
    return TokenMask(number, bound(automaton, stop_ids), chosen)


def ids_in(words):
    """The ids that a line of words allows, bit by bit."""
    return [32 * place + bit for place, word in enumerate(words.tolist()) for bit in range(32) if word >> bit & 1]


@given(
    classes=st.integers(1, 20).flatmap(lambda most: st.lists(st.integers(0, most), min_size=1, max_size=100)),
    stop_ids=st.lists(st.integers(0, 99), max_size=2, unique=True),
    chosen=st.lists(st.integers(0, 2**22 - 1), min_size=1, max_size=4),
)
@example(classes=[1] * 33, stop_ids=[31], chosen=[2, 0])
def test_packed_bits_are_the_ids_of_the_mask(classes, stop_ids, chosen):
    """Each mask is computed from an earlier one."""
    stops = tuple(token for token in stop_ids if token < len(classes))
    for each in chosen:
        mask = mask_of(0, classes, stops, each & (1 << max(classes) + 2) - 1)
        words = packed(mask)
        assert words.shape == (-(-len(classes) // 32),)
        assert ids_in(words) == mask.ids()


POOL = [mask_of(100 + number, [1 + token % 13 for token in range(VOCABULARY)], (), 3 << number) for number in range(12)]
CHOSEN = st.none() | st.lists(st.integers(0, 11), min_size=1, max_size=4)
PASSES = st.lists(st.lists(CHOSEN, min_size=1, max_size=4), max_size=14)


def span_of(chosen):
    """A span with these masks at its sampled positions; None: two positions without a constraint."""
    count = 2 if chosen is None else len(chosen)
    places = tuple(range(count))
    own = () if chosen is None else tuple(POOL[number] for number in chosen)
    return span_with(tokens=(5,) * count, end=count, sampled=places, draws=(0,) * count, masks=own)


@given(capacity=st.integers(2, 9), passes=PASSES)
@example(capacity=3, passes=[[[0]], [[1]], [[0]], [[2]], [[0, 2]]])
@example(capacity=2, passes=[[[0]], [[1], None, [2, 3]], [[0, 1, 2, 3, 4]], [[7]]])
def test_every_forward_pass_finds_its_masks(capacity, passes):
    """Against a dictionary in order of use: what stays keeps its row, and only the least recently used masks go."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver_tables, "CAPACITY", capacity)
        uploaded = []
        patch.setattr(driver_tables, "packed", lambda mask: (uploaded.append(mask.id), packed(mask))[1])
        table = MaskTable(VOCABULARY, CPU)
        row_of = {}  # of masks, least recently used first
        for chosen in passes:
            spans, before = [span_of(each) for each in chosen], table.words
            needed = dict.fromkeys(mask.id for span in spans for mask in span.wanted.masks)
            uploaded.clear()
            rows = table.rows_of(spans).tolist()
            if len(needed) >= len(before):  # the first table, or a larger one
                assert len(table.words) == max(capacity, 1 << len(needed).bit_length())
                row_of = {}
            else:
                assert table.words is before
            missing = [each for each in needed if each not in row_of]
            assert uploaded == missing
            of_positions = [mask for span in spans for mask in span.wanted.masks or [None] * len(span.wanted.sampled)]
            assert len(rows) == len(of_positions)
            given_rows = {mask.id: row for mask, row in zip(of_positions, rows, strict=True) if mask is not None}
            assert all(given_rows[each] == row for each, row in row_of.items() if each in needed)
            row_of = {each: row for each, row in row_of.items() if each not in needed}
            row_of |= {each: given_rows[each] for each in (*[each for each in needed if each not in missing], *missing)}
            while len(row_of) > len(table.words) - 1:
                del row_of[next(iter(row_of))]
            assert len({*row_of.values(), 0}) == len(row_of) + 1
            held = {mask.id: mask for mask in POOL}
            for mask_id, row in row_of.items():
                assert ids_in(table.words[row].numpy()) == held[mask_id].ids()
            for mask, row in zip(of_positions, rows, strict=True):
                assert (row == 0) == (mask is None)
            assert bool((table.words[0] == -1).all())


def test_a_mask_that_cannot_be_uploaded_is_uploaded_later(monkeypatch):
    monkeypatch.setattr(driver_tables, "CAPACITY", 3)
    table = MaskTable(VOCABULARY, CPU)
    table.rows_of([span_of([0, 1])])
    with monkeypatch.context() as patch:
        patch.setattr(driver_tables, "staged", lambda arrays, device: (_ for _ in ()).throw(torch.OutOfMemoryError("full")))
        with pytest.raises(torch.OutOfMemoryError):
            table.rows_of([span_of([2, 3])])
    rows = table.rows_of([span_of([2, 3])])
    assert [ids_in(table.words[row].numpy()) for row in rows.tolist()] == [POOL[2].ids(), POOL[3].ids()]

"""Law of forked tables: a copy and its original go on as if each were the only one."""

from hypothesis import given, settings, strategies as st

from dlstep.core import Admission, Grant, Plan
from dlstep.driver.tables import PageTables

PLACES = 4
MOVES = st.lists(st.tuples(st.booleans(), st.integers(0, 9)), max_size=12)


def moved(tables, moves, step):
    """Let requests come and go: each move lets one of the live ones go, or another one come, with two pages of its own."""
    for number, (goes, which) in enumerate(moves, start=step):
        live = sorted(tables.rows)
        if live and (goes or len(live) == PLACES):
            tables.apply(Plan(number, 1, (), releases=(live[which % len(live)],)))
        else:
            tables.apply(Plan(number, 1, (), admissions=(Admission(number, (which,)),), grants=(Grant(number, (number,)),)))


def held(tables):
    """The pages of each request."""
    return {seq_id: tuple(tables.pages[row, : tables.lengths[seq_id]].tolist()) for seq_id, row in tables.rows.items()}


@settings(max_examples=60, deadline=None)
@given(before=MOVES, first=MOVES, second=MOVES)
def test_a_copy_and_its_original_go_on_as_if_alone(before, first, second):
    tables, copy, alone, other = (PageTables(max_num_reqs=PLACES, width=3) for _ in range(4))
    for each in (tables, alone, other):
        moved(each, before, 0)
    copy.copy(tables)
    moved(tables, first, 100)
    moved(copy, second, 200)
    moved(alone, first, 100)
    moved(other, second, 200)
    assert held(tables) == held(alone) and held(copy) == held(other)

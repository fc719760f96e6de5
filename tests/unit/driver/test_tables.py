"""Law of forked tables: a copy and its original go on as if each were the only one."""

import torch
from hypothesis import given, settings, strategies as st

from dlstep.core import Admission, Config, Grant, Plan, Spec
from dlstep.driver.executor import Executor
from dlstep.driver.tables import PageTables
from dlstep.driver.torch_driver import KVCache
from dlstep.models.networks import Memory

PLACES = 4
CONFIG = Config(Spec(1, (0,), 2), max_num_reqs=PLACES, max_model_len=32)
EMPTY = Memory((), (), torch.empty(0, 0, 0))
MOVES = st.lists(st.tuples(st.booleans(), st.integers(0, 9)), max_size=12)


def moved(tables, moves, step):
    """Let requests come and go: each move lets one of the live ones go, or another one come, with two pages of its own."""
    for number, (goes, which) in enumerate(moves, start=step):
        live = sorted(tables.rows)
        if live and (goes or len(live) == PLACES):
            tables.apply(Plan(number, 1, (), releases=(live[which % len(live)],)))
        else:
            tables.apply(
                Plan(number, 1, (), admissions=(Admission(number, (which,), which),), grants=(Grant(number, (number,)),))
            )


def held(tables):
    """The pages and the carry slot of each request."""
    rows = {seq_id: tables.pages[row, : tables.lengths[seq_id]].tolist() for seq_id, row in tables.rows.items()}
    return rows, tables.slots


def cache():
    """A KV cache without memory, which runs nothing."""
    return KVCache(0, EMPTY, Executor.__new__(Executor), PageTables(CONFIG))


@settings(max_examples=60, deadline=None)
@given(before=MOVES, first=MOVES, second=MOVES)
def test_a_copy_and_its_original_go_on_as_if_alone(before, first, second):
    cached, copied, alone, other = cache(), cache(), PageTables(CONFIG), PageTables(CONFIG)
    for each in (cached.tables, alone, other):
        moved(each, before, 0)
    copied.copy(cached)
    tables, copy = cached.tables, copied.tables
    moved(tables, first, 100)
    moved(copy, second, 200)
    moved(alone, first, 100)
    moved(other, second, 200)
    assert held(tables) == held(alone) and held(copy) == held(other)

"""Token automata accept exactly the strings of ids whose bytes the byte automaton accepts."""

import random
from itertools import product

import pytest
from hypothesis import given, strategies as st

from dlstep.core.automaton import members
from dlstep.text.dfa import MOST_STATES, Dfa, TooManyStates
from dlstep.text.token_automaton import token_automaton

from ...helpers.automata import byte_automata, rows_of

PIECES = (b"a", b"b", b"ab", b"ba", b"", b"aab", b"c")


def strings(length):
    """All strings of ids up to a length."""
    return [ids for count in range(length + 1) for ids in product(range(len(PIECES)), repeat=count)]


@given(automaton=byte_automata(), forbidden=st.sets(st.integers(0, len(PIECES) - 1), max_size=2))
def test_it_accepts_what_its_bytes_spell(automaton, forbidden):
    try:
        made = token_automaton("drawn", automaton, PIECES, sorted(forbidden))
    except ValueError:
        made = None
    for ids in strings(3):
        spelled = all(PIECES[token] and token not in forbidden for token in ids)
        expected = spelled and automaton.accepts(b"".join(PIECES[token] for token in ids).decode())
        assert (made is not None and made.accepts(ids)) == expected


@given(automaton=byte_automata())
def test_every_state_can_be_reached_and_left_and_every_class_has_an_id(automaton):
    try:
        made = token_automaton("drawn", automaton, PIECES)
    except ValueError:
        return
    rows = rows_of(made)
    assert {*range(1, len(made.sizes))} <= {*made.class_of}
    reached, stack = {0}, [0]
    while stack:
        fresh = {*rows[stack.pop()].values()} - reached
        reached |= fresh
        stack += fresh
    assert reached == {*range(len(rows))}
    ending = {*members(made.accepting)}
    for _ in rows:
        ending |= {state for state, row in enumerate(rows) if ending.intersection(row.values())}
    assert ending == reached


def test_ids_that_move_alike_share_a_class():
    pieces = (*[bytes([byte]) for byte in b"abcdefgh"], b"ab", b"gh")
    made = token_automaton("letters", Dfa((((97, 104, 0),),), frozenset([0])), pieces)
    assert made.state_count == 1
    assert {*made.class_of} == {1}  # in one state, two letters are one letter


def test_a_table_over_a_limit_is_refused(monkeypatch):
    count = random.Random(0)
    rows = [tuple((byte, byte, count.randrange(60)) for byte in range(97, 123)) for _ in range(60)]
    pieces = tuple(bytes([one, other]) for one in range(97, 123) for other in range(97, 123))
    for limit, counted in (("MOST_EDGES", "edges"), ("MOST_ENTRIES", "moves")):
        monkeypatch.setattr(f"dlstep.text.token_automaton.{limit}", 1000)
        with pytest.raises(TooManyStates, match=f"more than 1000 {counted}"):
            token_automaton("random", Dfa(tuple(rows), frozenset([0])), pieces)


@pytest.mark.parametrize("length", [15_000, pytest.param(MOST_STATES - 1, marks=pytest.mark.full)])
def test_automata_have_any_number_of_states_up_to_the_limit(length):
    rows = [((97, 97, state + 1),) for state in range(length)]
    chain = Dfa((*rows, ()), frozenset([length]))
    made = token_automaton("a" * length, chain, PIECES)
    assert made.accepts((0,) * length) and not made.accepts((0,) * (length - 1)) and len(made.tables) < 40 * length

"""Automata are values: equal tables are equal, and traces and pickles name them."""

import gc
import pickle

import pytest

from dlstep.core import DlstepError, Request, SamplingParams
from dlstep.core.automaton import Automaton
from dlstep.core.trace import from_json, to_json
from dlstep.text.dfa import regex
from dlstep.text.token_automaton import token_automaton

PIECES = (b"a", b"b", b"ab", b"ba", b"", b"aab", b"c")


MADE = token_automaton("(ab)*", regex("(ab)*"), PIECES)


def test_a_trace_holds_source_and_digest_and_finds_the_tables_again():
    request = Request(0, (1,), SamplingParams(regex="(ab)*"), automaton=MADE)
    data = to_json(request)
    assert data["automaton"] == {"class": "dlstep.core:Automaton", "source": "(ab)*", "digest": {"bytes": MADE.digest.hex()}}
    read = from_json(data)
    assert read == request and read.automaton.loaded is MADE
    assert pickle.loads(pickle.dumps(MADE)).arrays == MADE.arrays


def test_equal_tables_of_two_sources_are_found_as_long_as_their_own_automaton_lives():
    first, second = (token_automaton(source, regex(source), PIECES) for source in ("(ba)*", "(?:ba)*"))
    assert first.digest == second.digest and first != second
    digest = first.digest
    del first
    gc.collect()
    assert Automaton("(?:ba)*", digest).loaded is second


def test_an_automaton_of_another_process_must_be_compiled():
    with pytest.raises(DlstepError, match=r"the constraint \(ab\)\* is recorded without its tables: compile it first"):
        _ = Automaton("(ab)*", b"another").loaded


def test_automata_that_differ_in_moves_alone_are_not_equal():
    one, other = (token_automaton("x", regex(text), (b"a", b"b")) for text in ("a(ba)*", "ab*"))
    assert one != other and other.accepts((0, 1)) and not one.accepts((0, 1))

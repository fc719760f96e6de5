"""Compile regexes, choices and JSON schemas to tables: the jobs of the process with limited time and memory.

Other processes do not import this module, so they start without NumPy.
"""

import json
from collections.abc import Callable, Iterator, Sequence

from ..core.automaton import TooLarge
from ..core.checks import short
from .constraints import Marks
from .dfa import Dfa, TooManyStates, difference, intersection, regex, spelled, union, words
from .json_automaton import LIMITS, ByteAutomaton, schema_automaton, text_automaton
from .token_automaton import token_automaton

LONGEST = 1 << 20  # characters of a constraint


def tables(kind: str, text: str, pieces: Sequence[bytes], forbidden: Sequence[int], marks: Marks = None) -> bytes:
    """Return the tables of the automaton of a constraint; `compiled` describes the arguments."""
    source, reason = f"{kind}={short(text)}", ""
    for build in _builders(kind, text):
        for cached in (intersection, union, difference, spelled):  # what was built before counts against the limit of memory
            cached.cache_clear()
        try:
            moves, accepting, start = build()
            if marks is not None:
                moves, start = _after_text(moves, start, *[mark.encode() for mark in marks]), len(moves)
            return token_automaton(source, moves, accepting, pieces, forbidden, start=start).tables
        except (TooLarge, TooManyStates, RecursionError) as error:
            reason = str(error)  # the error itself would keep all that this attempt has built
    raise ValueError(f"{source} cannot be compiled: {reason}")


def _builders(kind: str, text: str) -> Iterator[Callable[[], ByteAutomaton]]:
    """Yield functions that build the byte automaton of a constraint; those of a schema build ever smaller ones."""
    if len(text) > LONGEST:
        raise ValueError(f"{kind} has {len(text)} characters, and at most {LONGEST} are compiled")
    if kind == "json_schema":
        schema = json.loads(text)
        for limits in LIMITS:
            yield lambda limits=limits: schema_automaton(schema, limits)
    elif kind == "regex":
        yield lambda: text_automaton(_regex(text))
    else:
        yield lambda: text_automaton(words(json.loads(text)))


def _regex(text: str) -> Dfa:
    try:
        return regex(text)
    except TooManyStates:
        raise
    except ValueError as error:
        raise ValueError(f"regex={short(text)} cannot be compiled: {error}") from error


def _after_text(moves: list[dict[int, int]], start: int, opening: bytes, closing: bytes) -> list[dict[int, int]]:
    """Return the moves with new states, from `len(moves)` on, that first read `opening`, any text, `closing`, 0 to 2 newlines.

    The first byte of `closing` must not occur in it again.
    """
    rows = list(moves)
    for byte in opening:
        rows.append({byte: len(rows) + 1})
    text = len(rows)
    for count, byte in enumerate(closing, 1):
        rows.append({**dict.fromkeys(range(256), text), closing[0]: text + 1, byte: text + count})
    return [*rows, {ord("\n"): len(rows) + 1, **moves[start]}, {ord("\n"): start, **moves[start]}]

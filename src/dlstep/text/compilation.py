"""Compile regexes, choices, grammars and JSON schemas to tables: the jobs of the process with limited time and memory.

Other processes do not import this module, so they start without NumPy.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence

from ..core import short
from .constraints import Marks
from .dfa import Dfa, Nfa, TooManyStates, difference, product, regex, spelled, words
from .grammar import DEPTHS, grammar_regex
from .json_automaton import LIMITS, schema_automaton
from .token_automaton import token_automaton

LONGEST = 1 << 20  # characters of a constraint


def tables(kind: str, text: str, pieces: Sequence[bytes], forbidden: Sequence[int], marks: Marks = None) -> bytes:
    """Return the tables of the automaton of a constraint; `compiled` describes the arguments."""
    source, reason = f"{kind}={short(text)}", ""
    for build in _builders(kind, text):
        for cached in (product, spelled):  # results of earlier attempts count against the memory limit
            cached.cache_clear()
        largest = ""
        try:
            automaton = build()
            largest = automaton.largest
            if marks is not None:
                automaton = _after_text(automaton, *[mark.encode() for mark in marks])
            return token_automaton(source, automaton, pieces, forbidden).tables
        # Keep only the message: the error refers to everything that this attempt has built.
        except (TooManyStates, RecursionError) as error:
            reason = f"{error}{largest}"
        except MemoryError:
            reason = ""
    if not reason:  # the error ends this process, so that its parent reports the limit
        raise MemoryError
    raise ValueError(f"{source} cannot be compiled: {reason}")


def _builders(kind: str, text: str) -> Iterator[Callable[[], Dfa]]:
    """Yield functions that build the byte automaton of a constraint; those of a schema build ever smaller ones."""
    if len(text) > LONGEST:
        raise ValueError(f"{kind} has {len(text)} characters, and at most {LONGEST} are compiled")
    if kind == "json_schema":
        schema = json.loads(text)
        for limits in LIMITS:
            yield lambda limits=limits: schema_automaton(schema, limits)
    elif kind == "grammar":
        for depth in DEPTHS:
            yield lambda depth=depth: spelled(_regex(kind, grammar_regex(text, depth)))
    elif kind == "regex":
        yield lambda: spelled(_regex(kind, text))
    else:
        yield lambda: spelled(words(json.loads(text)))


def _regex(kind: str, text: str) -> Dfa:
    try:
        return regex(text)
    except TooManyStates:
        raise
    except ValueError as error:
        raise ValueError(f"{kind}={short(text)} cannot be compiled: {error}") from error


def _after_text(automaton: Dfa, opening: bytes, closing: bytes) -> Dfa:
    """Return the automaton of `opening`, any text, `closing`, 0 to 2 newlines, and then a text of `automaton`.

    The first byte of `closing` must not occur in it again.
    """
    nfa, anything = Nfa(), "[\0-\xff]*"
    start = nfa.state()
    text = difference(regex(anything), regex(f"{anything}{re.escape(closing.decode('latin-1'))}{anything}"))
    closed = nfa.path(nfa.language(text, nfa.path(start, opening)), closing)
    spaced = nfa.state(closed, *[nfa.path(closed, newlines) for newlines in (b"\n", b"\n\n")])
    return nfa.determined(start, nfa.language(automaton, spaced))

"""Compile the regexes, choices and JSON schemas of sampling parameters to automata over token ids."""

import json
from dataclasses import replace
from functools import lru_cache
from typing import cast

from ..core import Add, Request, Spec, Trace
from ..core.automaton import Automaton, token_automaton
from ..core.checks import short
from ..extras import require
from .json_automaton import json_object_moves
from .json_leaves import FIRST
from .json_schema import is_any_object, schema_regex
from .limited_worker import LimitedWorker

LONGEST_REGEX = 1 << 16  # characters
LONGEST_CHOICES = 1 << 20  # bytes of all choices

_worker = LimitedWorker()


def constrained(request: Request, spec: Spec) -> Request:
    """Return the request with the automaton of its constraint; the same request if it has no constraint.

    Raises ValueError, with the name of the parameter, if the constraint cannot be compiled.
    """
    source = request.params.constraint_source
    if source is None or request.constraint is not None:
        return request
    return replace(request, constraint=compiled(*source, spec))


def recompiled(trace: Trace) -> Trace:
    """Return the trace after compiling the constraints of its requests, because traces do not store their tables.

    Raises ValueError if a constraint cannot be compiled.
    """
    first = trace.first
    requests = [sequence.request for sequence in (*first.running, *first.waiting)]
    requests += [event.request for event in trace.events if isinstance(event, Add)]
    for request in requests:
        if (source := request.params.constraint_source) is not None:
            compiled(*source, first.config.spec)
    return trace


@lru_cache(maxsize=64)
def compiled(kind: str, text: str, spec: Spec) -> Automaton:
    """Return the automaton of a regex, of choices or of a JSON schema.

    Args:
        kind: The parameter of `SamplingParams`: "regex", "choice" or "json_schema".
        text: The value of the parameter; choices as a JSON list.
        spec: Facts of the model, with the bytes of each token id.

    Raises:
        ValueError: `text` is invalid, too large, or matches nothing that the tokenizer can spell.
    """
    if not spec.pieces:
        raise ValueError(f"{kind} needs a tokenizer, which this model does not have")
    forbidden = (*spec.eos_ids, *(() if spec.mask_id is None else (spec.mask_id,)))
    source = f"{kind}={short(text)}"
    moves, accepting, start = _choice_moves(json.loads(text)) if kind == "choice" else _regex_moves(kind, text)
    return token_automaton(source, moves, accepting, spec.pieces[: spec.vocab_size], forbidden, start=start)


def _choice_moves(choices: list[str]) -> tuple[list[dict[int, int]], list[int], int]:
    """Return the byte automaton of a list of texts, which is their trie."""
    encoded = [choice.encode() for choice in choices]
    if sum(map(len, encoded)) > LONGEST_CHOICES:
        raise ValueError(f"choice has {sum(map(len, encoded))} bytes, and at most {LONGEST_CHOICES} are compiled")
    moves: list[dict[int, int]] = [{}]
    accepting: list[int] = []
    for choice in encoded:
        state = 0
        for byte in choice:
            if byte not in moves[state]:
                moves[state][byte] = len(moves)
                moves.append({})
            state = moves[state][byte]
        accepting.append(state)
    return moves, accepting, 0


def _regex_moves(kind: str, text: str) -> tuple[list[dict[int, int]], list[int], int]:
    """Return the byte automaton of a regex or a JSON schema, compiled in a process with limited time and memory."""
    if len(text) > LONGEST_REGEX:
        raise ValueError(f"{kind} has {len(text)} characters, and at most {LONGEST_REGEX} are compiled")
    regex, first = text, ""
    if kind == "json_schema":
        schema = json.loads(text)
        regex, first = schema_regex(schema), FIRST  # also checks a schema that needs no regex
        if is_any_object(schema):
            return json_object_moves()
    require(kind, "structured")
    try:
        answer = _worker.ask("regex", regex, first)
    except ValueError as error:
        raise ValueError(f"{kind}={short(text)} cannot be compiled: {error}") from error
    moves = [dict(cast("list[tuple[int, int]]", row)) for row in answer["moves"]]
    return moves, answer["accepting"], answer["start"]

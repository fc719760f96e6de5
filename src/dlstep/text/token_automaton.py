"""Turn automata over bytes into automata over token ids.

The function of an id maps the state before its bytes to the state after them. Many ids, and many
beginnings of ids, share a function, so each function is extended by each class of bytes only once.
Ids with the same function are one class.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ..core.automaton import Automaton, label_words, packed_tables
from .constraints import array_edges
from .dfa import Dfa, Row, TooManyStates
from .edges import ranges

Ints = npt.NDArray[np.int32]
States = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.integer]
MOST_ENTRIES = 13_000_000  # moves by whole ids and by beginnings of ids
MOST_EDGES = 300_000  # of which the masks of a pass take 7 to 15 ms


def token_automaton(
    source: str,
    automaton: Dfa,
    pieces: Sequence[bytes],
    forbidden: Sequence[int] = (),
) -> Automaton:
    """Return the automaton over token ids that accepts the same texts as an automaton over bytes.

    Args:
        source: Description of the language for messages and traces.
        automaton: The byte automaton.
        pieces: The bytes of each token id. Ids without bytes occur in no string of the language.
        forbidden: Other ids that occur in no string of the language, such as the mask id.

    Raises:
        ValueError: No string of ids is in the language.
        TooManyStates: The automaton would have more than MOST_ENTRIES moves or MOST_EDGES edges.
    """
    rows = automaton.rows or ((),)  # the empty language has no rows
    functions, function_of = _functions(rows, pieces, forbidden)
    count = len(rows)
    used = np.unique(function_of[function_of >= 0])
    none = np.zeros(0, np.int64)
    before, after = np.divmod(np.unique(np.concatenate([none, *[_arrows(functions[number], count) for number in used]])), count)
    # Keep only states that whole ids can reach: others would enlarge the table.
    reached = _reached(np.array([0]), before, after, count)
    ends = np.array([state for state in automaton.accepting if reached[state]], np.int64)
    inside = reached[before]
    live = reached & _reached(ends, after[inside], before[inside], count)
    if not live[0]:
        raise ValueError(f"{source} matches no text that the tokenizer can spell: give another pattern")
    states = int(live.sum())
    number = np.full(count, -1, np.int32)
    number[live] = np.arange(states)
    # Functions that differ only in states from which no accepting state can be reached are one class.
    classes: dict[bytes, int] = {b"": 0}
    class_of_function = np.zeros(len(functions) + 1, np.int32)  # the last one is that of ids without a function
    made = [none.astype(np.uint32)]
    for function in used:
        kept = number[functions[function]]
        kept = kept[:, (kept >= 0).all(axis=0)]
        letter = class_of_function[function] = classes.setdefault(kept.tobytes(), len(classes))
        if letter == len(made):
            made.append(_arrows(kept, states).astype(np.uint32))
    return Automaton.of(source, _tables(class_of_function[function_of], np.sort(number[ends]), states, made), array_edges)


def _arrows(function: Ints, states: int) -> States:
    """Return a number for each pair of a state and its next state."""
    return function[0].astype(np.int64) * states + function[1]


def _tables(class_of: Ints, accepting: Ints, states: int, made: Sequence[npt.NDArray[np.uint32]]) -> bytes:
    """Return the tables of an automaton; `made` has the arrows of each class."""
    arrows, letters = np.concatenate(made), np.repeat(np.arange(len(made), dtype=np.int32), [len(each) for each in made])
    order = np.argsort(arrows, kind="stable")
    arrows, letters = arrows[order], letters[order]
    begins = np.flatnonzero(np.diff(arrows, prepend=arrows[:1] + np.uint32(1)))
    if len(begins) > MOST_EDGES:
        raise TooManyStates(f"its automaton has more than {MOST_EDGES} edges: give a simpler pattern")
    sets: dict[bytes, int] = {}  # the label of each set of classes
    bounds = [*begins.tolist(), len(arrows)]
    labels = [sets.setdefault(letters[begin:end].tobytes(), len(sets)) for begin, end in pairwise(bounds)]
    sizes = np.bincount(class_of)
    bits = np.zeros((len(sets), 32 * label_words(len(sizes))), np.bool_)
    for label, of_label in enumerate(sets):
        bits[label, np.frombuffer(of_label, np.int32)] = True
    sources, targets = np.divmod(arrows[begins].astype(np.int64), states)
    words = np.packbits(bits, axis=1, bitorder="little").view(np.int32)
    edges = [
        *_grouped(sources, states, targets),
        *_grouped(targets, states, sources),
        *_grouped(np.array(labels, np.int32), len(sets), sources, targets),
    ]
    return packed_tables([each.astype(np.int32).tobytes() for each in (class_of, sizes, accepting, words, *edges)])


def _grouped(keys: Numbers, count: int, *others: States) -> list[Numbers]:
    """Return where the edges of each of `count` keys begin, and `others` in the order of the keys."""
    order = np.argsort(keys, kind="stable")
    return [np.searchsorted(keys[order], np.arange(count + 1)), *[each[order] for each in others]]


def _functions(rows: Sequence[Row], pieces: Sequence[bytes], forbidden: Sequence[int]) -> tuple[list[Ints], Ints]:
    """Return the functions of ids and of their beginnings, and for each id the index of its function; -1 if it has none.

    A function has two rows: states, and the next state of each; states from which the bytes lead nowhere are left out.
    """
    table = np.full((256, len(rows)), -1, np.int32)
    for state, row in enumerate(rows):
        for low, high, to in row:
            table[low : high + 1, state] = to
    classes: dict[bytes, int] = {}
    byte_class = np.array([classes.setdefault(column.tobytes(), byte) for byte, column in enumerate(table)], np.int32)
    text = byte_class[np.frombuffer(b"".join(pieces), np.uint8)]
    lengths = np.fromiter(map(len, pieces), np.int32, len(pieces))
    offsets = np.cumsum(lengths) - lengths
    functions = [np.tile(np.arange(len(rows), dtype=np.int32), (2, 1))]
    known = {0: 0}  # by hash, which takes less memory than the function
    entries, place = 0, 0
    function_of = np.where(lengths > 0, 0, -1).astype(np.int32)
    function_of[list(forbidden)] = -1
    while len(active := np.flatnonzero((lengths > place) & (function_of >= 0))):
        steps, which = np.unique(function_of[active] * len(table) + text[offsets[active] + place], return_inverse=True)
        extended = np.zeros(len(steps), np.int32)
        for index, step in enumerate(steps):
            states, following = functions[step // len(table)]
            following = table[step % len(table)].take(following)
            kept = following >= 0
            function = np.stack([states[kept], following[kept]])
            extended[index] = number = known.setdefault(hash(function.tobytes()), len(known)) if function.size else -1
            if number == len(functions):
                functions.append(function)
                entries += function.shape[1] + 1
                if entries > MOST_ENTRIES:
                    raise TooManyStates(f"its automaton has more than {MOST_ENTRIES} moves: give a simpler pattern")
        function_of[active] = extended[which]
        place += 1
    return functions, function_of


def _reached(starts: Numbers, before: States, after: States, states: int) -> npt.NDArray[np.bool_]:
    """Return which states can be reached from `starts` by arrows between states, including them."""
    bounds, following = _grouped(before, states, after)
    found = np.zeros(states, np.bool_)
    while len(starts):
        found[starts] = True
        reached = np.unique(following[ranges(bounds[starts], bounds[starts + 1] - bounds[starts])])
        starts = reached[~found[reached]]
    return found

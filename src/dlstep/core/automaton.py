"""Deterministic automata over token ids, which define the languages of constrained answers.

An automaton reads classes of ids rather than ids: ids with the same move in every state share a
class. A tokenizer has 100,000 ids, but they form only a few thousand classes. So the table of moves
fits into memory, and a bitmap of classes describes a set of allowed ids.
"""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from weakref import WeakValueDictionary

from .errors import DlstepError

DEAD = -1
ByteMoves = Sequence[Mapping[int, int]]  # per state: the next state by byte; other bytes lead nowhere


class TooLarge(DlstepError):
    """Error for an automaton that exceeds the limits on its size."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Automaton:
    """A deterministic automaton over token ids. Its first state is 0.

    `source` describes the language in messages and traces. `digest` identifies the automaton: equal
    digests mean equal tables. Only these two fields are compared and written to traces.

    `classes` has the class of each id of the vocabulary, packed as native 32-bit integers; ids of
    class 0 occur in no string of the language. `moves[state][class]` is the next state, or DEAD. An
    accepting state can be reached from every state. `accepting` is the bitmap of accepting states.
    """

    source: str
    digest: bytes = field(repr=False)
    classes: bytes = field(default=b"", compare=False, repr=False)
    moves: tuple[tuple[int, ...], ...] = field(default=(), compare=False, repr=False)
    accepting: int = field(default=0, compare=False, repr=False)

    @classmethod
    def of(cls, source: str, classes: Sequence[int], moves: tuple[tuple[int, ...], ...], accepting: int) -> "Automaton":
        """Return the automaton with these tables: the same object while an equal one is in use."""
        packed = array("i", classes).tobytes()
        table = blake2b(packed, digest_size=16)
        for row in moves:
            table.update(array("i", row).tobytes())
        table.update(repr((len(moves), accepting)).encode())
        made = cls(source, table.digest(), packed, moves, accepting)
        # Equal tables may have another source, such as an equivalent regex: then both automata are kept.
        return _KNOWN.setdefault((source, made.digest), made)

    @property
    def loaded(self) -> "Automaton":
        """The automaton with its tables; an automaton that was read from a trace has none.

        Raises DlstepError if this process has not compiled the automaton.
        """
        if self.moves:
            return self
        if (known := _KNOWN.get((self.source, self.digest))) is None:
            raise DlstepError(f"the constraint {self.source} is recorded without its tables: compile it first")
        return known

    @property
    def vocab_size(self) -> int:
        """The number of ids in the vocabulary."""
        return len(self.classes) // 4

    @property
    def class_of(self) -> Sequence[int]:
        """The class of each id."""
        return memoryview(self.classes).cast("i")

    def accepts(self, tokens: Sequence[int]) -> bool:
        """Return whether this string of ids is in the language."""
        state, class_of = 0, self.class_of
        for token in tokens:
            state = self.moves[state][class_of[token]]
            if state == DEAD:
                return False
        return bool(self.accepting >> state & 1)


# Automata of this process by source and digest, so that traces need not store their tables.
_KNOWN: "WeakValueDictionary[tuple[str, bytes], Automaton]" = WeakValueDictionary()


_BITS = tuple(tuple(bit for bit in range(8) if byte >> bit & 1) for byte in range(256))


def members(bitmap: int) -> list[int]:
    """Return the numbers whose bits are set, ascending."""
    packed = bitmap.to_bytes(-(-bitmap.bit_length() // 8), "little")
    return [8 * place + bit for place, byte in enumerate(packed) if byte for bit in _BITS[byte]]


def token_automaton(
    source: str,
    moves: ByteMoves,
    accepting: Sequence[int],
    pieces: Sequence[bytes],
    forbidden: Sequence[int] = (),
    *,
    start: int = 0,
    max_entries: int = 1 << 22,
) -> Automaton:
    """Return the automaton over token ids that accepts the same texts as an automaton over bytes.

    Args:
        source: Description of the language for messages and traces.
        moves: The byte automaton; `moves[state][byte]` is its next state.
        accepting: The accepting states of the byte automaton.
        pieces: The bytes of each token id. Ids without bytes occur in no string of the language.
        forbidden: Other ids that occur in no string of the language, such as the mask id.
        start: The first state of the byte automaton.
        max_entries: Limit on the entries of the table of moves (states times classes).

    Raises:
        ValueError: No string of ids is in the language.
        TooLarge: The table of moves would have more than `max_entries` entries.
    """
    functions, function_of = _functions(moves, pieces, frozenset(forbidden), max_entries)
    table: dict[int, list[int]] = {}
    reached = {start}  # by whole ids: other states of the byte automaton would only enlarge the table
    while waiting := sorted(reached - table.keys()):
        for state in waiting:
            table[state] = [function.get(state, DEAD) for function in functions]
            reached.update(table[state])
        reached.discard(DEAD)
        if len(reached) * len(functions) > max_entries:
            raise TooLarge(f"{source} needs an automaton of more than {max_entries} moves: give a simpler pattern")
    live = _co_reachable(table, [state for state in accepting if state in table])
    if start not in live:
        raise ValueError(f"{source} matches no text that the tokenizer can spell: give another pattern")
    kept = [start, *sorted(live - {start})]
    number = {state: index for index, state in enumerate(kept)} | {DEAD: DEAD}
    # Functions that differ only in states from which no accepting state can be reached are one class.
    classes: dict[tuple[int, ...], int] = {(DEAD,) * len(kept): 0}
    rows = zip(*[table[state] for state in kept], strict=True)
    class_of_function = [classes.setdefault(tuple([number.get(state, DEAD) for state in row]), len(classes)) for row in rows]
    class_of_function.append(0)  # ids without bytes
    class_of = [class_of_function[function] for function in function_of]
    marks = sum(1 << number[state] for state in live.intersection(accepting))
    return Automaton.of(source, class_of, tuple(zip(*classes, strict=True)), marks)


def _functions(
    moves: ByteMoves, pieces: Sequence[bytes], forbidden: frozenset[int], max_entries: int
) -> tuple[list[dict[int, int]], list[int]]:
    """Return the distinct functions of ids, and for each id the index of its function; -1 if it has none.

    The function of an id maps the state before its bytes to the state after them; states from which
    the bytes lead nowhere are left out. Many ids, and many prefixes of ids, share a function, so each
    function is extended by each class of bytes only once.
    """
    to_class, identity = _byte_classes(moves), {state: state for state in range(len(moves))}
    functions, numbers = [identity], {tuple(identity.items()): 0}
    extended: dict[tuple[int, int], int] = {}
    entries, function_of = 0, list[int]()
    for token, piece in enumerate(pieces):
        number = 0 if piece and token not in forbidden else -1
        for byte in piece.translate(to_class) if number == 0 else b"":
            after = extended.get((number, byte))
            if after is None:
                pairs = [(state, moves[to][byte]) for state, to in functions[number].items() if byte in moves[to]]
                after = extended[number, byte] = numbers.setdefault(tuple(pairs), len(numbers))
                if after == len(functions):
                    functions.append(dict(pairs))
                    entries += len(pairs) + 1
                    if entries > max_entries:
                        raise TooLarge(f"an automaton of more than {max_entries} moves: give a simpler pattern")
            number = after
        function_of.append(number)
    # Drop functions that belong to the first bytes of ids but to no whole id: their classes would be empty.
    used = {number: index for index, number in enumerate(sorted({*function_of} - {-1}))} | {-1: -1}
    return [functions[number] for number in used if number >= 0], [used[number] for number in function_of]


def _byte_classes(moves: ByteMoves) -> bytes:
    """Return, for each byte, the lowest byte that has the same move in every state."""
    columns = zip(*[[row.get(byte, DEAD) for byte in range(256)] for row in moves], strict=True)
    first: dict[tuple[int, ...], int] = {}
    return bytes([first.setdefault(column, byte) for byte, column in enumerate(columns)])


def _co_reachable(table: Mapping[int, Sequence[int]], accepting: Sequence[int]) -> set[int]:
    """Return the states from which an accepting state can be reached."""
    before: dict[int, set[int]] = {state: set() for state in table}
    for state, row in table.items():
        for after in {*row} - {DEAD}:
            before[after].add(state)
    live, stack = set(accepting), list(accepting)
    while stack:
        fresh = before[stack.pop()] - live
        live |= fresh
        stack += fresh
    return live

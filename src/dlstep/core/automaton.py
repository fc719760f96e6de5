"""Deterministic automata over token ids: the languages that constrained answers are drawn from.

An automaton reads classes of ids, not ids: ids that move alike in every state share a class. The
ids of a tokenizer number 100,000, their classes a few thousand, so a move is a table lookup and a
set of allowed ids is a bitmap of classes.
"""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from weakref import WeakValueDictionary

from .errors import DlstepError

DEAD = -1
ByteMoves = Sequence[Mapping[int, int]]  # per state: the next state by byte; a missing byte leads nowhere


class TooLarge(DlstepError):
    """An automaton over the limits."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Automaton:
    """A deterministic automaton over token ids. Its first state is 0.

    `source` describes the language in text, and `digest` identifies the automaton: equal digests
    mean equal tables. Only these two fields are compared and written to traces.

    `classes` has the class of each id of the vocabulary, packed as native 32-bit integers; ids of
    class 0 are in no string of the language. `moves[state][class]` is the next state, or DEAD. From
    every state, an accepting one can be reached. `accepting` is the bitmap of accepting states.
    """

    source: str
    digest: bytes = field(repr=False)
    classes: bytes = field(default=b"", compare=False, repr=False)
    moves: tuple[tuple[int, ...], ...] = field(default=(), compare=False, repr=False)
    accepting: int = field(default=0, compare=False, repr=False)

    @classmethod
    def of(cls, source: str, classes: Sequence[int], moves: tuple[tuple[int, ...], ...], accepting: int) -> "Automaton":
        """Return the automaton with these tables."""
        packed = array("i", classes).tobytes()
        table = blake2b(packed, digest_size=16)
        for row in moves:
            table.update(array("i", row).tobytes())
        table.update(repr((len(moves), accepting)).encode())
        made = cls(source, table.digest(), packed, moves, accepting)
        return _KNOWN.setdefault(made.digest, made) if _KNOWN.get(made.digest, made) == made else made

    @property
    def loaded(self) -> "Automaton":
        """The automaton with its tables, which one that was read from a trace lacks.

        Raises DlstepError if this process has not compiled the source.
        """
        if self.moves:
            return self
        if (known := _KNOWN.get(self.digest)) is None:
            raise DlstepError(f"the constraint {self.source} is recorded without its tables: compile it first")
        return known

    @property
    def vocab_size(self) -> int:
        """The number of ids that the automaton knows."""
        return len(self.classes) // 4

    @property
    def class_of(self) -> Sequence[int]:
        """The class of each id."""
        return memoryview(self.classes).cast("i")

    def accepts(self, tokens: Sequence[int]) -> bool:
        """Return whether the language has this string of ids."""
        state, class_of = 0, self.class_of
        for token in tokens:
            state = self.moves[state][class_of[token]]
            if state == DEAD:
                return False
        return bool(self.accepting >> state & 1)


# Automata of this process by digest, so that a trace need not hold their tables.
_KNOWN: "WeakValueDictionary[bytes, Automaton]" = WeakValueDictionary()


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
    """Return the automaton over token ids for one over bytes.

    Args:
        source: a description of the language, which messages and traces show.
        moves: the byte automaton; `moves[state][byte]` is its next state.
        accepting: its accepting states.
        pieces: the bytes of each token id. Ids without bytes are in no string of the language.
        forbidden: further ids that are in none, such as the mask id.
        start: its first state.
        max_entries: the most entries of the table of moves, states times classes.

    Raises:
        ValueError: no string of ids is in the language.
        TooLarge: the table of moves would be larger than `max_entries`.
    """
    functions, function_of = _functions(moves, pieces, frozenset(forbidden), max_entries)
    table: dict[int, list[int]] = {}
    reached = {start}
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
    """Return the distinct functions of states that ids are, and the number of that of each id; -1 for none.

    The bytes of an id, one after the other, are a function from the state before to the state after
    them; states without an entry have no such move. Most ids of a tokenizer are one of few
    functions, so each function is extended by each class of bytes only once.
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
    # Only whole ids are letters: functions of mere beginnings of ids would be classes without ids.
    used = {number: index for index, number in enumerate(sorted({*function_of} - {-1}))} | {-1: -1}
    return [functions[number] for number in used if number >= 0], [used[number] for number in function_of]


def _byte_classes(moves: ByteMoves) -> bytes:
    """Return, for each byte, the first byte that moves alike in every state."""
    columns = zip(*[[row.get(byte, DEAD) for byte in range(256)] for row in moves], strict=True)
    first: dict[tuple[int, ...], int] = {}
    return bytes([first.setdefault(column, byte) for byte, column in enumerate(columns)])


def _co_reachable(table: Mapping[int, Sequence[int]], accepting: Sequence[int]) -> set[int]:
    """Return the states from which an accepting one can be reached."""
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

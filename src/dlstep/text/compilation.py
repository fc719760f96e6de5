"""Compile regexes, choices and JSON schemas to tables: the jobs of the process with limited time and memory.

Other processes do not import this module, so they start without NumPy.
"""

import json
import re
from collections.abc import Sequence
from functools import lru_cache

from ..core.automaton import MOST_STATES, TooLarge
from ..core.checks import short
from .constraints import Marks
from .json_regex import FIRST
from .json_schema import is_any_object, schema_regex
from .token_automaton import token_automaton

LONGEST_REGEX = 1 << 16  # characters
LONGEST_CHOICES = 1 << 20  # bytes of all choices
END = 256  # the id after those of all bytes
LAST = "\U0010ffff"  # a noncharacter
# Constructs that a finite automaton, or a match of the whole answer, cannot have. Other escapes, and classes, are skipped.
CONSTRUCTS = re.compile(
    r"(?P<look_around>\(\?<?[=!])|(?P<back_reference>\\[1-9k]|\(\?P=)|(?P<boundary>\\[bB<>])|(?P<atomic_group>\(\?>)"
    r"|(?P<inner_anchor>[\^$]|\\[AzZG])|\\.|\[\^?\]?(?:\\.|\[[^\]]*\]|[^\]\\])*\]",
    re.DOTALL,
)
DEPTH = 4  # nested objects and arrays
SPACE = b" \n"
DIGITS = "0123456789"
HEX = b"0123456789abcdefABCDEF"
# Bytes of UTF-8: the first byte, the bytes that may follow it, and how many further bytes come after that one.
UTF8 = (
    (range(0xC2, 0xE0), range(0x80, 0xC0), 0),
    (range(0xE0, 0xE1), range(0xA0, 0xC0), 1),
    (range(0xE1, 0xED), range(0x80, 0xC0), 1),
    (range(0xED, 0xEE), range(0x80, 0xA0), 1),
    (range(0xEE, 0xF0), range(0x80, 0xC0), 1),
    (range(0xF0, 0xF1), range(0x90, 0xC0), 2),
    (range(0xF1, 0xF4), range(0x80, 0xC0), 2),
    (range(0xF4, 0xF5), range(0x80, 0x90), 2),
)
# For each place in a number, the place after the next byte.
NUMBER = {
    "minus": {"0": "zero", "123456789": "integer"},
    "zero": {".": "point", "eE": "exponent"},
    "integer": {DIGITS: "integer", ".": "point", "eE": "exponent"},
    "point": {DIGITS: "fraction"},
    "fraction": {DIGITS: "fraction", "eE": "exponent"},
    "exponent": {"+-": "sign", DIGITS: "power"},
    "sign": {DIGITS: "power"},
    "power": {DIGITS: "power"},
}
COMPLETE = ("zero", "integer", "fraction", "power")  # places where a number may end
State = tuple[str, str]  # open brackets, outermost first; place in the innermost value
Moves = dict[int, State]
ByteAutomaton = tuple[list[dict[int, int]], list[int], int]  # moves, accepting states, first state


def tables(kind: str, text: str, pieces: Sequence[bytes], forbidden: Sequence[int], marks: Marks = None) -> bytes:
    """Return the tables of the automaton of a constraint: a job of the process with limited time and memory."""
    source = f"{kind}={short(text)}"
    try:
        moves, accepting, start = _choice_moves(json.loads(text)) if kind == "choice" else _regex_moves(kind, text, source)
        if marks is not None:
            moves, start = _after_text(moves, start, *[mark.encode() for mark in marks]), len(moves)
        return token_automaton(source, moves, accepting, pieces, forbidden, start=start).tables
    except TooLarge as error:
        raise ValueError(f"{source} cannot be compiled: {error}") from error


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


def _choice_moves(choices: list[str]) -> ByteAutomaton:
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
        if len(moves) > MOST_STATES:
            raise TooLarge(f"more than {MOST_STATES} bytes, equal beginnings counted once: give fewer or shorter choices")
        accepting.append(state)
    return moves, accepting, 0


def _regex_moves(kind: str, text: str, source: str) -> ByteAutomaton:
    """Return the byte automaton of a regex or a JSON schema."""
    if len(text) > LONGEST_REGEX:
        raise ValueError(f"{kind} has {len(text)} characters, and at most {LONGEST_REGEX} are compiled")
    if kind == "json_schema":
        schema = json.loads(text)
        regex = schema_regex(schema)  # also checks a schema that needs no regex
        if is_any_object(schema):
            return json_object_moves()
        return byte_automaton(regex, source, FIRST)
    # An answer matches the whole pattern, so anchors around it change nothing.
    regex = re.sub(r"^(\(\?[a-zA-Z]+\))?(?:\^|\\A)", r"\1", text)
    regex = re.sub(r"(?<!\\)((?:\\\\)*)(?:\$|\\[zZ])\Z", r"\1", regex)
    for found in CONSTRUCTS.finditer(regex):
        if (name := found.lastgroup) == "inner_anchor":
            raise ValueError(f"{source} has {found[0]} inside the pattern, which always matches a whole answer: leave it out")
        if name is not None:
            construct = name.replace("_", "-")
            raise ValueError(f"{source} has the {construct} {found[0]}, which is not supported: write the pattern without it")
    return byte_automaton(regex, source)


def byte_automaton(regex: str, source: str, first: str = "") -> ByteAutomaton:
    """Return the byte automaton of a regex.

    outlines-core 0.2 drops moves after a match that could be continued, such as the second `a` of
    `(ab)*`. With the character LAST after the pattern, no match ends earlier. A state is accepting if
    LAST leads from it to the end.

    outlines-core also builds, and discards, an automaton that searches for the pattern anywhere in a
    text. It may be exponentially larger, since each character that can begin a match may begin
    another one inside it. With `first`, a character that no match contains, before the pattern, no
    match can begin inside another.
    """
    from outlines_core import Index, Vocabulary

    try:
        index = Index(f"{first}(?:{regex}){LAST}", Vocabulary(END, {bytes([byte]): [byte] for byte in range(END)}))
    except ValueError as error:
        raise ValueError(f"{source} cannot be compiled: {_reason(regex, str(error))}") from error
    moves, ended = index.get_transitions(), index.get_final_states()
    number = {state: place for place, state in enumerate({**moves, **dict.fromkeys(ended)})}

    def ends(state: int) -> bool:
        for byte in LAST.encode():
            if (after := moves.get(state, {}).get(byte)) is None:
                return False
            state = after
        return state in ended

    rows = [
        {byte: number[after] for byte, after in moves.get(state, {}).items() if byte != END and after in number}
        for state in number
    ]
    accepting = [place for state, place in number.items() if ends(state)]
    start = index.get_initial_state()
    for byte in first.encode():
        start = moves[start][byte]
    return rows, accepting, number[start]


def _reason(pattern: str, message: str) -> str:
    """Return why outlines-core rejects a pattern, in terms of the pattern."""
    import regex

    if "incompatible" in message:
        return "it matches no text"
    try:
        regex.compile(pattern)
    except regex.error as error:
        return f"it is not a valid regular expression: {error}"
    return "it is too large, or its syntax is not that of Rust's regex crate"


@lru_cache
def json_object_moves(depth: int = DEPTH) -> tuple[list[dict[int, int]], list[int], int]:
    """Return the byte automaton of JSON objects of any shape, nested to a limited depth.

    A regex for it would repeat the grammar of values at each depth, which takes minutes to compile. Here
    a state is the stack of open brackets and the place inside the innermost value, so the number of
    states doubles with each level. Between the parts of a text, one space or line break is allowed.
    """
    first, last = ("", "object"), ("", "end")
    states, moves = [first, last], list[dict[int, int]]()
    number = {first: 0, last: 1}
    for state in states:  # grows while it is read
        row: dict[int, int] = {}
        for byte, after in _moves(*state, depth).items():
            if after not in number:
                number[after] = len(states)
                states.append(after)
            row[byte] = number[after]
        moves.append(row)
    return moves, [1], 0


def _to(letters: bytes | range, state: State) -> Moves:
    return dict.fromkeys(letters, state)


def _moves(stack: str, place: str, depth: int) -> Moves:
    """Return the state after each byte that may follow."""
    match place:
        case "object":  # the whole text
            return {ord("{"): ("{", "key or end")}
        case "key or end" | "key or end!":
            return {ord('"'): (stack, "key:"), ord("}"): _closed(stack)} | _space(stack, place)
        case "key" | "key!":
            return {ord('"'): (stack, "key:")} | _space(stack, place)
        case "colon" | "colon!":
            return {ord(":"): (stack, "value")} | _space(stack, place)
        case "value or end" | "value or end!":
            return _value(stack, depth) | {ord("]"): _closed(stack)} | _space(stack, place)
        case "value" | "value!":
            return _value(stack, depth) | _space(stack, place)
        case "after" | "after!":
            return _after(stack) | _space(stack, place)
        case "end":
            return {}
        case _:
            return _inside(stack, place)


def _space(stack: str, place: str) -> Moves:
    """Return the moves by white space: at most one character of it may separate two parts."""
    return {} if place.endswith("!") else _to(SPACE, (stack, f"{place}!"))


def _closed(stack: str) -> State:
    return (stack[:-1], "after") if len(stack) > 1 else ("", "end")


def _after(stack: str) -> Moves:
    """Return the moves after a value inside an object or array, except those by white space."""
    if stack.endswith("{"):
        return {ord(","): (stack, "key"), ord("}"): _closed(stack)}
    return {ord(","): (stack, "value"), ord("]"): _closed(stack)}


def _value(stack: str, depth: int) -> Moves:
    """Return the moves by the first byte of a value."""
    moves = {ord('"'): (stack, "text:"), ord("-"): (stack, "minus"), ord("0"): (stack, "zero")}
    moves |= _to(b"123456789", (stack, "integer"))
    moves |= {word[0]: (stack, f"word {word[1:].decode()}") for word in (b"true", b"false", b"null")}
    if len(stack) < depth:
        moves |= {ord("{"): (stack + "{", "key or end"), ord("["): (stack + "[", "value or end")}
    return moves


def _inside(stack: str, place: str) -> Moves:
    """Return the moves inside a string, a number or a word."""
    kind, colon, rest = place.partition(":")
    if colon:
        return _string(stack, kind, rest)
    if place.startswith("word "):
        letter, rest = place[5], place[6:]
        return {ord(letter): (stack, f"word {rest}" if rest else "after")}
    moves = {ord(letter): (stack, after) for letters, after in NUMBER[place].items() for letter in letters}
    return moves | _after(stack) | _to(SPACE, (stack, "after!")) if place in COMPLETE else moves


def _string(stack: str, kind: str, place: str) -> Moves:
    """Return the moves inside a string; `kind` is "key" or "text"."""
    plain = (stack, f"{kind}:")
    if place == "":
        moves = _to(range(0x20, 0x80), plain)
        for index, (firsts, _, _) in enumerate(UTF8):
            moves |= _to(firsts, (stack, f"{kind}:utf8 {index}"))
        return moves | {0x22: (stack, "colon" if kind == "key" else "after"), 0x5C: (stack, f"{kind}:escape")}
    if place == "escape":
        return _to(b'"\\/bfnrt', plain) | {ord("u"): (stack, f"{kind}:hex 4")}
    word, _, count = place.partition(" ")
    if word == "utf8":
        _, seconds, more = UTF8[int(count)]
        return _to(seconds, (stack, f"{kind}:more {more}") if more else plain)
    left = (stack, f"{kind}:{word} {int(count) - 1}") if int(count) > 1 else plain
    return _to(HEX if word == "hex" else range(0x80, 0xC0), left)

"""The byte automaton of JSON objects of any shape, nested to a limited depth.

A regex for it would repeat the grammar of values at each depth, which takes minutes to compile. Here
a state is the stack of open brackets and the place inside the innermost value, so the number of
states doubles with each level. Between the parts of a text, one space or line break is allowed.
"""

from functools import lru_cache

DEPTH = 4  # nested objects and arrays
SPACE = b" \n"
DIGITS = b"0123456789"
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
State = tuple[str, str]  # open brackets, outermost first; place in the innermost value
Moves = dict[int, State]


@lru_cache
def json_object_moves(depth: int = DEPTH) -> tuple[list[dict[int, int]], list[int], int]:
    """Return moves, accepting states and first state of the automaton of JSON objects."""
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
    """Return the move by white space, of which one letter may stand between two parts."""
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
    moves |= _to(DIGITS[1:], (stack, "integer"))
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
    ends = _after(stack) | _to(SPACE, (stack, "after!"))
    match place:
        case "minus":
            return {ord("0"): (stack, "zero")} | _to(DIGITS[1:], (stack, "integer"))
        case "zero":
            return {ord("."): (stack, "point")} | _to(b"eE", (stack, "exponent")) | ends
        case "integer":
            return _to(DIGITS, (stack, "integer")) | {ord("."): (stack, "point")} | _to(b"eE", (stack, "exponent")) | ends
        case "point":
            return _to(DIGITS, (stack, "fraction"))
        case "fraction":
            return _to(DIGITS, (stack, "fraction")) | _to(b"eE", (stack, "exponent")) | ends
        case "exponent":
            return _to(b"+-", (stack, "sign")) | _to(DIGITS, (stack, "power"))
        case "sign":
            return _to(DIGITS, (stack, "power"))
        case _:
            return _to(DIGITS, (stack, "power")) | ends


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

"""Translate grammars in GBNF (`root ::= ...`) and in a part of the syntax of Lark (`start: ...`) to regexes.

A rule that begins or ends with itself becomes a repetition. Other recursion has no finite automaton, so
its depth is limited.
"""

import ast
import re
from collections import defaultdict

from . import dfa
from .dfa import TooManyStates

DEPTHS = (6, 4, 3, 2, 1)  # tried in this order until an automaton is small enough
LONGEST = 1 << 18  # characters of a regex
HEAD = re.compile(r"^[ \t]*[?!]?([A-Za-z_][\w-]*)(?:\.[0-9]+)?\s*(?:::=|:)", re.MULTILINE)
SYNTAX = re.compile(
    r"""\s+|\#.*|//.*|->\s*\w+|(?P<text>"(\\.|[^"\\\n])*"i?)|(?P<regex>/(\\.|[^/\\\n])+/[ims]*)|(?P<name>[A-Za-z_][\w-]*)
    |(?P<sign>[|().?*+]|\{[0-9]+(,[0-9]*)?\}|\[\^?(\\.|[^]\\\n])*\])|(?P<other>\S)""",
    re.VERBOSE,
)
COUNT = re.compile(r"[?*+{]")
SIGNS = {"(": "(?:", ".": "(?s:.)"}
NOTHING = r"[^\s\S]"


def grammar_regex(text: str, depth: int) -> str:
    """Return the regex of the texts that a grammar derives with at most `depth` occurrences of a rule inside one another.

    Raises:
        ValueError: The grammar is invalid; the message names the rule or the line.
        TooManyStates: It is too large.
    """
    rules = _rules(text)

    def rule(name: str, around: tuple[str, ...]) -> str:
        if name not in rules:
            raise ValueError(f"grammar: the rule {name}, used in the rule {around[-1]}, is not defined")
        if around.count(name) == depth:
            return NOTHING
        found = defaultdict[tuple[bool, bool], list[str]](list)  # alternatives, by whether they begin and end with the rule
        for parts in rules[name]:
            first = parts[:1] == [(True, name)] and not (parts[1:] and COUNT.match(parts[1][1]))
            last = parts[first:][-1:] == [(True, name)]
            texts = [rule(part, (*around, name)) if named else part for named, part in parts[first : len(parts) - last]]
            found[first, last].append("".join(texts))
        keys = (False, True), (False, False), (True, False), (True, True)
        before, once, after, between = [f"(?:{'|'.join(found.get(key, [NOTHING]))})" for key in keys]
        unit = f"(?:{before}*{once}{after}*)"
        whole = f"(?:{unit}(?:{between}{unit})*)" if (True, True) in found else unit
        if len(whole) > LONGEST:
            raise TooManyStates(f"grammar: the rule {name} is too large: make it smaller")
        return whole

    first = next((name for name in ("root", "start") if name in rules), None)
    if first is None:
        raise ValueError("grammar has no rule `root ::= ...` or `start: ...`: add one")
    return rule(first, ())


def _rules(text: str) -> dict[str, list[list[tuple[bool, str]]]]:
    """Return the alternatives of each rule: for each part whether it names a rule, and the name or a part of a regex."""
    heads, rules = [*HEAD.finditer(text)], dict[str, list[list[tuple[bool, str]]]]()
    begins, ends = [0, *[head.end() for head in heads]], [*[head.start() for head in heads], len(text)]
    for name, begin, end in zip(["", *[head[1] for head in heads]], begins, ends, strict=True):
        alternatives, level = rules.setdefault(name, []), 0
        alternatives.append([])
        for found in SYNTAX.finditer(text, begin, end):
            kind, part = found.lastgroup, found[0]
            line = text.count("\n", 0, found.start()) + 1
            where = f"grammar, line {line}: {part[:80]}"
            level += (part == "(") - (part == ")")
            if not name and kind:
                raise ValueError(f"{where} is before the first rule: remove it")
            if part == "|" and not level:
                alternatives.append([])
            elif kind:
                try:
                    alternatives[-1].append((kind == "name", _regex(kind, part)))
                except (SyntaxError, ValueError) as error:
                    raise ValueError(f"{where} in the rule {name} is not supported: {error}") from error
        if level:
            raise ValueError(f"grammar: parentheses of the rule {name} do not match")
    return rules


def _regex(kind: str, part: str) -> str:
    """Return a part of a rule as a part of a regex; the name of a rule unchanged."""
    match kind:
        case "text":
            return f"(?{'i' * part.endswith('i')}:{re.escape(ast.literal_eval(part.rstrip('i')))})"
        case "regex":
            body, _, flags = part[1:].rpartition("/")
            dfa.regex(part := f"(?{flags}:{body})")  # raises ValueError for what is not supported
            return part
        case "other":
            raise ValueError("leave it out")
        case _:
            return SIGNS.get(part, part)

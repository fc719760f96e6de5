"""Regular expressions that stand in a file: matched for a limited time, because some take longer than anyone waits."""

import re
from dataclasses import dataclass, field
from math import prod
from time import perf_counter

import regex

from .reading import Refused

LONGEST_PATTERN = 20_000  # characters
MOST_REPEATS = 10_000  # product of the counts in {}: they are written out when a pattern is compiled
MATCH_SECONDS = 5.0  # for all matches of one file together


@dataclass(slots=True)
class Patterns:
    """The patterns of the file `owner`, and how long they have been matched so far."""

    owner: str
    spent: float = 0.0
    compiled: dict[str, "regex.Pattern[str]"] = field(default_factory=dict)

    def check(self, option: str, pattern: str) -> None:
        """Raise ValueError for a pattern that Python's `re` does not take, or that is too large to be compiled."""
        counts = [
            max(int(number) for number in found if number) for found in re.findall(r"\{(\d+)?,?(\d+)?\}", pattern) if any(found)
        ]
        if len(pattern) > LONGEST_PATTERN or prod(counts) > MOST_REPEATS:
            raise ValueError(
                f"{self.owner}: {option}={pattern[:80]!r} is too large a pattern, beyond {LONGEST_PATTERN} characters or "
                f"{MOST_REPEATS} repetitions: list the names of the modules instead"
            )
        with Refused(f"{self.owner}: {option}={pattern!r} is no regular expression"):
            re.compile(pattern)
            self.compiled[pattern] = regex.compile(pattern, regex.VERSION0)

    def fullmatch(self, option: str, pattern: str, name: str) -> "regex.Match[str] | None":
        """The match of a whole name. Raises ValueError once the patterns of the file have taken too long."""
        if pattern not in self.compiled:
            self.check(option, pattern)
        begun = perf_counter()
        try:
            return self.compiled[pattern].fullmatch(name, timeout=max(MATCH_SECONDS - self.spent, 1e-3))
        except TimeoutError:
            raise ValueError(
                f"{self.owner}: {option}={pattern!r} takes more than {MATCH_SECONDS:g} seconds to match the names of the "
                "modules: list the names instead"
            ) from None
        finally:
            self.spent += perf_counter() - begun

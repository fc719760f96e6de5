"""Match regexes from files for a limited time, because matching can take exponential time."""

import re
from dataclasses import dataclass, field
from math import prod
from time import perf_counter

import regex

from .reading import RefuseErrors

LONGEST_PATTERN = 20_000  # characters
MOST_REPEATS = 10_000  # product of the counts in {}, which compilation expands
MATCH_SECONDS = 5.0  # for all matches of one file in total


@dataclass(slots=True)
class Patterns:
    """The regexes of the file `owner`, and the total time spent on matching them."""

    owner: str
    spent: float = 0.0
    compiled: dict[str, "regex.Pattern[str]"] = field(default_factory=dict)

    def check(self, option: str, pattern: str) -> None:
        """Raise ValueError for a regex that `re` rejects, or that is too large to compile."""
        counts = [
            max(int(number) for number in found if number) for found in re.findall(r"\{(\d+)?,?(\d+)?\}", pattern) if any(found)
        ]
        if len(pattern) > LONGEST_PATTERN or prod(counts) > MOST_REPEATS:
            raise ValueError(
                f"{self.owner}: the pattern {option}={pattern[:80]!r} exceeds {LONGEST_PATTERN} characters or {MOST_REPEATS} "
                "repetitions: list the module names instead"
            )
        with RefuseErrors(f"{self.owner}: {option}={pattern!r} is no regular expression"):
            re.compile(pattern)
            self.compiled[pattern] = regex.compile(pattern, regex.VERSION0)

    def fullmatch(self, option: str, pattern: str, name: str) -> "regex.Match[str] | None":
        """Match a whole name. Raises ValueError once the file's regexes have taken too long."""
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

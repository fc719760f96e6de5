"""Groups of positions: the attention rule that all strategies share.

Within a forward pass, a query at position i sees a key at position j if and only if

    j < end  and  group(j) <= group(i)  and  (full layer  or  j > start(group(i)) - window)
    group(p) = 0 if p < origin else 1 + (p - origin) // size
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Grid:
    """A partition of the positions of a request into groups."""

    origin: int
    """Positions below this are group 0."""
    size: int
    """Positions of each later group."""

    def group(self, position: int) -> int:
        """Return the number of the group that holds `position`.

        Args:
            position: A position, counted from the prompt's first token.
        """
        return 0 if position < self.origin else 1 + (position - self.origin) // self.size

    def start(self, position: int) -> int:
        """Return the first position of the group that holds `position`.

        Args:
            position: A position, counted from the prompt's first token.
        """
        return 0 if position < self.origin else position - (position - self.origin) % self.size

    def end(self, position: int) -> int:
        """Return the first position after the group that holds `position`.

        Args:
            position: A position, counted from the prompt's first token.
        """
        if position < self.origin:
            return self.origin
        return position - (position - self.origin) % self.size + self.size

    def cover(self, length: int) -> int:
        """Return the first group boundary at or after `length`, up to which a pass may feed.

        Args:
            length: A number of positions.
        """
        return self.end(length - 1) if length else 0

"""Groups of positions: the one attention rule of all strategies.

Within a forward a query at position i sees a key at position j iff

    j < end  and  group(j) <= group(i)  and  (full layer  or  j > start(group(i)) - window)
    group(p) = 0 if p < origin else 1 + (p - origin) // size
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Grid:
    """Positions below `origin` are one group, those from it on are groups of `size`."""

    origin: int
    size: int

    def group(self, position: int) -> int:
        """Number of the group that holds `position`."""
        return 0 if position < self.origin else 1 + (position - self.origin) // self.size

    def start(self, position: int) -> int:
        """First position of the group that holds `position`."""
        return 0 if position < self.origin else position - (position - self.origin) % self.size

    def end(self, position: int) -> int:
        """First position after the group that holds `position`."""
        if position < self.origin:
            return self.origin
        return position - (position - self.origin) % self.size + self.size

    def cover(self, length: int) -> int:
        """The first group boundary at or after `length`, a number of positions: what holding them all may feed."""
        return self.end(length - 1) if length else 0

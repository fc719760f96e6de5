"""Blocks of positions that are decoded together, and the groups of positions that all attention follows.

Within a forward pass, a query at position i sees a key at position j if and only if

    j < end  and  group(j) <= group(i)  and  (full layer  or  j > start(group(i)) - W)
    group(p) = 0 if p < origin else 1 + (p - origin) // size

where `end` is `Rows.end` of the request's span, and W is the layer's sliding window in positions.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace

from .checks import Checked
from .frozen import built_fast
from .spec import Ids, NonNegativeInt, Pins, Positions, Probabilities


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


# The code here that runs for each request in every step uses the faster form: `Block(...)` takes 0.3 us,
# `replace` 1.3 us; `tuple([...])` of 12 items takes 0.37 us, `tuple` of a generator 0.68 us.

# All sequences share these integer objects (10 MB), so a batch touches less memory in every step. A slice of 32
# takes 0.13 us, a new tuple of a range 0.52.
_SHARED = tuple(range(1 << 18))


def positions(start: int, stop: int) -> Positions:
    """Return the positions `[start, stop)`, ascending.

    Args:
        start: First position.
        stop: First position after the last one.
    """
    return _SHARED[start:stop] if stop <= len(_SHARED) else tuple(range(start, stop))


@dataclass(frozen=True, slots=True)
class Replacement(Checked):
    """The change of a position of the window into any number of masked positions; 0 removes the position."""

    position: int
    """The position, as counted before the replacements of its pass."""
    count: NonNegativeInt
    """Number of masked positions that take its place."""
    token: int | None = None
    """The sampled token that caused the replacement, for step maps; None if a token of another position caused it."""


def moved(position: int, replaced: Sequence[Replacement]) -> int:
    """Return the new position of a token after some positions were replaced.

    Args:
        position: Its position before the replacements.
        replaced: The replacements, in any order; only those before `position` move the token.
    """
    return position + sum([each.count - 1 for each in replaced if each.position < position])


@dataclass(frozen=True, slots=True)
class Extra:
    """Base of the state that a strategy or rule keeps in a block or sequence."""


@built_fast
@dataclass(frozen=True, slots=True)
class Block:
    """Positions `[start, start + len(tokens))` of one request.

    Positions past the answer are void: they are fed as masks, but never sampled or listed in
    `masked`. Every sampling pass of the sequence samples an open block, so the next pass that
    samples the block has the number `SequenceState.steps - opened`, counted from 0.
    """

    start: int
    """First position."""
    tokens: Ids
    """Token of each position; the mask id at masked and void positions."""
    masked: Positions
    """Positions of the answer that have no token yet, ascending; they are fed as masks."""
    probabilities: Probabilities
    """Probability of each token when it was unmasked; 1.0 if given, 0.0 if masked."""
    given: int = 0
    """Bitmap of the offsets that the prompt, a pinned token or a fork fixed."""
    opened: int = 0
    """Number of sampling passes of the sequence before the block opened."""
    extra: Extra | None = None
    """State that a strategy or rule keeps for the block."""

    @property
    def end(self) -> int:
        """First position after the block."""
        return self.start + len(self.tokens)

    @property
    def unmasked(self) -> int:
        """Bitmap of the offsets that hold a given or sampled token, or that are void."""
        full = (1 << len(self.tokens)) - 1
        for position in self.masked:
            full &= ~(1 << (position - self.start))
        return full

    @property
    def unmasked_share(self) -> float:
        """The share of unmasked positions, in [0, 1]; given positions count as unmasked."""
        return 1.0 - len(self.masked) / len(self.tokens)

    def sealed(self) -> "Block":
        """Return this full block as a finished one, without the facts that only its decoding needed."""
        return Block(self.start, self.tokens, (), self.probabilities)

    def unmask_rows(self, chosen: Sequence[int], tokens: Sequence[int], probabilities: Sequence[float]) -> "Block":
        """Return the block with some masked positions unmasked, given by their indices in `masked`.

        Args:
            chosen: The indices, ascending.
            tokens: Token of each masked position.
            probabilities: Probabilities of these tokens.
        """
        masked = [self.masked[index] for index in chosen]
        return self.unmask(masked, [tokens[index] for index in chosen], [probabilities[index] for index in chosen])

    def unmask(self, chosen: Sequence[int], tokens: Sequence[int], probabilities: Sequence[float]) -> "Block":
        """Return the block with some masked positions unmasked.

        Args:
            chosen: The positions, ascending.
            tokens: Their tokens.
            probabilities: The probabilities of these tokens.
        """
        masked = list(self.masked)
        for position in chosen:
            del masked[bisect_left(masked, position)]
        return self._written(chosen, tokens, probabilities, tuple(masked))

    def edit(self, chosen: Sequence[int], tokens: Sequence[int], probabilities: Sequence[float]) -> "Block":
        """Return the block with other tokens at some unmasked positions.

        Args:
            chosen: The positions.
            tokens: Their new tokens.
            probabilities: The probabilities of these tokens.
        """
        return self._written(chosen, tokens, probabilities, self.masked)

    def remask(self, chosen: Sequence[int], mask_id: int) -> "Block":
        """Return the block with some unmasked positions remasked: the inverse of `unmask`.

        Args:
            chosen: The positions.
            mask_id: Token id of the mask.
        """
        masked, count = tuple(sorted((*self.masked, *chosen))), len(chosen)
        return self._written(chosen, (mask_id,) * count, (0.0,) * count, masked)

    def resized(self, replaced: Sequence[Replacement], mask_id: int) -> "Block":
        """Return the block with some positions replaced, so that later ones move.

        Args:
            replaced: The replacements, ascending.
            mask_id: Token id of the mask.
        """
        start, masked = self.start, {*self.masked}
        # Token, probability, whether it is masked, and whether it is given.
        pairs = enumerate(zip(self.tokens, self.probabilities, strict=True))
        cells = [(*pair, start + offset in masked, self.given >> offset & 1) for offset, pair in pairs]
        for each in reversed(replaced):
            offset = each.position - start
            cells[offset : offset + 1] = [(mask_id, 0.0, True, 0)] * each.count
        return replace(
            self,
            tokens=tuple([cell[0] for cell in cells]),
            masked=tuple([position for position, cell in enumerate(cells, start) if cell[2]]),
            probabilities=tuple([cell[1] for cell in cells]),
            given=sum([cell[3] << offset for offset, cell in enumerate(cells)]),
        )

    def _written(
        self, chosen: Sequence[int], tokens: Sequence[int], probabilities: Sequence[float], masked: Positions
    ) -> "Block":
        """Return the block with other tokens at the positions `chosen`, and other masked positions."""
        start, new_tokens, new_probabilities = self.start, list(self.tokens), list(self.probabilities)
        for position, token, probability in zip(chosen, tokens, probabilities, strict=True):
            new_tokens[position - start], new_probabilities[position - start] = token, probability
        return Block(start, tuple(new_tokens), masked, tuple(new_probabilities), self.given, self.opened, self.extra)

    def with_given(self, end: int) -> "Block":
        """Return the block with all positions before `end` given.

        Args:
            end: First position after the given ones, none of which may be masked.
        """
        before = (1 << max(0, min(end, self.end) - self.start)) - 1
        return replace(self, given=self.given | before)

    def with_extra(self, extra: Extra | None) -> "Block":
        """Return the block with `extra` replaced.

        Args:
            extra: New state of the strategy or rule.
        """
        return Block(self.start, self.tokens, self.masked, self.probabilities, self.given, self.opened, extra)

    def part(self, start: int, end: int, opened: int, *, restart: bool = False) -> "Block":
        """Return some positions as a block.

        Args:
            start: First position of the part.
            end: First position after the part.
            opened: Number of sampling passes of the sequence before the part opened.
            restart: Whether unmasked positions of the part count as given.
        """
        begin, stop = start - self.start, end - self.start
        masked = self.masked[bisect_left(self.masked, start) : bisect_left(self.masked, end)]
        given = self.given >> begin & ((1 << (stop - begin)) - 1)
        part = Block(start, self.tokens[begin:stop], masked, self.probabilities[begin:stop], given, opened, self.extra)
        return replace(part, given=part.unmasked) if restart else part

    def with_part(self, part: "Block") -> "Block":
        """Return the block with tokens, masked positions and `extra` of a part of it.

        Args:
            part: A block of some of its positions, as returned by the method `part`.
        """
        begin, stop = part.start - self.start, part.end - self.start
        first, last = bisect_left(self.masked, part.start), bisect_left(self.masked, part.end)
        return Block(
            self.start,
            self.tokens[:begin] + part.tokens + self.tokens[stop:],
            self.masked[:first] + part.masked + self.masked[last:],
            self.probabilities[:begin] + part.probabilities + self.probabilities[stop:],
            self.given,
            self.opened,
            part.extra,
        )

    @property
    def first(self) -> int:
        """The first position that was not given."""
        given = self.given
        return self.start + (~given & (given + 1)).bit_length() - 1  # the lowest zero bit

    def sampled(self, limit: int) -> Positions:
        """Return the positions below `limit` that were not given, ascending.

        Args:
            limit: First position past the answer.
        """
        given, stop = self.given, min(self.end, limit)
        if given & (given + 1):  # a given token follows one that was not given
            return tuple([p for p in positions(self.start, stop) if not given >> (p - self.start) & 1])
        return positions(self.start + given.bit_length(), stop)

    def with_pinned(self, pinned: Sequence[tuple[int, int]], origin: int) -> "Block":
        """Return this fresh block with its pinned tokens given.

        Args:
            pinned: Pairs of offset and token id, by ascending offset; pairs of other blocks are
                ignored.
            origin: Position from which offsets count.
        """
        first, last = (bisect_left(pinned, (position - origin,)) for position in (self.start, self.end))
        if first == last:
            return self
        start, given = self.start, self.given
        tokens, probabilities = list(self.tokens), list(self.probabilities)
        for offset, token in pinned[first:last]:
            index = origin + offset - start
            tokens[index], probabilities[index] = token, 1.0
            given |= 1 << index
        masked = tuple([position for position in self.masked if not given >> (position - start) & 1])
        return Block(start, tuple(tokens), masked, tuple(probabilities), given, self.opened, self.extra)


def open_block(
    start: int,
    size: int,
    limit: int,
    prompt: Ids,
    mask_id: int,
    opened: int = 0,
    pinned: Pins = (),
) -> Block:
    """Return a fresh block, in which prompt and pinned tokens are given.

    Args:
        start: First position.
        size: Number of positions.
        limit: First position past the answer; from there on, positions are void.
        prompt: Token ids of the prompt.
        mask_id: Token id of the mask.
        opened: Number of sampling passes of the sequence so far.
        pinned: Pairs of offset in the answer and token id, by ascending offset.
    """
    given = max(0, min(len(prompt) - start, size))
    block = Block(
        start=start,
        tokens=prompt[start : start + given] + (mask_id,) * (size - given),
        masked=positions(start + given, min(start + size, limit)),
        probabilities=(1.0,) * given + (0.0,) * (size - given),
        given=(1 << given) - 1,
        opened=opened,
    )
    return block.with_pinned(pinned, len(prompt)) if pinned else block

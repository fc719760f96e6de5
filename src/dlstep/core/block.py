"""A block: consecutive positions that are decoded together. Which of them are decided is said, never read off a token."""

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace

from .values import maker, value

# Positions as objects that all sequences share, so that a batch touches less memory in every step.
_SHARED = tuple(range(1 << 18))


def positions(start: int, stop: int) -> tuple[int, ...]:
    """Positions `[start, stop)`."""
    return _SHARED[start:stop] if stop <= len(_SHARED) else tuple(range(start, stop))


@dataclass(frozen=True, slots=True)
class Extra:
    """Base of what a strategy keeps for itself in a block or a sequence, as frozen dataclasses of its own."""


@value
class Sealed:
    """A finished block: consecutive positions from `start` on, all decided. What long answers are kept as.

    `packed_tokens` are native 64-bit integers, `packed_probabilities` native doubles: a third of the size of Python's
    numbers, and nothing in them holds on to the samples they came from.
    """

    start: int
    packed_tokens: bytes
    packed_probabilities: bytes

    @property
    def end(self) -> int:
        """First position after the block."""
        return self.start + len(self.packed_tokens) // 8

    @property
    def tokens(self) -> tuple[int, ...]:
        """The token of each position."""
        return tuple(array("q", self.packed_tokens))

    @property
    def probabilities(self) -> tuple[float, ...]:
        """The probability each token had when it was decided; 1.0 for given ones."""
        return tuple(array("d", self.packed_probabilities))


@value
class Block:
    """Positions `[start, start + len(tokens))` of one request.

    `undecided` lists, ascending, the positions of the answer that hold no token yet; they are fed as masks. Positions past
    the end of the answer are void: fed as masks, never wanted and not listed. `probabilities` go with `tokens`: 1.0 for given
    ones, 0.0 for undecided ones. `given` is a bitmap of the offsets that the prompt or a pinned token fixed. `opened` is the
    number of sampling forwards that the sequence had taken when the block opened: each one after it samples the block, as long
    as positions are undecided, so that its draw number is the difference. `extra` is what a strategy keeps about the block.
    """

    start: int
    tokens: tuple[int, ...]
    undecided: tuple[int, ...]
    probabilities: tuple[float, ...]
    given: int = 0
    opened: int = 0
    extra: Extra | None = None

    @property
    def end(self) -> int:
        """First position after the block."""
        return self.start + len(self.tokens)

    @property
    def decided(self) -> int:
        """Bitmap of the offsets that hold a token which was given or sampled, or that are void."""
        full = (1 << len(self.tokens)) - 1
        for position in self.undecided:
            full &= ~(1 << (position - self.start))
        return full

    @property
    def progress(self) -> float:
        """Share of the positions that are decided, in [0, 1]; given ones count."""
        return 1.0 - len(self.undecided) / len(self.tokens)

    def sealed(self) -> Sealed:
        """The block as it is kept once it is finished; nothing in it is undecided."""
        tokens, probabilities = array("q", self.tokens), array("d", self.probabilities)
        return Sealed(self.start, tokens.tobytes(), probabilities.tobytes())

    def decide(self, chosen: Sequence[int], begin: int, tokens: Sequence[int], probabilities: Sequence[float]) -> "Block":
        """The block after a forward that decided the rows `chosen`, ascending.

        Row `begin + i` of `tokens` and `probabilities` answers entry i of `undecided`.
        """
        start = self.start
        undecided = list(self.undecided)
        new_tokens = list(self.tokens)
        new_probabilities = list(self.probabilities)
        for row in reversed(chosen):
            offset = undecided.pop(row - begin) - start
            new_tokens[offset] = tokens[row]
            new_probabilities[offset] = probabilities[row]
        return _block(start, tuple(new_tokens), tuple(undecided), tuple(new_probabilities), self.given, self.opened, self.extra)

    def take(self, taken: Sequence[int], tokens: Sequence[int], probabilities: Sequence[float]) -> "Block":
        """The block with its undecided positions `taken`, ascending, decided: a token and a probability for each."""
        start, undecided = self.start, list(self.undecided)
        new_tokens, new_probabilities = list(self.tokens), list(self.probabilities)
        for position, token, probability in zip(taken, tokens, probabilities, strict=True):
            del undecided[bisect_left(undecided, position)]
            new_tokens[position - start], new_probabilities[position - start] = token, probability
        return Block(start, tuple(new_tokens), tuple(undecided), tuple(new_probabilities), self.given, self.opened, self.extra)

    def mask(self, chosen: Sequence[int], mask_id: int) -> "Block":
        """The block with its decided positions `chosen` undecided again: the inverse of `decide`."""
        start = self.start
        tokens, probabilities = list(self.tokens), list(self.probabilities)
        for position in chosen:
            tokens[position - start], probabilities[position - start] = mask_id, 0.0
        undecided = tuple(sorted((*self.undecided, *chosen)))
        return Block(start, tuple(tokens), undecided, tuple(probabilities), self.given, self.opened, self.extra)

    def remembering(self, extra: Extra | None) -> "Block":
        """The block with nothing but its memory changed."""
        return Block(self.start, self.tokens, self.undecided, self.probabilities, self.given, self.opened, extra)

    def part(self, start: int, end: int, opened: int, *, anew: bool = False) -> "Block":
        """The positions `[start, end)` as a block of their own, which opened after `opened` sampling forwards.

        With `anew`, what is decided in it counts as given.
        """
        begin, stop = start - self.start, end - self.start
        undecided = self.undecided[bisect_left(self.undecided, start) : bisect_left(self.undecided, end)]
        given = self.given >> begin & ((1 << (stop - begin)) - 1)
        part = Block(start, self.tokens[begin:stop], undecided, self.probabilities[begin:stop], given, opened, self.extra)
        return replace(part, given=part.decided) if anew else part

    def with_part(self, part: "Block") -> "Block":
        """The block with the tokens, the undecided positions and the memory of a part of it as they are in `part`."""
        begin, stop = part.start - self.start, part.end - self.start
        before, behind = bisect_left(self.undecided, part.start), bisect_left(self.undecided, part.end)
        return Block(
            self.start,
            self.tokens[:begin] + part.tokens + self.tokens[stop:],
            self.undecided[:before] + part.undecided + self.undecided[behind:],
            self.probabilities[:begin] + part.probabilities + self.probabilities[stop:],
            self.given,
            self.opened,
            part.extra,
        )

    @property
    def first(self) -> int:
        """The first position that was not given."""
        given = self.given
        return self.start + (~given & (given + 1)).bit_length() - 1

    def sampled(self, limit: int) -> tuple[int, ...]:
        """The positions below `limit` that were not given: those that forwards may decide."""
        given, stop = self.given, min(self.end, limit)
        if given & (given + 1):  # not only in front
            return tuple([p for p in positions(self.start, stop) if not given >> (p - self.start) & 1])
        return positions(self.start + given.bit_length(), stop)

    def pinning(self, pinned: Sequence[tuple[int, int]], origin: int) -> "Block":
        """The block, which is fresh, with those of the `pinned` tokens given that fall into it; offsets count from `origin`."""
        first, last = (bisect_left(pinned, (place - origin,)) for place in (self.start, self.end))
        if first == last:
            return self
        start, given = self.start, self.given
        tokens, probabilities = list(self.tokens), list(self.probabilities)
        for offset, token in pinned[first:last]:
            place = origin + offset - start
            tokens[place], probabilities[place] = token, 1.0
            given |= 1 << place
        undecided = tuple([position for position in self.undecided if not given >> (position - start) & 1])
        return Block(start, tuple(tokens), undecided, tuple(probabilities), given, self.opened, self.extra)


_block = maker(Block)


def open_block(
    start: int,
    size: int,
    limit: int,
    prompt: tuple[int, ...],
    mask_id: int,
    opened: int = 0,
    pinned: tuple[tuple[int, int], ...] = (),
) -> Block:
    """A fresh block at `start`: tokens of the prompt and `pinned` ones are given, positions at `limit` and above are void."""
    given = max(0, min(len(prompt) - start, size))
    block = Block(
        start=start,
        tokens=prompt[start : start + given] + (mask_id,) * (size - given),
        undecided=positions(start + given, min(start + size, limit)),
        probabilities=(1.0,) * given + (0.0,) * (size - given),
        given=(1 << given) - 1,
        opened=opened,
    )
    return block.pinning(pinned, len(prompt)) if pinned else block

"""A block: consecutive positions that are decoded together, with explicitly listed masks."""

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace

from .values import maker, value

# All sequences share these integer objects, so a batch touches less memory in every step.
_SHARED = tuple(range(1 << 18))


def positions(start: int, stop: int) -> tuple[int, ...]:
    """Return the positions `[start, stop)`, ascending."""
    return _SHARED[start:stop] if stop <= len(_SHARED) else tuple(range(start, stop))


@dataclass(frozen=True, slots=True)
class Extra:
    """Base of the state that a strategy or rule keeps in a block or sequence."""


@value
class Sealed:
    """A finished block in compact form: consecutive positions from `start` on, all decided.

    `packed_tokens` are native 64-bit integers and `packed_probabilities` native doubles. They take
    a third of the memory of Python numbers, and keep no reference to the samples they came from.
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
        """The probability of each token when it was decided; 1.0 for given tokens."""
        return tuple(array("d", self.packed_probabilities))


@value
class Block:
    """Positions `[start, start + len(tokens))` of one request.

    `undecided` lists, ascending, the answer's positions without a token, which are fed as masks.
    Positions past the answer are void: fed as masks too, but never sampled or listed.
    `probabilities` has one entry per token: 1.0 if given, 0.0 if undecided. `given` is a bitmap of
    the offsets that the prompt or a pinned token fixed. `opened` counts the sequence's sampling
    passes before the block opened; all later ones sample the block until it is full, so `steps -
    opened` numbers its draws. `extra` is the state that a strategy or rule keeps for the block.
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
        """Bitmap of the offsets that hold a given or sampled token, or that are void."""
        full = (1 << len(self.tokens)) - 1
        for position in self.undecided:
            full &= ~(1 << (position - self.start))
        return full

    @property
    def progress(self) -> float:
        """The share of decided positions, in [0, 1]; given positions count as decided."""
        return 1.0 - len(self.undecided) / len(self.tokens)

    def sealed(self) -> Sealed:
        """Return the compact form of this block, which must have no undecided position."""
        tokens, probabilities = array("q", self.tokens), array("d", self.probabilities)
        return Sealed(self.start, tokens.tobytes(), probabilities.tobytes())

    def decide(self, chosen: Sequence[int], begin: int, tokens: Sequence[int], probabilities: Sequence[float]) -> "Block":
        """Return the block after a forward pass that decided the rows `chosen`, ascending.

        Row `begin + i` of `tokens` and `probabilities` belongs to `undecided[i]`.
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
        """Return the block with the undecided positions `taken` (ascending) set to `tokens`."""
        start, undecided = self.start, list(self.undecided)
        new_tokens, new_probabilities = list(self.tokens), list(self.probabilities)
        for position, token, probability in zip(taken, tokens, probabilities, strict=True):
            del undecided[bisect_left(undecided, position)]
            new_tokens[position - start], new_probabilities[position - start] = token, probability
        return Block(start, tuple(new_tokens), tuple(undecided), tuple(new_probabilities), self.given, self.opened, self.extra)

    def mask(self, chosen: Sequence[int], mask_id: int) -> "Block":
        """Return the block with the decided positions `chosen` remasked: inverts `decide`."""
        start = self.start
        tokens, probabilities = list(self.tokens), list(self.probabilities)
        for position in chosen:
            tokens[position - start], probabilities[position - start] = mask_id, 0.0
        undecided = tuple(sorted((*self.undecided, *chosen)))
        return Block(start, tuple(tokens), undecided, tuple(probabilities), self.given, self.opened, self.extra)

    def remembering(self, extra: Extra | None) -> "Block":
        """Return the block with `extra` replaced."""
        return Block(self.start, self.tokens, self.undecided, self.probabilities, self.given, self.opened, extra)

    def part(self, start: int, end: int, opened: int, *, restart: bool = False) -> "Block":
        """Return the positions `[start, end)` as a block opened after `opened` sampling passes.

        With `restart`, its decided positions count as given.
        """
        begin, stop = start - self.start, end - self.start
        undecided = self.undecided[bisect_left(self.undecided, start) : bisect_left(self.undecided, end)]
        given = self.given >> begin & ((1 << (stop - begin)) - 1)
        part = Block(start, self.tokens[begin:stop], undecided, self.probabilities[begin:stop], given, opened, self.extra)
        return replace(part, given=part.decided) if restart else part

    def with_part(self, part: "Block") -> "Block":
        """Return the block with tokens, undecided positions and `extra` of its `part`."""
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
        """Return the positions below `limit` that were not given, ascending."""
        given, stop = self.given, min(self.end, limit)
        if given & (given + 1):  # given tokens also follow a gap
            return tuple([p for p in positions(self.start, stop) if not given >> (p - self.start) & 1])
        return positions(self.start + given.bit_length(), stop)

    def pinning(self, pinned: Sequence[tuple[int, int]], origin: int) -> "Block":
        """Return this fresh block with its `pinned` tokens given; offsets count from `origin`."""
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
    """Return a fresh block: prompt and `pinned` tokens given, void from `limit` on."""
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

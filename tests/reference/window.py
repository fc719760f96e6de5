"""The blocks that several of the loops keep open at a time, and when the next one opens."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .models import EOS, MASK


@dataclass
class Block:
    """Positions from `start` on; `editable` are those of the answer that are not pinned.

    The others are prompt, pinned, or lie after the answer.
    """

    start: int
    tokens: list[int]
    editable: list[int]
    steps: int = 0  # forwards that it took part in
    ratio: float = 0.0  # share of its tokens that the last forward confirmed
    ready: bool = False  # nothing is masked, and its rule lets go of it in this very step

    @property
    def end(self) -> int:
        """First position after it."""
        return self.start + len(self.tokens)

    @property
    def masked(self) -> list[int]:
        """Positions of the answer without a token."""
        return [position for position in self.editable if self.tokens[position - self.start] == MASK]

    @property
    def progress(self) -> float:
        """Share of positions that wait for no token."""
        return 1 - len(self.masked) / len(self.tokens)


@dataclass
class Window:
    """The open blocks of one request. `sealed` are all tokens before them, which can no longer change."""

    prompt: Sequence[int]
    limit: int
    block_size: int
    buffer_size: int
    add_block_threshold: float
    token_stability_threshold: float
    sealed: list[int]
    pins: Mapping[int, int] = field(default_factory=dict[int, int])  # tokens of pinned positions
    blocks: list[Block] = field(default_factory=list)

    @property
    def text(self) -> list[int]:
        """All tokens, masks included."""
        return self.sealed + [token for block in self.blocks for token in block.tokens]

    def open_next(self) -> None:
        """Open one more block, if there is room, something left to decode, and the last block is far enough."""
        start = self.blocks[-1].end if self.blocks else len(self.sealed)
        if len(self.blocks) == self.buffer_size or start >= self.limit:
            return
        if self.blocks:
            last = self.blocks[-1]
            if last.progress < self.add_block_threshold or last.ratio < self.token_stability_threshold:
                return
            if EOS in self.text[max(len(self.prompt), len(self.sealed)) : self.limit]:
                return
        given = list(self.prompt[start : start + self.block_size])
        tokens = given + [MASK] * (self.block_size - len(given))
        editable: list[int] = []
        for position in range(start + len(given), min(start + self.block_size, self.limit)):
            if position in self.pins:
                tokens[position - start] = self.pins[position]
            else:
                editable.append(position)
        ready = not editable  # all of it is pinned: there is nothing to sample
        self.blocks.append(Block(start, tokens, editable, ratio=float(ready), ready=ready))

    def step_over_pins(self) -> list[int] | None:
        """Seal blocks that were ready when they opened, and open more as long as nothing is left to sample.

        The answer, if it ends at a pinned token before anything of it is sampled.
        """
        while True:
            answer = self.seal()
            if answer is not None:
                return answer
            if not all(block.ready for block in self.blocks):
                break
            self.open_next()
        stands = self.text[len(self.prompt) : self.blocks[0].editable[0]] if self.blocks[0].editable else []
        return stands[: stands.index(EOS)] if EOS in stands else None

    def seal(self) -> list[int] | None:
        """Let go of ready blocks from the left; the answer, once its end is among them."""
        while self.blocks and self.blocks[0].ready:
            self.sealed += self.blocks.pop(0).tokens
        answer = self.sealed[len(self.prompt) : self.limit]
        if EOS in answer:
            return answer[: answer.index(EOS)]
        return answer if len(self.sealed) >= self.limit else None


def open_window(
    prompt: Sequence[int],
    limit: int,
    first: int,
    sizes: tuple[int, int],
    gates: tuple[float, float],
    pins: Mapping[int, int] | None = None,
) -> Window:
    """The window before the first forward: a block from `first` on, and one more if prompt and pins fill it far enough.

    `sizes` are those of a block and of the buffer, `gates` the thresholds of progress and of stability. `pins` are the tokens
    of pinned positions.
    """
    window = Window(prompt, limit, *sizes, *gates, list(prompt[:first]), pins or {})
    window.open_next()
    window.open_next()
    return window

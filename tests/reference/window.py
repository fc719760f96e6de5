"""The blocks that several of the loops keep open at a time, and when the next one opens."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from models import EOS, MASK


@dataclass
class Block:
    """Positions from `start` on; `editable` are those of the answer, the others are prompt or lie behind the answer."""

    start: int
    tokens: list[int]
    editable: range
    steps: int = 0  # forwards that it took part in
    ratio: float = 0.0  # share of its tokens that the last forward confirmed
    ready: bool = False  # nothing is masked, and its rule lets go of it in this very step

    @property
    def end(self) -> int:
        """First position behind it."""
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
    """The open blocks of one request. `sealed` are all tokens in front of them, which can no longer change."""

    prompt: Sequence[int]
    limit: int
    block_size: int
    buffer_size: int
    add_block_threshold: float
    token_stability_threshold: float
    sealed: list[int]
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
            if any(block.tokens[position - block.start] == EOS for block in self.blocks for position in block.editable):
                return
        given = list(self.prompt[start : start + self.block_size])
        editable = range(start + len(given), min(start + self.block_size, self.limit))
        self.blocks.append(Block(start, given + [MASK] * (self.block_size - len(given)), editable))

    def seal(self) -> list[int] | None:
        """Let go of ready blocks from the left; the answer, once its end is among them."""
        while self.blocks and self.blocks[0].ready:
            self.sealed += self.blocks.pop(0).tokens
        answer = self.sealed[len(self.prompt) : self.limit]
        if EOS in answer:
            return answer[: answer.index(EOS)]
        return answer if len(self.sealed) >= self.limit else None


def open_window(prompt: Sequence[int], limit: int, first: int, sizes: tuple[int, int], gates: tuple[float, float]) -> Window:
    """The window before the first forward: a block from `first` on, and one more if the prompt fills it far enough.

    `sizes` are those of a block and of the buffer, `gates` the thresholds of progress and of stability.
    """
    window = Window(prompt, limit, *sizes, *gates, list(prompt[:first]))
    window.open_next()
    window.open_next()
    return window

"""The blocks that several of the loops keep open at a time, and when the next one opens."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from .models import EOS, MASK, Dense, Proposal, before_end


@dataclass(frozen=True, kw_only=True)
class BlockRules:
    """Hyperparameters of the blocks, and of when the next one opens."""

    block_size: int
    buffer_size: int = 1
    accept_threshold: float = 0.9
    add_block_threshold: float = 0.1
    token_stability_threshold: float = 0.0


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
    def offsets(self) -> list[int]:
        """Where the editable positions are in the block."""
        return [position - self.start for position in self.editable]

    def proposals(self, network: Dense, rows: Tensor) -> list[Proposal]:
        """The proposals of the block's rows; of positions that are not editable the mask."""
        return [network.propose(row) if i in self.offsets else Proposal(MASK, 0.0) for i, row in enumerate(rows)]

    @property
    def progress(self) -> float:
        """Share of positions that wait for no token."""
        return 1 - len(self.masked) / len(self.tokens)


@dataclass
class Window:
    """The open blocks of one request. `sealed` are all tokens before them, which can no longer change."""

    prompt: Sequence[int]
    limit: int
    rules: BlockRules
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
        rules, size = self.rules, self.rules.block_size
        if len(self.blocks) == rules.buffer_size or start >= self.limit:
            return
        if self.blocks:
            last = self.blocks[-1]
            if last.progress < rules.add_block_threshold or last.ratio < rules.token_stability_threshold:
                return
            if EOS in self.text[max(len(self.prompt), len(self.sealed)) : self.limit]:
                return
        given = list(self.prompt[start : start + size])
        tokens = given + [MASK] * (size - len(given))
        editable: list[int] = []
        for position in range(start + len(given), min(start + size, self.limit)):
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
        while (answer := self.seal()) is None and all(block.ready for block in self.blocks):
            self.open_next()
        if answer is not None or not self.blocks[0].editable:
            return answer
        return before_end(self.text[len(self.prompt) : self.blocks[0].editable[0]])

    def seal(self) -> list[int] | None:
        """Let go of ready blocks from the left; the answer, once its end is among them."""
        while self.blocks and self.blocks[0].ready:
            self.sealed += self.blocks.pop(0).tokens
        answer = self.sealed[len(self.prompt) : self.limit]
        ended = before_end(answer)
        return answer if ended is None and len(self.sealed) >= self.limit else ended

    def decode(self, forward: Callable[[], None], *, keeps: bool = False) -> list[int]:
        """The answer after as many forwards as it takes; if no token changes (`keeps`), it may end before the first mask."""
        while (answer := self.step_over_pins()) is None:
            forward()
            answer = self.seal()
            if answer is None and keeps and self.blocks and (masked := self.blocks[0].masked):
                answer = before_end(self.text[len(self.prompt) : masked[0]])
            if answer is not None:
                break
            self.open_next()
        return answer


def open_window(
    prompt: Sequence[int], limit: int, first: int, rules: BlockRules, pins: Mapping[int, int] | None = None
) -> Window:
    """The window before the first forward: a block from `first` on, and one more if prompt and pins fill it far enough.

    `pins` are the tokens of pinned positions.
    """
    window = Window(prompt, limit, rules, list(prompt[:first]), pins or {})
    window.open_next()
    window.open_next()
    return window

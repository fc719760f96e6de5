"""Fast-dLLM: a canvas under full attention, decoded block by block from left to right, with approximate caches.

The canvas is the prompt and the whole answer, masked where it is undecided; every position sees every other. A block begins
with a *refresh*, a forward over the canvas. Until it is full its next forwards feed the block alone and see the rest as the
refresh stored it (`dual`), feed the block and what follows it (`prefix`), or refresh again (`none`). Source: Wu et al.,
"Fast-dLLM: Training-free Acceleration of Diffusion LLM by Enabling KV Cache and Parallel Decoding", 2025.
"""

from dataclasses import dataclass
from typing import Annotated, Literal, final

from annotated_types import Gt

from ..core import Block, Grid, Probability, Request, Rows, Sequence, Span, Spec, Strategy, check_ranges, open_block, span_of
from ._blocks import mask_of, masked_only
from ._warm import cooled, warmed

ACCEPT = 0.9


@final
@dataclass(frozen=True, slots=True)
class DualCache(Strategy):
    """Blocks of `block_size`, counted from the prompt's end, one at a time; `cache` says what their forwards read from stores.

    A block takes every position whose probability is `accept_threshold` or more, and its best one in any case, or with
    `steps_per_block` its even share of positions in each forward, the most probable first and what is left over in the
    first ones. Equal probabilities: the lowest position first.
    """

    block_size: Annotated[int, Gt(0)] = 32
    cache: Literal["none", "prefix", "dual"] = "dual"
    accept_threshold: Probability = ACCEPT
    steps_per_block: Annotated[int, Gt(0)] | None = None

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.cache not in ("none", "prefix", "dual"):
            raise ValueError(f"DualCache.cache must be 'none', 'prefix' or 'dual', got {self.cache!r}")
        if self.steps_per_block is not None and self.accept_threshold != ACCEPT:
            raise ValueError(
                f"DualCache.accept_threshold={self.accept_threshold} has no effect with "
                f"steps_per_block={self.steps_per_block}: give one of them"
            )

    @property
    def exact(self) -> bool:
        """Only without a cache: what is read from stores was computed for an older canvas."""
        return self.cache == "none"

    def unfit(self, spec: Spec) -> str:
        """A model without masks."""
        return masked_only(spec)

    def refuses(self, request: Request) -> str:
        """An accept threshold that a fixed number of steps would ignore."""
        if self.steps_per_block is None or request.params.thresholds.accept_threshold is None:
            return ""
        return f"accept_threshold has no effect with steps_per_block={self.steps_per_block}; give one of them"

    def grid(self, request: Request) -> Grid:
        """The canvas is one group; no part of it is final before the end."""
        return Grid(self.reach(request), 1)

    def atom(self, request: Request) -> int:
        """The canvas."""
        return self.reach(request)

    def reach(self, request: Request) -> int:
        """The canvas' end."""
        return len(request.prompt) + request.params.max_tokens

    def init(self, sequence: Sequence, spec: Spec) -> Sequence:
        """The first block behind the prompt, and the rest of the canvas."""
        length = len(sequence.goal.request.prompt)
        return sequence.moved(sequence.past, self._opened(sequence, length, spec), 0, length)

    def schedule(self, sequence: Sequence, spec: Spec) -> Span:
        """The canvas, the block, or the block and what follows, wanting what is undecided in the block."""
        goal, (block, *rest) = sequence.goal, sequence.window
        start, wanted, request = block.start, block.undecided, goal.request
        if block.extra is None or (spec.head_shift and wanted[0] == start):
            # With a shifted head, the row in front of the block is computed by refreshes only.
            start, tokens = 0, sequence.tokens(0, goal.limit)
        elif self.cache == "prefix" and rest:
            tokens = block.tokens + rest[0].tokens
        else:
            tokens = block.tokens
        draws = (sequence.ledger.steps - block.opened,) * len(wanted)
        return span_of(request, start, tokens, goal.grid, wanted, draws, end=goal.limit)

    def commit(self, sequence: Sequence, span: Span, rows: Rows, spec: Spec) -> Sequence:
        """Decide positions of the block; behind a full one the next opens, which begins with a refresh."""
        block, *rest = sequence.window
        chosen = self._chosen(sequence, block, span.draws[0], rows.probabilities)
        block = block.decide(chosen, 0, rows.tokens, rows.probabilities)
        if block.undecided:
            window = (block if self.cache == "none" else warmed(block), *rest)
            return sequence.moved(sequence.past, window, 0, block.undecided[0])
        if not rest:
            return sequence.moved(sequence.past, (block,), 0, block.end)
        return sequence.moved(sequence.past.push_front(block.sealed()), self._opened(sequence, block.end, spec), 0, block.end)

    def measure(self, sequence: Sequence) -> int:
        """Undecided positions of the answer: each forward decides at least one."""
        return sum(len(block.undecided) for block in sequence.window)

    def forget(self, sequence: Sequence, spec: Spec) -> Sequence:
        """Nothing of the canvas is stored any more."""
        del spec
        return cooled(sequence)

    def _chosen(self, sequence: Sequence, block: Block, step: int, probabilities: tuple[float, ...]) -> list[int]:
        """Rows that the block takes in its forward number `step`, ascending."""
        steps = self.steps_per_block
        if steps is not None:
            share, over = divmod(len(block.tokens), steps)
            falling = sorted(range(len(probabilities)), key=probabilities.__getitem__, reverse=True)
            return sorted(falling[: share + (step < over)])
        accept = sequence.goal.request.params.thresholds.accept_threshold
        accept = self.accept_threshold if accept is None else accept
        chosen = [row for row, probability in enumerate(probabilities) if probability >= accept]
        return chosen or [probabilities.index(max(probabilities))]

    def _opened(self, sequence: Sequence, start: int, spec: Spec) -> tuple[Block, ...]:
        """The block at `start` and, as another one, what is left of the canvas behind it."""
        limit, prompt, steps, mask = sequence.goal.limit, sequence.goal.request.prompt, sequence.ledger.steps, mask_of(spec)
        end = min(start + self.block_size, limit)
        block = open_block(start, end - start, limit, prompt, mask, steps)
        return (block, open_block(end, limit - end, limit, prompt, mask)) if end < limit else (block,)


STRATEGY = DualCache

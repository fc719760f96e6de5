"""A canvas under full attention: prompt and answer, decoded block by block from left to right."""

from dataclasses import dataclass, replace
from typing import Literal

from ..core import (
    Block,
    BlockPass,
    CanvasRule,
    Extra,
    Grid,
    Positions,
    PositiveInt,
    Progress,
    Refusal,
    Refused,
    Request,
    Rows,
    Rule,
    SampleSpec,
    SequenceState,
    Span,
    SpanSamples,
    Spec,
    Strategy,
    Wanted,
    open_block,
    samples_of,
)
from ..core.filtering import passes_to_come
from ..rules._shares import in_parts
from ..rules.threshold import Threshold
from ._blocks import Refreshed, block_passes, decided_alone, opened, refusal_without_mask, required_mask, sampled_for

Cached = Literal["none", "prefix", "dual"]


# How a canvas is refreshed.
#
# On a canvas every position attends to every other one, so each token that is unmasked changes the keys and values of all
# positions, even those of the prompt. No position is final before the answer is complete, so `final` stays 0, and with
# `cache="none"` every pass feeds the whole canvas.
# With a cache, passes read outdated keys and values. A *refresh* is a pass over the whole canvas, which stores the keys and
# values of all its positions. Later passes feed only the block (`dual`), or the block and everything after it (`prefix`);
# with a `windowed` rule, the part that `CanvasRule.fed` returns. Their rows store new entries for themselves and attend to
# the whole canvas, because `end` of the span is the end of the canvas. Positions that a pass does not feed keep the entries
# of the last pass that fed them.
# `Progress.extra` is `Refreshed` while the device has such entries. It is None before a block's first pass and after the
# device has lost its pages (`forget`); the next pass is then a refresh. Preemption thus adds a refresh, and later passes read
# newer entries than without preemption. This is why only a canvas without a cache is `exact`.
# With a shifted head, the row before the block predicts the block's first position. A `windowed` rule's passes feed that row
# as well; with other rules, each pass that samples the first position is a refresh.
@dataclass(frozen=True, slots=True)
class Canvas(Strategy):
    """Blocks of `block_size` from the prompt's end, one at a time; `cache` selects cached KV.

    A rule on the whole answer gets a single block, whatever `block_size` is. It can use a cache
    only if it defines which part of the canvas to feed, and when to refresh everything.
    """

    holds_pins = True
    takes_constraints = True
    block_size: PositiveInt = 32
    """Positions of a block."""
    cache: Cached = "dual"
    """Positions whose keys and values are cached while a block is decoded: none, those before the block, or all others."""
    rule: Rule = Threshold(inclusive=True)
    """The rule that selects positions to unmask after a forward pass."""

    def __post_init__(self) -> None:
        Strategy.__post_init__(self)
        rule = self.rule
        if self.cache != "none" and isinstance(rule, CanvasRule) and rule.whole and not rule.windowed:
            raise Refused(
                "cache",
                "conflict",
                f"{self.cache!r} does not go with {type(rule).__name__}, which reads the whole answer: give cache='none'",
            )

    @property
    def exact(self) -> bool:
        """Whether there is no cache: cached KV was computed for an older canvas."""
        return self.cache == "none"

    @property
    def full_passes(self) -> bool:
        """Whether there is no cache, so that each pass is a refresh."""
        return self.exact

    @property
    def sample_spec(self) -> SampleSpec:
        """The statistics that the rule needs."""
        return self.rule.sample_spec

    def refusal(self, spec: Spec, request: Request) -> Refusal | None:
        """Return why a model without masks or the rule does not fit; None if both do."""
        return refusal_without_mask(spec) or self.rule.refusal(spec)

    def grid(self, request: Request) -> Grid:
        """Return one group for the whole canvas, no part of which is final before the end."""
        return Grid(request.start + request.params.max_tokens, 1)

    def rows_at_once(self, request: Request) -> int:
        """Return the length of the canvas."""
        return self.fed_end(request)

    def init(self, sequence: SequenceState, spec: Spec) -> Progress:
        """Open the first block after the prompt, and the rest of the canvas."""
        length = sequence.request.start
        return self._progress(sequence, self._opened(sequence, length, spec), None, spec)

    def schedule(self, sequence: SequenceState, spec: Spec) -> Span:
        """Return a span of the canvas, of the block, or of the block and all later positions."""
        request, (block, *rest) = sequence.request, sequence.progress.window
        start = block.start
        number = sequence.steps - block.opened
        sampled = sampled_for(self.rule, sequence, block)
        if isinstance(self.rule, CanvasRule) and self.rule.windowed:
            start, tokens = self._window(self.rule, sequence, block, sampled[0] - spec.head_shift)
        elif sequence.progress.extra is None or (spec.head_shift and sampled[0] == start):
            # With a shifted head, only refreshes compute the row before the block.
            start, tokens = 0, sequence.tokens(0, request.limit)
        elif self.cache == "prefix" and rest:
            tokens = block.tokens + rest[0].tokens
        else:
            tokens = block.tokens
        rows = Rows(start, tokens, request.limit, request.grid)
        return Span(request.who, rows, Wanted(sampled, (number,) * len(sampled)))

    def commit(self, sequence: SequenceState, span: Span, samples: SpanSamples, spec: Spec) -> Progress:
        """Apply the rule to the block. If the block is then full, open the next one, whose first pass is a refresh."""
        (block, *rest), extra = sequence.progress.window, sequence.progress.extra
        if isinstance(self.rule, CanvasRule) and sequence.steps - block.opened == 1:  # the block's first pass
            # Pinned tokens alone do not make a block: nothing would be left to unmask.
            block_pass = BlockPass(block, sequence, samples_of(block, span, samples), spec)
            end = max(self.rule.ends(block_pass, self.block_size), block.masked[0] + 1)
            if end < block.end:
                block, rest = block.part(block.start, end, block.opened), list(self._rest(sequence, end, spec))
        num_masked = len(block.masked)
        block = decided_alone(self.rule, sequence, block, span, samples, spec)
        if block.masked:
            if self.cache != "none" and len(span.rows.tokens) == sequence.request.limit:  # the pass was a refresh
                extra = Refreshed(num_masked)
        elif rest:
            extra = None
        return self._progress(sequence, (block, *rest), extra, spec)

    def _progress(self, sequence: SequenceState, window: tuple[Block, ...], extra: Extra | None, spec: Spec) -> Progress:
        """Return the progress at the first unfinished block, or at the last block; skip blocks full of pinned tokens."""
        past = sequence.progress.past
        while not window[0].masked:
            block, *rest = window
            if not rest:
                return Progress(window, 0, block.end, past, extra)
            past, window = past.push_front(block.sealed()), self._opened(sequence, block.end, spec)
        block = window[0]
        return Progress(window, 0, block.first if self.rule.remasks else block.masked[0], past, extra)

    def measure(self, sequence: SequenceState) -> int:
        """Return a bound on the passes for the block and for those to come."""
        block, *rest = sequence.progress.window
        to_come = in_parts(len(rest[0].tokens) if rest else 0, self.block_size, self.rule.bound)
        return block_passes(self.rule, sequence, block) + passes_to_come(sequence, to_come, len(rest[0].masked) if rest else 0)

    def forget(self, sequence: SequenceState, spec: Spec) -> Progress:
        """Return the progress without a cache, so that the next pass refreshes the canvas."""
        return replace(sequence.progress, extra=None)

    def _opened(self, sequence: SequenceState, start: int, spec: Spec) -> tuple[Block, ...]:
        """Return the block at `start`, and the rest of the canvas as a second block."""
        limit, size = sequence.request.limit, self.block_size
        if isinstance(self.rule, CanvasRule):
            size = self.rule.opens(size, limit - sequence.request.start)
        end = min(start + size, limit)
        return (opened(sequence, start, end - start, spec), *self._rest(sequence, end, spec))

    def _rest(self, sequence: SequenceState, end: int, spec: Spec) -> tuple[Block, ...]:
        """Return the rest of the canvas from `end` on as an unopened block; () if empty."""
        limit, request = sequence.request.limit, sequence.request
        if end >= limit:
            return ()
        return (open_block(end, limit - end, limit, request.prompt, required_mask(spec), pinned=request.params.pinned),)

    def _window(self, rule: CanvasRule, sequence: SequenceState, block: Block, first: int) -> tuple[int, Positions]:
        """Return start and tokens of the part of the canvas to feed, which contains row `first`."""
        limit, part, extra = sequence.request.limit, None, sequence.progress.extra
        if isinstance(extra, Refreshed):
            part = rule.fed(block, extra.num_masked - len(block.masked))
        if part is None:
            return 0, sequence.tokens(0, limit)
        start = min(part[0], first)
        return start, sequence.tokens(start, limit if self.cache == "prefix" else part[1])

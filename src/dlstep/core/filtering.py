"""Keep the decisions on a window within a constraint: masks to sample under, and blocks that drop contradictions."""

from collections.abc import Sequence
from dataclasses import replace

from .block import Block, Extra
from .constraint import Constraint, RequestConstraint, TokenMask
from .errors import DlstepError
from .sequence import SequenceState
from .values import maker, value


def masks_of(sequence: SequenceState, sampled: tuple[int, ...]) -> tuple[TokenMask, ...]:
    """Return the ids that each of the positions `sampled` may hold; () without a constraint."""
    constraint = sequence.request_spec.constraint
    if constraint is None:
        return ()
    state, since = sequence.accounting.stop_state.state, sequence.settled
    if sampled[0] < since:  # a rule may look at tokens that are settled
        since = sampled[0]
        state = constraint.run(0, sequence.tokens(constraint.start, since))
    return constraint.window_masks(state, since, sequence.window, sampled)


def window_filter_of(sequence: SequenceState, window: tuple[Block, ...]) -> "WindowFilter | None":
    """Return what keeps the decisions on `window` within the constraint; None without one."""
    constraint = sequence.request_spec.constraint
    if constraint is None:
        return None
    return WindowFilter(constraint, sequence.accounting.stop_state.state, sequence.settled, window)


def passes_left(sequence: SequenceState, block: Block, scheduled: int, *, remasks: bool = False) -> int:
    """Return a bound on the passes that an unfinished block needs, of which its schedule has `scheduled` left.

    Under a constraint, the schedule may leave masks. From its last pass on, a block that must
    advance unmasks at least one position in each pass and remasks none, so the constraint adds at
    most a pass for each position that is masked then. Until then, a rule that `remasks` may have
    remasked any position.
    """
    if sequence.request_spec.constraint is None:
        return scheduled
    may_be_masked = block.sampled(sequence.request_spec.limit) if remasks and scheduled > 1 else block.masked
    return max(0, scheduled) + len(may_be_masked)


def passes_to_come(sequence: SequenceState, scheduled: int, positions: int) -> int:
    """Return a bound on the passes for unopened blocks of `positions`, whose schedules have `scheduled`."""
    return scheduled if sequence.request_spec.constraint is None else scheduled + positions


@value
class FilteredBlock(Block):
    """A block that unmasks or edits a token only if the window can still be completed with it.

    It replaces a block while a rule decides. `since` and `until` bound the positions that the
    constraint reads; `before` are the states at `since`, `after` those at `until` that can end.
    """

    constraint: Constraint | None = None
    since: int = 0
    until: int = 0
    before: int = 0
    after: int = 0

    @property
    def bounds(self) -> "tuple[Constraint, int, int, int, int]":
        """The fields that a block does not have."""
        assert self.constraint is not None
        return self.constraint, self.since, self.until, self.before, self.after

    @property
    def plain(self) -> Block:
        """The block without the constraint."""
        return Block(self.start, self.tokens, self.masked, self.probabilities, self.given, self.opened, self.extra)

    @property
    def letters(self) -> list[int]:
        """The classes of the tokens of `[since, until)`."""
        assert self.constraint is not None
        letters = self.constraint.letters(self.start, self.tokens, self.masked)
        return letters[self.since - self.start : self.until - self.start]

    def kept(self, chosen: Sequence[int], tokens: Sequence[int], probabilities: Sequence[float]) -> list[int]:
        """Return at which of the positions `chosen` to write the new tokens, as indices, ascending.

        All, if their tokens fit together. Otherwise the most probable first, each if it fits what
        was kept before. The first one always fits if its token was sampled under its mask.
        """
        constraint, since, _, before, after = self.bounds
        letters = self.letters
        proposed = letters.copy()
        for position, token in zip(chosen, tokens, strict=True):
            proposed[position - since] = constraint.class_of[token]
        if constraint.forward(before, proposed)[-1] & after:
            return list(range(len(chosen)))
        left, right = constraint.forward(before, letters).copy(), constraint.backward(letters, after).copy()
        kept: list[int] = []
        for index in sorted(range(len(chosen)), key=lambda index: (-probabilities[index], index)):
            place = chosen[index] - since
            if constraint.after(left[place], proposed[place]) & right[place + 1]:
                kept.append(index)
                letters[place] = proposed[place]
                _narrow(constraint, letters, place, left, right)
        return sorted(kept)

    def unmask_rows(
        self, chosen: Sequence[int], begin: int, tokens: Sequence[int], probabilities: Sequence[float]
    ) -> "FilteredBlock":
        """Return the block with those of the rows `chosen` unmasked that `kept` keeps."""
        masked = self.masked
        kept = self.kept(
            [masked[row - begin] for row in chosen], [tokens[row] for row in chosen], [probabilities[row] for row in chosen]
        )
        rows = [chosen[index] for index in kept]
        return self._with(Block.unmask_rows(self, rows, begin, tokens, probabilities))

    def unmask(self, chosen: Sequence[int], tokens: Sequence[int], probabilities: Sequence[float]) -> "FilteredBlock":
        """Return the block with those of the positions `chosen` unmasked that `kept` keeps."""
        kept = self.kept(chosen, tokens, probabilities)
        at = [chosen[index] for index in kept], [tokens[index] for index in kept], [probabilities[index] for index in kept]
        return self._with(Block.unmask(self, *at))

    def edit(self, chosen: Sequence[int], tokens: Sequence[int], probabilities: Sequence[float]) -> "FilteredBlock":
        """Return the block with the tokens of those of the unmasked positions `chosen` replaced that `kept` keeps."""
        new_tokens, new_probabilities = list(self.tokens), list(self.probabilities)
        for index in self.kept(chosen, tokens, probabilities):
            offset = chosen[index] - self.start
            new_tokens[offset], new_probabilities[offset] = tokens[index], probabilities[index]
        return replace(self, tokens=tuple(new_tokens), probabilities=tuple(new_probabilities))

    def remask(self, chosen: Sequence[int], mask_id: int) -> "FilteredBlock":
        """Return the block with `chosen` remasked, which no constraint forbids.

        Positions that `unmask` has just left masked stay so: a rule may remask what it unmasks.
        """
        masked = set(self.masked)
        return self._with(Block.remask(self, [position for position in chosen if position not in masked], mask_id))

    def with_extra(self, extra: Extra | None) -> "FilteredBlock":
        """Return the block with `extra` replaced."""
        return self._with(Block.with_extra(self, extra))

    def part(self, start: int, end: int, opened: int, *, restart: bool = False) -> "FilteredBlock":
        """Return the positions `[start, end)` as a block with the bounds that the others leave."""
        constraint, since, until, before, after = self.bounds
        letters, first, last = self.letters, max(start, since), min(end, until)
        before = constraint.forward(before, letters[: first - since])[-1]
        after = constraint.backward(letters[last - since :], after)[0]
        part = Block.part(self.plain, start, end, opened, restart=restart)
        return filtered(part, constraint, first, last, before, after)

    def with_part(self, part: Block) -> "FilteredBlock":
        """Return the block with tokens, masked positions and `extra` of its `part`."""
        return self._with(Block.with_part(self, part))

    def _with(self, block: Block) -> "FilteredBlock":
        return filtered(block, *self.bounds)


_filtered = maker(FilteredBlock)


def filtered(block: Block, constraint: Constraint, since: int, until: int, before: int, after: int) -> FilteredBlock:
    """Return `block` with bounds on what may be unmasked in it."""
    return _filtered(
        block.start, block.tokens, block.masked, block.probabilities, block.given, block.opened, block.extra,
        constraint, since, until, before, after,
    )  # fmt: skip


def _narrow(constraint: Constraint, letters: Sequence[int], place: int, left: list[int], right: list[int]) -> None:
    """Update forward sets after `place` and backward sets before it, until they no longer change."""
    for index in range(place, len(letters)):
        states = constraint.after(left[index], letters[index])
        if states == left[index + 1]:
            break
        left[index + 1] = states
    for index in range(place, -1, -1):
        states = constraint.before(right[index + 1], letters[index])
        if states == right[index]:
            break
        right[index] = states


class WindowFilter:
    """Lends each block of a window, from left to right, the bounds under which a rule decides it.

    Used only inside `commit`. The bounds on the left reflect what earlier blocks just decided, those
    on the right the later blocks as they were fed.
    """

    def __init__(self, constraint: RequestConstraint, state: int, settled: int, window: Sequence[Block]) -> None:
        self._of, self._before, self._settled = constraint, 1 << state, settled
        end = min(window[-1].end, constraint.limit)
        after = constraint.ends[max(0, end - constraint.start)]
        self._after: dict[int, int] = {}  # by the start of a block: the states at its end
        for block in reversed(window):
            self._after[block.start] = after
            letters = constraint.constraint.letters(block.start, block.tokens, block.masked)[: constraint.limit - block.start]
            after = constraint.constraint.backward(letters[max(0, settled - block.start) :], after)[0]

    def enter(self, block: Block) -> FilteredBlock:
        """Return the block with its bounds."""
        since = min(max(block.start, self._settled), block.end)
        until = max(since, min(block.end, self._of.limit))
        return filtered(block, self._of.constraint, since, until, self._before, self._after[block.start])

    def skip(self, block: Block) -> None:
        """Pass a block that no rule decides."""
        self.leave(block, self.enter(block))

    def leave(self, block: Block, entered: Block) -> Block:
        """Return the block, which `entered` became, without its bounds; the next one starts at its end.

        Raises DlstepError if it cannot be completed: a rule set tokens by other means than `unmask`.
        """
        assert isinstance(entered, FilteredBlock)
        done = filtered(block, *entered.bounds)
        self._before = self._of.constraint.forward(self._before, done.letters)[-1]
        if not self._before & entered.after:
            raise DlstepError(
                f"tokens of [{block.start}, {block.end}) contradict {self._of.automaton.source}: under a constraint, a rule "
                "must set tokens with Block.unmask or Block.unmask_rows"
            )
        return done.plain

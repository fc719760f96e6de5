"""Keep a window within a constraint: masks for sampling, and blocks that drop contradicting tokens."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from operator import attrgetter
from typing import NamedTuple

from .automaton import StateSet, moved, sets_after, sets_before
from .block import Block, Extra
from .constraint import Constraint, LazyMasks, RequestConstraint, TokenMask
from .errors import DlstepError
from .sequence import SequenceState, token_masks
from .spec import Positions


def span_masks(sequence: SequenceState, sampled: Positions) -> tuple[TokenMask, ...] | LazyMasks:
    """Return the mask of each position that the span of a sequence samples, computed when it is read; () without a constraint.

    If the strategy gives the answers of autoregressive decoding, each mask depends only on the tokens before its position.
    """
    constraint = sequence.request.constraint
    if constraint is None:
        return ()
    if sequence.request.strategy.autoregressive is None:
        return LazyMasks(len(sampled), partial(token_masks, sequence, sampled))
    return LazyMasks(len(sampled), partial(constraint.causal_masks, sequence.stop_state.state, sequence.progress.window[0]))


def window_filter_of(sequence: SequenceState, window: tuple[Block, ...]) -> "WindowFilter | None":
    """Return the filter that keeps the blocks of `window` within the constraint; None without a constraint."""
    constraint = sequence.request.constraint
    if constraint is None:
        return None
    return WindowFilter(constraint, sequence.stop_state.state, sequence.progress.settled, window)


def passes_left(sequence: SequenceState, block: Block, scheduled: int, *, remasks: bool = False) -> int:
    """Return an upper bound on the forward passes that an unfinished block still needs.

    `scheduled` is the bound of its rule or strategy, which ignores the constraint. A constraint may
    drop tokens, so masks may be left when the schedule ends. From the last scheduled pass on, a
    block that must advance unmasks at least one position in each pass and remasks none. The
    constraint therefore adds at most one pass for each position that may be masked by then: each
    sampled position if the rule `remasks` and more than one scheduled pass is left, otherwise each
    position that is masked now.
    """
    if sequence.request.constraint is None:
        return scheduled
    may_be_masked = block.sampled(sequence.request.limit) if remasks and scheduled > 1 else block.masked
    return max(0, scheduled) + len(may_be_masked)


def passes_to_come(sequence: SequenceState, scheduled: int, positions: int) -> int:
    """Return an upper bound on the forward passes for blocks that are not open yet.

    `scheduled` is the bound without a constraint, `positions` the number of positions of these
    blocks. A constraint adds at most one pass for each position.
    """
    return scheduled if sequence.request.constraint is None else scheduled + positions


# Why a block drops contradicting tokens itself, in the rule's `commit`, and not the strategy afterwards.
#
# A mask is exact for one position, given the tokens that are not masked. Positions sampled in the same pass cannot see
# each other: under `ab|ba`, both may propose `a`, and one of them must stay masked. If the strategy masked this position
# after the rule had committed both, the rule would have counted, remasked or sealed with a token that is gone. A rule
# that unmasks two positions per pass and remasks the less certain one would keep losing the other, in an endless cycle,
# and a block could be sealed while it has masks. Here, what the rule derives from the block that `unmask` returns is
# always about tokens that are kept.
#
# The order decides which token is dropped: blocks from left to right, and in a block the most probable token first. The
# first token of the first block was sampled under a mask that accounts for everything else in the window, so it always
# fits. Each pass therefore unmasks at least one position, which bounds the number of passes (`passes_left`).
# Remasking needs no filter: if a window can be completed, it can also be completed with fewer tokens.
#
# The device idles while the filter runs, but not while masks are computed. The filter therefore starts from the state sets that
# the masks of this pass have already cached, on the left and on the right of the new tokens: only the letters from the first to
# the last new token lead to new sets. The masks keep the reserve free (`end_reserve`), so on the right they have visited only
# some of the states from which the answer can end (`likely`); the filter computes all of them (`after`) if these do not
# suffice. Sets that may not be needed are functions.


States = Callable[[], StateSet]


class _Later:
    """The set that `letters` lead to from the set of `origin`, computed on the first call."""

    __slots__ = ("_found", "_letters", "_origin")

    def __init__(self, origin: States, letters: Sequence[int]) -> None:
        self._origin, self._letters = origin, letters
        self._found: StateSet | None = None

    def __call__(self) -> StateSet:
        if self._found is None:
            self._found = moved(self._origin(), self._letters)
        return self._found


class Bounds(NamedTuple):
    """The constraint of a block, the range `[since, until)` of its positions that are constrained, and the states around it."""

    constraint: Constraint
    since: int
    until: int
    before: States
    """The states in which the automaton may be before it reads position `since`."""
    after: States
    """The states before position `until` from which the rest of the answer can be completed."""
    likely: States
    """The states of `after` that tokens allowed by the masks of this pass can reach."""


_FIELDS = attrgetter(*[each.name for each in fields(Block)])


@dataclass(frozen=True, slots=True)
class FilteredBlock(Block):
    """A block that unmasks or edits a token only if the window can still be completed with it.

    A rule's `commit` receives it instead of the plain block.
    """

    bounds: Bounds = field(kw_only=True)
    checked: tuple[object, ...] = field(kw_only=True)
    """The last tokens and masked positions with which the window is known to be completable; () if there are none."""

    @property
    def plain(self) -> Block:
        """The block without its bounds."""
        return Block(*_FIELDS(self))

    @property
    def letters(self) -> list[int]:
        """The class of each token of `[since, until)`, and ANY for masked positions."""
        constraint, since, until, *_ = self.bounds
        return constraint.letters(self.start, self.tokens, self.masked)[since - self.start : until - self.start]

    def compatible(self, chosen: Sequence[int], tokens: Sequence[int], probabilities: Sequence[float]) -> list[int]:
        """Return the indices into `chosen` of the tokens to write, ascending.

        If the window can be completed with all tokens, all are kept. Otherwise they are tried by
        descending probability, and each is kept if the window can still be completed with it and
        those kept before. The first one tried is always kept if it was sampled under its mask.

        Args:
            chosen: Positions.
            tokens: The token for each position.
            probabilities: The probability of each token.
        """
        constraint, since, _, before, after, likely = self.bounds
        if not chosen:
            return []
        letters = self.letters
        proposed = letters.copy()
        for position, token in zip(chosen, tokens, strict=True):
            proposed[position - since] = constraint.class_of[token]
        last = max(chosen) - since
        if constraint.leads(moved(before(), proposed[:last]), proposed[last], moved(likely(), letters[:last:-1])):
            return list(range(len(chosen)))
        # From here on, `letters` has the tokens kept so far, and `left` and `right` are their forward and backward sets.
        left, right = sets_after(before(), letters), sets_before(letters, after())
        kept: list[int] = []
        for index in sorted(range(len(chosen)), key=lambda index: (-probabilities[index], index)):
            place = chosen[index] - since
            if left[place][proposed[place]].bitmap & right[place + 1].bitmap:
                kept.append(index)
                letters[place] = proposed[place]
                left[place:] = sets_after(left[place], letters[place:])
                right[: place + 2] = sets_before(letters[: place + 1], right[place + 1])
        return sorted(kept)

    def unmask(self, chosen: Sequence[int], tokens: Sequence[int], probabilities: Sequence[float]) -> "FilteredBlock":
        """Return the block after unmasking those positions in `chosen` that `compatible` selects."""
        return self._with(Block.unmask(self, *self._chosen(chosen, tokens, probabilities)))

    def edit(self, chosen: Sequence[int], tokens: Sequence[int], probabilities: Sequence[float]) -> "FilteredBlock":
        """Return the block with new tokens at those unmasked positions in `chosen` that `compatible` selects."""
        return self._with(Block.edit(self, *self._chosen(chosen, tokens, probabilities)))

    def _chosen(
        self, chosen: Sequence[int], tokens: Sequence[int], probabilities: Sequence[float]
    ) -> tuple[list[int], list[int], list[float]]:
        """Return the items of `chosen`, `tokens` and `probabilities` that `compatible` selects."""
        kept = self.compatible(chosen, tokens, probabilities)
        return [chosen[index] for index in kept], [tokens[index] for index in kept], [probabilities[index] for index in kept]

    def remask(self, chosen: Sequence[int], mask_id: int) -> "FilteredBlock":
        """Return the block with the positions `chosen` remasked, which no constraint forbids.

        A rule may remask positions that it has just unmasked. If `unmask` dropped their tokens, they
        are masked already and are skipped.
        """
        masked = set(self.masked)
        return self._with(Block.remask(self, [position for position in chosen if position not in masked], mask_id))

    def with_extra(self, extra: Extra | None) -> "FilteredBlock":
        """Return the block with `extra` replaced."""
        return self._with(Block.with_extra(self, extra))

    def part(self, start: int, end: int, opened: int, *, restart: bool = False) -> "FilteredBlock":
        """Return the positions `[start, end)` as a block, with bounds that account for the other positions."""
        constraint, since, until, before, *ends = self.bounds
        letters, first, last = self.letters, max(start, since), min(end, until)
        after, likely = [_Later(each, letters[last - since :][::-1]) for each in ends]
        part = Block.part(self.plain, start, end, opened, restart=restart)
        return filtered(part, Bounds(constraint, first, last, _Later(before, letters[: first - since]), after, likely))

    def with_part(self, part: Block) -> "FilteredBlock":
        """Return the block with the tokens, masked positions and `extra` of `part`."""
        return filtered(Block.with_part(self, part), self.bounds, checked=False)  # `part` may come from another block

    @property
    def is_checked(self) -> bool:
        """Whether the window is known to be completable, because methods of this class made the tokens and masked positions."""
        return self.checked == (self.tokens, self.masked)

    def _with(self, block: Block) -> "FilteredBlock":
        return filtered(block, self.bounds, checked=self.is_checked)


def filtered(block: Block, bounds: Bounds, *, checked: bool = True) -> FilteredBlock:
    """Return `block` with `bounds`. `checked`: whether the window is known to be completable with it."""
    return FilteredBlock(*_FIELDS(block), bounds=bounds, checked=(block.tokens, block.masked) if checked else ())


class WindowFilter:
    """A filter that gives each block of a window, from left to right, its bounds for the rule's `commit`.

    A filter is used within one `commit` of a strategy. The bounds account for the tokens that were
    just kept in earlier blocks, and for later blocks as they were fed. `state` is the automaton's
    state before position `settled`.
    """

    def __init__(self, constraint: RequestConstraint, state: int, settled: int, window: Sequence[Block]) -> None:
        self._of, self._settled, self._fed = constraint, settled, window[0]
        start = constraint.constraint.states(1 << state)
        end = max(0, min(window[-1].end, constraint.limit) - constraint.start)
        read = _Later(lambda: start, constraint.letters(settled, window))
        self._before: States = lambda: start
        ends: tuple[States, States] = (lambda: constraint.ends[end]), (lambda: constraint.likely_ends(end, read()))
        self._ends = {window[-1].start: ends}  # by the start of a block: the states after it from which the answer can end
        for block, following in zip(reversed(window[:-1]), reversed(window), strict=False):
            letters = constraint.letters(settled, (following,))[::-1]
            ends = self._ends[block.start] = _Later(ends[0], letters), _Later(ends[1], letters)

    def enter(self, block: Block) -> FilteredBlock:
        """Return the block with its bounds."""
        # `before` already accounts for settled positions, and positions past the answer are not constrained.
        since = min(max(block.start, self._settled), block.end)
        until = max(since, min(block.end, self._of.limit))
        self._fed = block
        return filtered(block, Bounds(self._of.constraint, since, until, self._before, *self._ends[block.start]))

    def leave(self, done: Block, entered: Block) -> Block:
        """Return a block after its pass, without bounds, and advance the filter to the end of the block.

        Args:
            done: The block after the pass, with bounds or without.
            entered: The block before the pass, as the last call of `enter` returned it.

        Raises:
            DlstepError: If the window cannot be completed with the tokens of `done`. The rule must then have set tokens
                without `unmask` or `unmask_rows`.
        """
        assert isinstance(entered, FilteredBlock)
        constraint, since, until, before, after, _ = entered.bounds
        letters = constraint.letters(done.start, done.tokens, done.masked)
        self._before = _Later(before, letters[since - done.start : until - done.start])
        checked = isinstance(done, FilteredBlock) and done.is_checked
        if not checked and not self._before().bitmap & after().bitmap:
            raise DlstepError(
                f"tokens of [{done.start}, {done.end}) contradict {self._of.automaton.source}: under a constraint, a rule "
                "must set tokens with Block.unmask or Block.unmask_rows"
            )
        if done is entered:
            return self._fed
        return done.plain if isinstance(done, FilteredBlock) else done

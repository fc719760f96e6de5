"""Multi-block diffusion with edit sampling: masks are filled and tokens edited until a block stops changing.

Every forward fills the masks it is sure of, at least one, and replaces tokens that it now says otherwise. A block is ready when
a forward changes nothing in it, or after enough forwards. Source: Bie et al., "LLaDA2.1: Speeding Up Text Diffusion via Token
Editing", 2026, arXiv 2602.08676; SGLang calls the rule `joint_threshold`.
"""

from dataclasses import dataclass, replace
from itertools import compress
from operator import ne
from typing import Annotated, final

from annotated_types import Ge, Interval

from ..core import Block, Grid, Probability, Request, Rows, Sequence, Spec, Wants, positions, value
from ._blocks import mask_of
from ._edit import Revising, Revision, first_wanted, without_gaps

WANTS = Wants(ties="lowest", tempered=False)
REMASK_THRESHOLD = 0.4


@value
class Edited(Revision):
    """State of an edited block: `post` counts forwards that found no mask in it.

    `remasked` is a bitmap of the offsets that were turned back into a mask.
    """

    post: int = 0
    remasked: int = 0


NEW = Edited()
STEADY = Edited(stable=1.0)


@value
class _Rule:
    """Thresholds in force for one request; `remask` is 0 if tokens are never turned back into masks."""

    edit: float
    remask: float
    most_post: int
    mask: int


@final
@dataclass(frozen=True, slots=True)
class MultiBDEdit(Revising):
    """Blocks on the grid of the model, filled and edited; see `Blockwise` for the fields not told of here.

    A mask is filled if the probability of its token is above `accept_threshold`, the surest one of a block in any case. A
    token is replaced if that of another one is above `edit_threshold`. A block is ready when neither happens, when more than
    `max_post_edit_steps` forwards found no mask in it, whose edits are then dropped, or after `block_size` +
    `max_post_edit_steps` forwards and one more, which fills all masks. `penalty_lambda` is taken from the logit of the token
    in front of a position in its block, which keeps tokens from being repeated.

    With `remasking`, a position becomes a mask again, once, if the likeliest token there has a probability below
    `remask_threshold` (0.4 if None), be it another one or not.
    """

    accept_threshold: Probability = 0.9
    """A position is decided when the probability of its token is above this."""
    edit_threshold: Probability = 0.0
    """A decided token is replaced when another one is best and its probability is above this."""
    max_post_edit_steps: Annotated[int, Ge(0)] = 16
    """Forwards that may still change a block once it holds no mask."""
    penalty_lambda: Annotated[float, Interval(ge=0.0, lt=float("inf"))] = 0.0
    """Subtracted from the logit of the token in front of a position, so that tokens are not repeated."""
    remasking: bool = False
    """Mask a position again, at most once, when its probability falls below `remask_threshold`."""
    remask_threshold: Probability | None = None
    """With `remasking`: the probability below which a position is masked again; None: 0.4."""

    def __post_init__(self) -> None:
        Revising.__post_init__(self)
        if self.remask_threshold is not None and not self.remasking:
            raise ValueError(f"MultiBDEdit.remask_threshold={self.remask_threshold} does nothing without remasking=True")

    def grid(self, request: Request) -> Grid:
        """Groups of `block_size` from position 0 on."""
        del request
        return Grid(0, self.block_size)

    @property
    def wants(self) -> Wants:
        """Ties go to the lowest id; probabilities are those at temperature 1."""
        return WANTS

    @property
    def most_forwards(self) -> int:
        """A position each, the edits after, and the one that fills what is left."""
        return self.block_size + self.max_post_edit_steps + 1

    def penalty(self) -> float:
        """`penalty_lambda`."""
        return self.penalty_lambda

    def revised(self, sequence: Sequence, blocks: tuple[Block, ...], rows: Rows, spec: Spec) -> tuple[Block, ...]:
        """The open blocks with their masks filled and their tokens edited."""
        first, late = first_wanted(blocks), sequence.ledger.steps - self.most_forwards
        if sequence.goal.request.params.pinned:
            rows = without_gaps(rows, blocks, sequence.goal.limit)
        chosen, changes = _compared(blocks, first, rows, self.accept_threshold, mask_of(spec))
        calm = not (changes or self.remasking)
        revised: list[Block] = []
        for block, fills in zip(blocks, chosen, strict=True):
            if calm and fills:  # without remasking, a block with masks has never been full, nor is its time over
                revised.append(_rewritten(block, first, fills, [], rows, STEADY))
            else:
                mine = [position for position in changes if block.start <= position < block.end]
                rule = self._rule(spec)
                if block.opened <= late:
                    revised.append(_timed_out(block, first, mine, rows, rule))
                else:
                    end = min(block.end, sequence.goal.limit)
                    revised.append(_edited(block, first, fills, mine, end, rows, rule))
        return tuple(revised)

    def _rule(self, spec: Spec) -> _Rule:
        remask = REMASK_THRESHOLD if self.remask_threshold is None else self.remask_threshold
        return _Rule(self.edit_threshold, remask if self.remasking else 0.0, self.max_post_edit_steps, mask_of(spec))


def _compared(blocks: tuple[Block, ...], first: int, rows: Rows, accept: float, mask: int) -> tuple[list[list[int]], list[int]]:
    """The masks to fill, block by block, and the positions of all blocks whose token is another one now.

    Filled are the masks of a block that are surer than `accept`, else its surest, of equally sure ones the first. Row `i`
    answers position `first + i`.
    """
    probabilities, now = rows.probabilities, list(rows.tokens)
    chosen: list[list[int]] = []
    held: list[int] = []
    for block in blocks:
        held += block.tokens
        undecided = block.undecided
        most, surest = -1.0, 0
        for position in undecided:
            row = position - first
            now[row] = mask  # nothing is changed where no token is
            probability = probabilities[row]
            if probability > most:
                most, surest = probability, position
        if most > accept:
            chosen.append([position for position in undecided if probabilities[position - first] > accept])
        else:
            chosen.append([surest] if undecided else [])
    del held[: first - blocks[0].start], held[len(now) :]  # what is given, what is void
    if held == now:
        return chosen, []
    return chosen, list(compress(positions(first, first + len(now)), map(ne, held, now)))


def _edited(block: Block, first: int, fills: list[int], changes: list[int], end: int, rows: Rows, rule: _Rule) -> Block:
    """The block after a forward whose row `i` answers position `first + i`.

    `fills` are the masks to fill, `changes` its tokens that differ now. Its last wanted position is the one in front of
    `end`.
    """
    before = block.extra if isinstance(block.extra, Edited) else NEW
    undecided, probabilities = block.undecided, rows.probabilities
    stable = 1.0
    if changes:
        stable -= len(changes) / (end - block.start - block.given.bit_count() - len(undecided))
        changes = [position for position in changes if probabilities[position - first] > rule.edit]
    post = before.post if undecided else before.post + 1
    unsure = _unsure(block, first, end, rows, rule) if rule.remask else ()
    if not undecided and (post > rule.most_post or not (changes or unsure)):
        return block.remembering(Edited(True, stable, post, before.remasked))
    after = _rewritten(block, first, fills, changes, rows, Edited(False, stable, post, before.remasked))
    return _remasked(after, unsure, rule.mask) if unsure else after


def _timed_out(block: Block, first: int, changes: list[int], rows: Rows, rule: _Rule) -> Block:
    """The block with every mask filled and the last edits."""
    before = block.extra if isinstance(block.extra, Edited) else NEW
    edits = [position for position in changes if rows.probabilities[position - first] > rule.edit]
    after = Edited(True, 1.0, before.post + (not block.undecided), before.remasked)
    return _rewritten(block, first, list(block.undecided), edits, rows, after)


def _unsure(block: Block, first: int, end: int, rows: Rows, rule: _Rule) -> tuple[int, ...]:
    """The positions to mask again: decided ones that are unsure now, and were not masked again before."""
    start = block.first
    probabilities = rows.probabilities[start - first : end - first]
    if not probabilities or min(probabilities) >= rule.remask:
        return ()
    done = block.extra.remasked if isinstance(block.extra, Edited) else 0
    low = [position for position, probability in enumerate(probabilities, start) if probability < rule.remask]
    undecided = set(block.undecided)
    return tuple([position for position in low if position not in undecided and not done >> (position - block.start) & 1])


def _remasked(block: Block, unsure: tuple[int, ...], mask: int) -> Block:
    """The block with masks at the positions `unsure`."""
    extra = block.extra
    assert isinstance(extra, Edited)
    done = sum(1 << (position - block.start) for position in unsure)
    return block.mask(unsure, mask).remembering(replace(extra, remasked=extra.remasked | done))


def _rewritten(block: Block, first: int, fills: list[int], edits: list[int], rows: Rows, extra: Edited) -> Block:
    """The block with the masks `fills` and the tokens `edits` written; row `i` answers position `first + i`."""
    start, tokens, probabilities = block.start, rows.tokens, rows.probabilities
    undecided = list(block.undecided)
    new_tokens, new_probabilities = list(block.tokens), list(block.probabilities)
    for position in fills:
        undecided.remove(position)
        new_tokens[position - start] = tokens[position - first]
        new_probabilities[position - start] = probabilities[position - first]
    for position in edits:
        new_tokens[position - start] = tokens[position - first]
        new_probabilities[position - start] = probabilities[position - first]
    return Block(start, tuple(new_tokens), tuple(undecided), tuple(new_probabilities), block.given, block.opened, extra)


STRATEGY = MultiBDEdit

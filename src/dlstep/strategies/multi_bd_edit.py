"""Multi-block diffusion with edit sampling: masks are filled and tokens edited until a block stops changing.

Every forward fills the masks it is sure of, at least one, and replaces tokens that it now says otherwise. A block is ready
when a forward changes nothing in it, or after enough forwards. Source: Bie et al., "LLaDA2.1: Speeding Up Text Diffusion via
Token Editing", 2026; SGLang calls the rule `joint_threshold`.
"""

from dataclasses import dataclass, replace
from itertools import compress
from operator import ne
from typing import Annotated, final

from annotated_types import Ge, Interval

from ..core import Block, Grid, Request, Rows, Sequence, Spec, Wants
from ..core.block import positions
from ..core.request import Probability
from ._blocks import mask_of
from ._edit import Revising, Revision, first_wanted, remembering

WANTS = Wants(ties="lowest", tempered=False)
REMASK_THRESHOLD = 0.4


@dataclass(frozen=True, slots=True)
class Edited(Revision):
    """What an edited block remembers: `post` counts forwards that found no mask in it.

    `remasked` is a bitmap of the offsets that were turned back into a mask.
    """

    post: int = 0
    remasked: int = 0


NEW = Edited()


@dataclass(frozen=True, slots=True)
class _Rule:
    """What is in force for one request; `remask` is 0 if tokens are never turned back into masks."""

    accept: float
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
    edit_threshold: Probability = 0.0
    max_post_edit_steps: Annotated[int, Ge(0)] = 16
    penalty_lambda: Annotated[float, Interval(ge=0.0, lt=float("inf"))] = 0.0
    remasking: bool = False
    remask_threshold: Probability | None = None

    def __post_init__(self) -> None:
        Revising.__post_init__(self)
        if self.remask_threshold is not None and not self.remasking:
            raise ValueError(f"MultiBDEdit.remask_threshold={self.remask_threshold} does nothing without remasking=True")

    def grid(self, request: Request) -> Grid:
        """Groups of `block_size` from position 0 on."""
        del request
        return Grid(0, self.block_size)

    def refuses(self, request: Request) -> str:
        """A threshold of what the strategy does not do."""
        given = request.params.thresholds.remask_threshold
        return "" if given is None or self.remasking else f"remask_threshold={given} does nothing without remasking=True"

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
        goal, steps, last = sequence.goal, sequence.ledger.steps, self.most_forwards
        rule, first = self._rule(goal.request, spec), first_wanted(blocks)
        changes = _differing(blocks, first, rows.tokens)
        revised: list[Block] = []
        for block in blocks:
            mine = [position for position in changes if block.start <= position < block.end] if changes else []
            if steps - block.opened >= last:
                revised.append(_timed_out(block, first, mine, rows, rule))
            else:
                revised.append(_edited(block, first, mine, min(block.end, goal.limit), rows, rule))
        return tuple(revised)

    def _rule(self, request: Request, spec: Spec) -> _Rule:
        given = request.params.thresholds
        remask = 0.0
        if self.remasking:
            own = REMASK_THRESHOLD if self.remask_threshold is None else self.remask_threshold
            remask = own if given.remask_threshold is None else given.remask_threshold
        accept = self.accept_threshold if given.accept_threshold is None else given.accept_threshold
        edit = self.edit_threshold if given.edit_threshold is None else given.edit_threshold
        return _Rule(accept, edit, remask, self.max_post_edit_steps, mask_of(spec))


def _edited(block: Block, first: int, changes: list[int], end: int, rows: Rows, rule: _Rule) -> Block:
    """The block after a forward whose row `i` answers position `first + i`; `changes` are its tokens that differ now.

    Its last wanted position is the one in front of `end`.
    """
    before = block.extra if isinstance(block.extra, Edited) else NEW
    undecided, probabilities = block.undecided, rows.probabilities
    stable = 1.0
    if changes:
        stable -= len(changes) / (end - block.start - block.given.bit_length() - len(undecided))
        changes = [position for position in changes if probabilities[position - first] > rule.edit]
    post = before.post if undecided else before.post + 1
    unsure = _unsure(block, first, end, rows, rule) if rule.remask else ()
    if not undecided and (post > rule.most_post or not (changes or unsure)):
        return remembering(block, Edited(True, stable, post, before.remasked))
    chances = [probabilities[position - first] for position in undecided]
    chosen: list[int] = []
    if chances:
        surest = max(chances)
        if surest > rule.accept:
            chosen = [place for place, chance in enumerate(chances) if chance > rule.accept]
        else:  # the surest in any case, of equally sure ones the first
            chosen = [chances.index(surest)]
    if before.ready or before.stable != stable or before.post != post:
        before = Edited(False, stable, post, before.remasked)
    after = _rewritten(block, first, chosen, changes, rows, before)
    return _remasked(after, unsure, rule.mask) if unsure else after


def _timed_out(block: Block, first: int, changes: list[int], rows: Rows, rule: _Rule) -> Block:
    """The block with every mask filled and the last edits."""
    before = block.extra if isinstance(block.extra, Edited) else NEW
    edits = [position for position in changes if rows.probabilities[position - first] > rule.edit]
    after = Edited(True, 1.0, before.post + (not block.undecided), before.remasked)
    return _rewritten(block, first, range(len(block.undecided)), edits, rows, after)


def _unsure(block: Block, first: int, end: int, rows: Rows, rule: _Rule) -> tuple[int, ...]:
    """The positions to mask again: decided ones that are unsure now, and were not masked again before."""
    start = block.start + block.given.bit_length()
    probabilities = rows.probabilities[start - first : end - first]
    if min(probabilities) >= rule.remask:
        return ()
    done = block.extra.remasked if isinstance(block.extra, Edited) else 0
    low = [position for position, probability in enumerate(probabilities, start) if probability < rule.remask]
    undecided = set(block.undecided)
    return tuple([position for position in low if position not in undecided and not done >> (position - block.start) & 1])


def _remasked(block: Block, unsure: tuple[int, ...], mask: int) -> Block:
    """The block with masks at the positions `unsure`."""
    tokens, probabilities, extra = list(block.tokens), list(block.probabilities), block.extra
    assert isinstance(extra, Edited)
    done = extra.remasked
    for position in unsure:
        tokens[position - block.start], probabilities[position - block.start] = mask, 0.0
        done |= 1 << (position - block.start)
    undecided = tuple(sorted((*block.undecided, *unsure)))
    return replace(
        block,
        tokens=tuple(tokens),
        undecided=undecided,
        probabilities=tuple(probabilities),
        extra=Edited(extra.ready, extra.stable, extra.post, done),
    )


def _differing(blocks: tuple[Block, ...], first: int, tokens: tuple[int, ...]) -> list[int]:
    """The decided positions whose token is not the one of `tokens`, which begin with that of position `first`."""
    held = blocks[0].tokens[first - blocks[0].start :]
    for block in blocks[1:]:
        held += block.tokens
    found = list(compress(positions(first, first + len(tokens)), map(ne, held, tokens)))
    if len(found) == sum([len(block.undecided) for block in blocks]):
        return []  # those where no token is: the mask is never sampled
    return sorted(set(found).difference(*[block.undecided for block in blocks]))


def _rewritten(block: Block, first: int, chosen: list[int] | range, changes: list[int], rows: Rows, extra: Edited) -> Block:
    """The block with the entries `chosen` of `undecided`, ascending, and the positions `changes` written.

    Row `i` answers position `first + i`.
    """
    start, tokens, probabilities = block.start, rows.tokens, rows.probabilities
    undecided = list(block.undecided)
    new_tokens, new_probabilities = list(block.tokens), list(block.probabilities)
    for place in reversed(chosen):
        position = undecided.pop(place)
        new_tokens[position - start] = tokens[position - first]
        new_probabilities[position - start] = probabilities[position - first]
    for position in changes:
        new_tokens[position - start] = tokens[position - first]
        new_probabilities[position - start] = probabilities[position - first]
    return Block(start, tuple(new_tokens), tuple(undecided), tuple(new_probabilities), block.given, block.opened, extra)


STRATEGY = MultiBDEdit

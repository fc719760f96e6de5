"""DMax: blocks filled from the left, refreshed in every forward, and fed as soft tokens until they converge.

A decided position is fed as a blend of its token's embedding and the mask's, weighted by how sure the network was, so that a
wrong token can still be corrected; a block is ready when a forward changes nothing in it or is sure of all of it. Source: Chen
et al., "DMax: Aggressive Parallel Decoding for dLLMs", 2026, arXiv 2604.08302, and for `iter_smooth_topk` the iteration
smoothing of dInfer.
"""

from dataclasses import dataclass
from functools import lru_cache
from operator import ne
from typing import Annotated, final, get_args

from annotated_types import Ge, Gt, Interval

from ..core import Block, Grid, Merge, Probability, Request, Rows, Sequence, SoftTokens, Spec, Wants, positions, value
from ..core.soft import MergeMode
from ._edit import Revising, Revision, first_wanted

CONFIDENT = 0.9  # a block all of whose positions are this sure is ready, as in the paper's code


@value
class Softened(Revision):
    """State of a refreshed block: likeliest ids of each decided position, and their probabilities, as `Rows` has them."""

    ids: tuple[int, ...] = ()
    probabilities: tuple[float, ...] = ()


@final
@dataclass(frozen=True, slots=True)
class DMax(Revising):
    """Blocks on the grid of the model, filled from the left and refreshed; see `Blockwise` for the fields not told of here.

    Masks are filled from the left as long as the probability of their token is at least `accept_threshold`, the first one in
    any case; every token is replaced by the likeliest of the forward. A block is ready when a forward that leaves no mask
    changes nothing or is sure of every position (0.9), or after `block_size` forwards.

    Decided positions are fed as `token_merge_mode` says, see `Merge`: of the `token_merge_top_k` likeliest tokens, with
    `token_merge_renormalize` and `token_merge_weight`; weight 0 feeds plain tokens. `dmax_topk` blends one token with the
    mask, whatever the weight; `iter_smooth_topk` adds to the token fed, and knows no norm. A value that would do nothing is
    an error.
    """

    buffer_size: Annotated[int, Gt(0)] = 1
    """Blocks that may be unfinished at a time; 1 is single-block diffusion."""
    accept_threshold: Probability = 0.5
    """Masks are filled from the left while the probability of their token is at least this."""
    token_merge_mode: MergeMode = "dmax_topk"
    """A decided token is fed blended with the mask (`dmax_topk`), or with its best rivals added to it (`iter_smooth_topk`)."""
    token_merge_top_k: Annotated[int, Ge(1)] = 1
    """`iter_smooth_topk`: the number of tokens that are added."""
    token_merge_renormalize: bool = True
    """`dmax_topk`: keep the expected norm of the blended embedding."""
    token_merge_weight: Annotated[float, Interval(ge=0.0, lt=float("inf"))] = 1.0
    """`iter_smooth_topk`: weight of the tokens that are added; 0 feeds plain tokens in both modes."""

    def __post_init__(self) -> None:
        Revising.__post_init__(self)
        mode, weight = self.token_merge_mode, self.token_merge_weight
        if mode not in get_args(MergeMode):
            raise ValueError(f"DMax.token_merge_mode must be one of {', '.join(get_args(MergeMode))}, got {mode!r}")
        smooth = mode == "iter_smooth_topk"
        idle = (
            ("token_merge_top_k", self.token_merge_top_k, self.token_merge_top_k != 1 and not (smooth and weight)),
            ("token_merge_renormalize", False, not self.token_merge_renormalize and (smooth or not weight)),
            ("token_merge_weight", weight, weight not in (0.0, 1.0) and not smooth),
        )
        for name, given, does_nothing in idle:
            if does_nothing:
                raise ValueError(
                    f"DMax.{name}={given} does nothing with token_merge_mode={mode!r}, token_merge_weight={weight}"
                )

    def grid(self, request: Request) -> Grid:
        """Groups of `block_size` from position 0 on."""
        del request
        return Grid(0, self.block_size)

    def unfit(self, spec: Spec) -> str:
        """A model without masks, or with fewer ids than are merged."""
        ids = spec.vocab_size - 1
        few = f"token_merge_top_k={self.token_merge_top_k}, and it has {ids} ids to sample"
        return Revising.unfit(self, spec) or (few if self.token_merge_top_k > ids else "")

    @property
    def wants(self) -> Wants:
        """Ties go to the lowest id; probabilities are those at temperature 1; with merging, the likeliest ids too."""
        return Wants(ties="lowest", best=self.token_merge_top_k if self.token_merge_weight else 0, tempered=False)

    @property
    def most_forwards(self) -> int:
        """A forward for each position."""
        return self.block_size

    def soft(self, blocks: tuple[Block, ...]) -> SoftTokens | None:
        """The soft tokens of all blocks; None if there are none."""
        top_k = self.token_merge_top_k
        at: tuple[int, ...] = ()
        ids: tuple[int, ...] = ()
        probabilities: tuple[float, ...] = ()
        for block in blocks:
            kept = block.extra
            if isinstance(kept, Softened):
                count = len(kept.ids) // top_k
                if block.given & (block.given + 1):
                    at += block.sampled(block.end)[:count]
                else:
                    first = block.start + block.given.bit_length()
                    at += positions(first, first + count)
                ids += kept.ids
                probabilities += kept.probabilities
        if not at:
            return None
        merge = _merge(self.token_merge_mode, self.token_merge_renormalize, self.token_merge_weight)
        return SoftTokens(at, ids, probabilities, merge)

    def revised(self, sequence: Sequence, blocks: tuple[Block, ...], rows: Rows, spec: Spec) -> tuple[Block, ...]:
        """The open blocks with masks filled from the left, all other tokens refreshed, and what they are fed as next."""
        del spec
        goal, steps, last, first = sequence.goal, sequence.ledger.steps, self.most_forwards, first_wanted(blocks)
        accept = self.accept_threshold
        if goal.request.params.pinned:
            return self._around_pins(sequence, blocks, rows)
        revised: list[Block] = []
        begin = 0
        for block in blocks:
            end = min(block.end, goal.limit) - first
            timed_out = steps - block.opened >= last
            revised.append(self._refreshed(block, begin, end, rows, accept, timed_out=timed_out))
            begin = end
        return tuple(revised)

    def _around_pins(self, sequence: Sequence, blocks: tuple[Block, ...], rows: Rows) -> tuple[Block, ...]:
        """The same for blocks with gaps between given tokens: each is refreshed as if it had no other positions."""
        steps, limit = sequence.ledger.steps, sequence.goal.limit
        revised: list[Block] = []
        begin = 0
        for block in blocks:
            places = block.sampled(limit)
            end = begin + len(places)
            timed_out = steps - block.opened >= self.most_forwards
            inner = _only(block, places)
            after = self._refreshed(inner, begin, end, rows, self.accept_threshold, timed_out=timed_out)
            revised.append(_put_back(block, places, after))
            begin = end
        return tuple(revised)

    def _refreshed(self, block: Block, begin: int, end: int, rows: Rows, accept: float, *, timed_out: bool) -> Block:
        """The block after a forward that rows `[begin, end)` answer.

        Rows `[begin, old)` refresh tokens, `[old, new)` fill masks, and those of `[new, end)` stay masks.
        """
        given, undecided, probabilities = block.given.bit_length(), block.undecided, rows.probabilities
        old = end - len(undecided)
        new = _filled(probabilities, old, end, accept)
        shift = given - begin  # from a row to the offset in the block
        tokens, held = rows.tokens[begin:old], block.tokens[given : old + shift]
        changes = sum(map(ne, tokens, held)) if tokens != held else 0  # comparing tuples is cheap, and most stay equal
        stays = new == old and not changes
        top_k = self.token_merge_top_k  # without merging, there are no likeliest ids
        after = Softened(
            new == end and (timed_out or stays or min(probabilities[begin:end]) >= CONFIDENT),
            1.0 - changes / (old - begin) if changes else 1.0,
            rows.best_ids[begin * top_k : new * top_k],
            rows.best_probabilities[begin * top_k : new * top_k],
        )
        if stays:  # only what the next forward is fed may differ
            return block.remembering(after)
        new_tokens, new_probabilities = list(block.tokens), list(block.probabilities)
        if changes:
            # A token that was sampled again keeps the probability with which it was decided.
            kept = zip(tokens, held, probabilities[begin:old], block.probabilities[given:], strict=False)
            new_probabilities[given : old + shift] = [now if token != before else then for token, before, now, then in kept]
        new_tokens[given : new + shift] = rows.tokens[begin:new]
        new_probabilities[old + shift : new + shift] = probabilities[old:new]
        left = undecided[new - old :]
        return Block(block.start, tuple(new_tokens), left, tuple(new_probabilities), block.given, block.opened, after)


def _only(block: Block, places: tuple[int, ...]) -> Block:
    """The positions `places` of the block, as a block at position 0."""
    start, undecided = block.start, set(block.undecided)
    tokens = tuple([block.tokens[place - start] for place in places])
    probabilities = tuple([block.probabilities[place - start] for place in places])
    masked = tuple([index for index, place in enumerate(places) if place in undecided])
    return Block(0, tokens, masked, probabilities, 0, block.opened, block.extra)


def _put_back(block: Block, places: tuple[int, ...], inner: Block) -> Block:
    """The block with its positions `places` as they are in `inner`."""
    tokens, probabilities = list(block.tokens), list(block.probabilities)
    for index, place in enumerate(places):
        tokens[place - block.start], probabilities[place - block.start] = inner.tokens[index], inner.probabilities[index]
    undecided = tuple([places[index] for index in inner.undecided])
    return Block(block.start, tuple(tokens), undecided, tuple(probabilities), block.given, block.opened, inner.extra)


@lru_cache(typed=True)
def _merge(mode: MergeMode, renormalize: bool, weight: float) -> Merge:
    """The one `Merge` of these values, which are checked when it is made."""
    return Merge(mode, renormalize, weight)


def _filled(probabilities: tuple[float, ...], begin: int, end: int, accept: float) -> int:
    """The row in front of which masks are filled, of those that `[begin, end)` answer: the first one in any case."""
    reach = min(begin + 1, end)
    if begin < end and probabilities[begin] >= accept:
        while reach < end and probabilities[reach] >= accept:
            reach += 1
    return reach


STRATEGY = DMax

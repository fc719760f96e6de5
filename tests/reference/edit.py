"""Edit sampling with a joint threshold: masks become tokens, and tokens become other tokens until nothing changes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from .models import MASK, Dense, Proposal
from .window import Block, BlockRules, open_window


@dataclass(frozen=True, kw_only=True)
class Rules(BlockRules):
    """Hyperparameters of the blocks and of the rule."""

    edit_threshold: float = 0.0
    max_post_edit_steps: int = 16
    penalty_lambda: float = 0.0
    remasking: bool = False
    remask_threshold: float = 0.4


@dataclass(frozen=True)
class Revision:
    """The rule's memory of a block: forwards before this one, those without masks, offsets that were masked again."""

    steps: int = 0
    post: int = 0
    remasked: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Verdict:
    """The block after a forward."""

    tokens: list[int]
    ready: bool
    ratio: float
    revision: Revision


def joint_threshold(
    tokens: Sequence[int], editable: Sequence[int], proposals: Sequence[Proposal], revision: Revision, rules: Rules
) -> Verdict:
    """A block after a forward; `editable` are the offsets that the rule may write, `proposals` has one for each offset."""
    masked = [i for i in editable if tokens[i] == MASK]
    filled = [i for i in editable if tokens[i] != MASK]
    post = revision.post + (not masked)
    fills = [i for i in masked if proposals[i].probability > rules.accept_threshold]
    if masked and not fills:
        fills = [max(masked, key=lambda i: proposals[i].probability)]
    again = [
        i
        for i in filled
        if rules.remasking and proposals[i].probability < rules.remask_threshold and i not in revision.remasked
    ]
    edits = [i for i in filled if proposals[i].token != tokens[i] and proposals[i].probability > rules.edit_threshold]
    same = [i for i in filled if proposals[i].token == tokens[i]]
    ratio = len(same) / len(filled) if filled else 1.0

    written = list(tokens)
    timed_out = revision.steps >= rules.block_size + rules.max_post_edit_steps
    if timed_out:
        for i in masked + edits:
            written[i] = proposals[i].token
        return Verdict(written, True, 1.0, Revision(revision.steps + 1, post, revision.remasked))
    if not (fills or edits or again) or (not masked and post > rules.max_post_edit_steps):
        return Verdict(written, True, ratio, Revision(revision.steps + 1, post, revision.remasked))
    for i in fills + edits:
        written[i] = proposals[i].token
    for i in again:
        written[i] = MASK
    return Verdict(written, False, ratio, Revision(revision.steps + 1, post, revision.remasked | set(again)))


def penalised(logits: Tensor, block: Block, penalty: float) -> Tensor:
    """Rows of a block, each without some of its liking for the token before it; the block's first row has none."""
    rows = logits[block.start : block.end].clone()
    for offset in range(1, len(block.tokens)):
        rows[offset, block.tokens[offset - 1]] -= penalty
    return rows


def decode(network: Dense, prompt: Sequence[int], limit: int, rules: Rules, pins: Mapping[int, int] | None = None) -> list[int]:
    """The answer to `prompt`, whose positions end before `limit`; `pins` are the tokens of pinned positions."""
    size = rules.block_size
    window = open_window(prompt, limit, len(prompt) // size * size, rules, pins)
    revisions: dict[int, Revision] = {}

    def forward() -> None:
        logits = network.predict(window.text, lambda position: position // size)
        for block in window.blocks:
            if not block.editable:
                continue
            rows = penalised(logits, block, rules.penalty_lambda)
            proposals, revision = block.proposals(network, rows), revisions.get(block.start, Revision())
            note_decisions(network, block, block.offsets, proposals, rules)
            verdict = joint_threshold(block.tokens, block.offsets, proposals, revision, rules)
            block.tokens, block.ready, block.ratio = verdict.tokens, verdict.ready, verdict.ratio
            revisions[block.start] = verdict.revision

    return window.decode(forward)


def note_decisions(network: Dense, block: Block, editable: Sequence[int], proposals: Sequence[Proposal], rules: Rules) -> None:
    """Remember how close the thresholds were."""
    thresholds = (rules.accept_threshold, rules.edit_threshold) + (rules.remask_threshold,) * rules.remasking
    for offset in editable:
        for threshold in thresholds:
            network.note(proposals[offset].probability - threshold)
    network.note_best([proposals[offset].probability for offset in editable if block.tokens[offset] == MASK])

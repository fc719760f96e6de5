"""Edit sampling with a joint threshold: masks become tokens, and tokens become other tokens until nothing changes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

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


@dataclass
class Revision:
    """The rule's memory of a block: forwards without masks, and offsets that were masked again."""

    post: int = 0
    remasked: set[int] = field(default_factory=set[int])


def joint_threshold(block: Block, proposals: Sequence[Proposal], revision: Revision, rules: Rules) -> None:
    """Change a block after a forward; `proposals` has one for each offset."""
    tokens, editable = block.tokens, block.offsets
    masked = [i for i in editable if tokens[i] == MASK]
    filled = [i for i in editable if tokens[i] != MASK]
    revision.post += not masked
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
    block.ratio = len(same) / len(filled) if filled else 1.0
    rests = not (fills or edits or again) or (not masked and revision.post > rules.max_post_edit_steps)
    if block.steps > rules.block_size + rules.max_post_edit_steps:
        fills, again, block.ratio, block.ready = masked, [], 1.0, True
    elif rests:
        block.ready = True
        return
    block.tokens = list(tokens)
    for i in fills + edits:
        block.tokens[i] = proposals[i].token
    for i in again:
        block.tokens[i] = MASK
    revision.remasked |= set(again)


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
            block.steps += 1
            proposals, revision = block.proposals(network, rows), revisions.setdefault(block.start, Revision())
            note_decisions(network, block, proposals, rules)
            joint_threshold(block, proposals, revision, rules)

    return window.decode(forward)


def note_decisions(network: Dense, block: Block, proposals: Sequence[Proposal], rules: Rules) -> None:
    """Remember how close the thresholds were."""
    thresholds = (rules.accept_threshold, rules.edit_threshold) + (rules.remask_threshold,) * rules.remasking
    for offset in block.offsets:
        for threshold in thresholds:
            network.note(proposals[offset].probability - threshold)
    network.note_best([proposals[offset].probability for offset in block.offsets if block.tokens[offset] == MASK])

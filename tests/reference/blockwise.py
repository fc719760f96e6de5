"""Multi-block diffusion and D2F: confident positions become tokens once and for all, several blocks at a time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .models import Dense
from .window import BlockRules, open_window


@dataclass(frozen=True, kw_only=True)
class Rules(BlockRules):
    """Hyperparameters; `from_prompt` counts blocks from the prompt's end, the prompt being one group of its own.

    With `grid_origin="prompt_end"`, the prompt has blocks as well, all full but the first.
    """

    semi_complete_threshold: float = 0.9
    always_force: bool = False
    from_prompt: bool = False
    grid_origin: str = "start"


def decode(network: Dense, prompt: Sequence[int], limit: int, rules: Rules, pins: Mapping[int, int] | None = None) -> list[int]:
    """The answer to `prompt`, whose positions end before `limit`; `pins` are the tokens of pinned positions."""
    size, length = rules.block_size, len(prompt)

    first = length if rules.from_prompt or rules.grid_origin == "prompt_end" else length // size * size

    def group(position: int) -> int:
        if rules.from_prompt and position < length:
            return -1
        return (position - first) // size

    window = open_window(prompt, limit, first, rules, pins)

    def forward() -> None:
        logits = network.predict(window.text, group)
        before_is_far = True
        for block in window.blocks:
            if not block.editable:
                before_is_far = True
                continue
            masked, forceable = block.masked, before_is_far or rules.always_force
            before_is_far = block.progress >= rules.semi_complete_threshold  # as it was when the forward ran
            proposals = {position: network.propose(logits[position]) for position in masked}
            accepted = [position for position in masked if proposals[position].probability > rules.accept_threshold]
            for position in masked:
                network.note(proposals[position].probability - rules.accept_threshold)
            if not accepted and forceable and masked:
                accepted = [max(masked, key=lambda position: proposals[position].probability)]
                network.note_best([proposals[position].probability for position in masked])
            for position in accepted:
                block.tokens[position - block.start] = proposals[position].token
            block.ready = not block.masked
            block.ratio = float(block.ready)

    return window.decode(forward, keeps=True)

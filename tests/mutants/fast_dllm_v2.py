"""Mutants of `fast_dllm_v2`."""

from .catalogue import change

FILE, WARM = "strategies/fast_dllm_v2.py", "strategies/_warm.py"

MUTANTS = (
    change(
        "the first token of a block is not seeded", FILE, "        if first == start:\n", "        if first == start < 0:\n"
    ),
    change(
        "a sub-block is fed alone before its first token is decided",
        FILE,
        "if sequence.extra is None or first == sub:",
        "if sequence.extra is None:",
    ),
    change(
        "a sub-block is fed alone before its block was",
        FILE,
        "if sequence.extra is None or first == sub:",
        "if first == sub:",
    ),
    change(
        "a seed counts as a forward of the whole block",
        FILE,
        "if self.fdv2_use_block_cache and span.stop > start:",
        "if self.fdv2_use_block_cache:",
    ),
    change(
        "the block cache cannot be turned off",
        FILE,
        "if self.fdv2_use_block_cache and span.stop > start:",
        "if span.stop > start:",
    ),
    change(
        "the block cache is never used",
        FILE,
        "if self.fdv2_use_block_cache and span.stop > start:",
        "if self.fdv2_use_block_cache and span.stop > start + len(block.tokens):",
    ),
    change("a lost device still holds the block", WARM, "else replace(sequence, extra=None)", "else sequence"),
    change(
        "sub-blocks to the right are decided early",
        FILE,
        "wanted = undecided[: bisect_left(undecided, stop)]",
        "wanted = undecided[: bisect_left(undecided, stop + (sequence.extra is None))]",
    ),
    change(
        "a part does not see what is right of it",
        FILE,
        "goal.grid, wanted, draws, end=end)",
        "goal.grid, wanted, draws)",
    ),
    change(
        "sub-blocks are counted from the first undecided position",
        FILE,
        "sub = first - (first - start) % self.block_size",
        "sub = max(start, first - 1)",
    ),
    change("a probability equal to the threshold is enough", FILE, "if probability > accept]", "if probability >= accept]"),
    change(
        "a forward may decide nothing",
        FILE,
        "chosen or [probabilities.index(max(probabilities))]",
        "chosen",
    ),
    change(
        "the last position of equal ones is taken",
        FILE,
        "[probabilities.index(max(probabilities))]",
        "[max(range(len(probabilities)), key=lambda row: (probabilities[row], row))]",
    ),
    change(
        "the last block is fed past the answer's end",
        FILE,
        "size = min(self.block_size * self.buffer_size, goal.limit - start)",
        "size = self.block_size * self.buffer_size",
    ),
    change(
        "the prompt's last block is final although the answer begins in it",
        FILE,
        "first = sequence.goal.grid.start(length)",
        "first = length",
    ),
    change(
        "sub-blocks see one another only from left to right",
        FILE,
        "return Grid(0, self.block_size * self.buffer_size)",
        "return Grid(0, self.block_size)",
    ),
    change(
        "a full block is not final",
        FILE,
        "moved(past, window, end, end)",
        "moved(past, window, start, end)",
    ),
    change("draws are numbered by the request", FILE, "(sequence.ledger.steps - block.opened,)", "(sequence.ledger.steps,)"),
)

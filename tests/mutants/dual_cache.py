"""Mutants of `dual_cache`."""

from .catalogue import change

FILE = "strategies/dual_cache.py"
OPENED = "block = open_block(start, end - start, limit, prompt, mask, steps)"

MUTANTS = (
    change(
        "a block goes on with what the one before left",
        FILE,
        OPENED,
        f"{OPENED}\n        block = warmed(block) if steps else block",
    ),
    change(
        "a shifted head reads the row in front of the block from stores",
        FILE,
        "(spec.head_shift and wanted[0] == start)",
        "(spec.head_shift and wanted[0] < start)",
    ),
    change(
        "with a prefix cache the canvas behind is not fed",
        FILE,
        'self.cache == "prefix" and rest',
        'self.cache == "none" and rest',
    ),
    change("with a dual cache the canvas behind is fed", FILE, 'self.cache == "prefix" and rest', "rest"),
    change("without a cache, stores are read", FILE, 'block if self.cache == "none" else warmed(block)', "warmed(block)"),
    change(
        "a block sees only what is fed and what is before it",
        FILE,
        "goal.grid, wanted, draws, end=goal.limit)",
        "goal.grid, wanted, draws)",
    ),
    change(
        "attention is causal between blocks", FILE, "Grid(self.reach(request), 1)", "Grid(len(request.prompt), self.block_size)"
    ),
    change("a probability equal to the threshold is not enough", FILE, "if probability >= accept]", "if probability > accept]"),
    change("a forward may decide nothing", FILE, "chosen or [probabilities.index(max(probabilities))]", "chosen"),
    change("what is left over of a share comes last", FILE, "(step < over)", "(step >= steps - over)"),
    change(
        "shares are counted anew in each step", FILE, "divmod(len(block.tokens), steps)", "divmod(len(probabilities), steps)"
    ),
    change(
        "a share is taken from the least probable",
        FILE,
        "key=probabilities.__getitem__, reverse=True",
        "key=probabilities.__getitem__",
    ),
    change(
        "a threshold that has no effect is let in",
        FILE,
        "if self.steps_per_block is None or request.params.thresholds.accept_threshold is None:",
        "if request.params:",
    ),
    change(
        "a lost device still holds the canvas",
        FILE,
        "return cooled(sequence)",
        "return sequence if cooled(sequence) else sequence",
    ),
    change("draws are numbered by the request", FILE, "(sequence.ledger.steps - block.opened,)", "(sequence.ledger.steps,)"),
    change(
        "a request's accept threshold is ignored",
        FILE,
        "accept = self.accept_threshold if accept is None else accept",
        "accept = self.accept_threshold",
    ),
)

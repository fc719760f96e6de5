"""Mutants of canvases, which `dual_cache` is one of."""

from .catalogue import change

FILE = "strategies/_canvas.py"

MUTANTS = (
    change(
        "a block goes on with what the one before left",
        FILE,
        "cooled(sequence).moved(past",
        "sequence.moved(past",
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
    change(
        "without a cache, stores are read", FILE, 'sequence if self.cache == "none" else warmed(sequence)', "warmed(sequence)"
    ),
    change(
        "a block sees only what is fed and what is before it",
        FILE,
        "(number,) * len(wanted), end=goal.limit)",
        "(number,) * len(wanted))",
    ),
    change(
        "attention is causal between blocks", FILE, "Grid(self.reach(request), 1)", "Grid(len(request.prompt), self.block_size)"
    ),
    change(
        "a lost device still holds the canvas",
        FILE,
        "del spec\n        return cooled(sequence)",
        "del spec\n        return sequence if cooled(sequence) else sequence",
    ),
    change(
        "draws are numbered by the request",
        FILE,
        "number = sequence.ledger.steps - block.opened",
        "number = sequence.ledger.steps",
    ),
)

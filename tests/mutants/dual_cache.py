"""Mutants of canvases, which `dual_cache` is one of."""

from .catalogue import change

FILE = "strategies/_canvas.py"

MUTANTS = (
    change(
        "a block goes on with what the one before left",
        FILE,
        "        elif rest:\n            sequence = cooled(sequence)\n",
        "",
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
    change("without a cache, stores are read", FILE, 'elif self.cache != "none":', "else:"),
    change(
        "a block sees only what is fed and what is before it",
        FILE,
        "(number,) * len(wanted), end=goal.limit, named=named)",
        "(number,) * len(wanted), named=named)",
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

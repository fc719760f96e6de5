"""Mutants of pinned tokens and of canvases to start from."""

from .catalogue import BLOCKS, LIFECYCLE, change

BLOCK, EDIT, DMAX, CANVAS = "core/block.py", "strategies/_edit.py", "strategies/dmax.py", "strategies/_canvas.py"
GEMMA, REVISED = "strategies/diffusion_gemma.py", "strategies/multi_bd_edit.py"

MUTANTS = (
    change("pins: pinned positions are sampled", BLOCK, "given |= 1 << place", "given |= 0"),
    change(
        "pins: pinned positions count as undecided",
        BLOCK,
        "for position in self.undecided if not given >> (position - start) & 1])\n        return Block(start, tuple(tokens), und",
        "for position in self.undecided])\n        return Block(start, tuple(tokens), und",
    ),
    change(
        "pins: their probability is that of nothing",
        BLOCK,
        "probabilities[place] = token, 1.0",
        "probabilities[place] = token, 0.0",
    ),
    change(
        "pins: a strategy that cannot hold them ignores them",
        LIFECYCLE,
        "if params.pinned and not strategy.holds_pins:",
        "if params.pinned and not params:",
    ),
    change(
        "pins: an answer without gaps waits for a forward",
        LIFECYCLE,
        "if sequence.settled > length:",
        "if sequence.settled < length:",
    ),
    change(
        "pins: tokens settled before the first forward are not told",
        "core/updates.py",
        "earlier is None or not earlier.ledger.nfe",
        "earlier is None",
    ),
    change(
        "pins: a block without gaps opens no other one",
        BLOCKS,
        "if window is before or settled < window[-1].start:",
        "if window:",
    ),
    change("pins: blocks behind the first do not see them", BLOCKS, "mask_of(spec), steps, pinned))", "mask_of(spec), steps))"),
    change(
        "pins: draws are those of neighbours",
        EDIT,
        "draws[position - final] for position in wanted",
        "draws[position - wanted[0]] for position in wanted",
    ),
    change(
        "pins: rows of edited blocks are out of step",
        REVISED,
        "if sequence.goal.request.params.pinned:",
        "if not sequence.goal.request:",
    ),
    change("pins: rows of refreshed blocks are out of step", DMAX, "if goal.request.params.pinned:", "if not goal.request:"),
    change(
        "pins: a canvas shows its block alone", CANVAS, "mask_of(spec), pinned=request.params.pinned),)", "mask_of(spec)),)"
    ),
    change(
        "pins: noise takes their place",
        GEMMA,
        "canvas = _with(canvas, block.tokens, pinned)",
        "canvas = _with(canvas, canvas, pinned)",
    ),
    change(
        "pins: the canvas is committed without them",
        GEMMA,
        "best = _with(best, block.tokens, pinned)",
        "best = _with(best, best, pinned)",
    ),
    change("pins: a given canvas is ignored", GEMMA, "tokens = own + tokens[len(own) :]", "tokens = tokens or own"),
)

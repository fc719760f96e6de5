"""Mutants of buckets and of what is captured before it is needed."""

from .catalogue import change

BUCKETS, REHEARSAL, DRIVER = "driver/buckets.py", "driver/rehearsal.py", "driver/torch_driver.py"

MUTANTS = (
    change("rows of large buckets are rounded down", BUCKETS, "return -(-count // step) * step", "return count // step * step"),
    change("spans of few rows find no room", BUCKETS, "rows = rounded(max(rows, spans * least))", "rows = rounded(rows)"),
    change("long contexts go to buckets of short ones", BUCKETS, "rows <= FEW_ROWS and longest <= few * page_size and", "rows <= FEW_ROWS and"),
    change("beside prompts nothing is captured", REHEARSAL, "met |= {kind: idle, replace(kind, widest=TILE_HEIGHT): idle}", "met |= {kind: idle}"),
    change("draws are captured when they are met", REHEARSAL, "for params in (GREEDY, DRAWN):", "for params in (GREEDY,):"),
    change("short contexts are captured when they are met", REHEARSAL, "for longest in (width * size, 1)", "for longest in (width * size,)"),
    change("rows whose pages changed hands are taken over", DRIVER, "None if moved else now.placed", "now.placed"),
    change("rows are taken over whatever is fed", "driver/lowering.py", "if before is not None and np.array_equal(before.facts, facts) else", "if before is not None and before.facts.shape == facts.shape else"),
)  # fmt: skip

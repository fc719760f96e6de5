"""Changes to how ids are named and their probabilities answered."""

from .catalogue import Mutant, change

PLAN, SHADOW, GRID, CANVAS = "core/plan.py", "testing/shadow.py", "strategies/_blocks.py", "strategies/_canvas.py"
LOWERING, BUCKETS, SAMPLING = "driver/lowering.py", "driver/buckets.py", "dlstep_kernels/sampling.py"
NAMED, HEAD = "dlstep_kernels/gpu/named.py", "dlstep_kernels/gpu/head.py"

MUTANTS: tuple[Mutant, ...] = (
    change(
        "rows in front of a window lose its named ids",
        PLAN,
        "self.mode, self.carry, self.penalty, self.named,",
        "self.mode, self.carry, self.penalty,",
    ),
    change(
        "a request may name more ids than the engine's samples have",
        PLAN,
        "enough = self.best >= other.best and self.named >= other.named",
        "enough = self.best >= other.best",
    ),
    change(
        "trimmed rows lose what was named",
        PLAN,
        'self.noise if "noise" in wanted.statistics else (),\n            self.named_probabilities,',
        'self.noise if "noise" in wanted.statistics else (),\n            (),',
    ),
    change(
        "nobody counts the probabilities of named ids",
        PLAN,
        '                ("named_probabilities", rows.named_probabilities, wanted * span.named_width(wants.named)),\n',
        "",
    ),
    change("more ids are named than are wanted", PLAN, "if named > wanted * most or (named", "if (named"),
    change(
        "named ids count in a line",
        PLAN,
        "self.query_only, self.final_rows, extra)",
        "self.query_only, self.final_rows, extra, self.named)",
    ),
    change("only the last block of a grid names ids", GRID, "named += rule.named(", "named = rule.named("),
    change(
        "blocks of a grid name ids in falling order",
        GRID,
        "named += rule.named(block, limit, number)",
        "named = rule.named(block, limit, number) + named",
    ),
    change("a canvas names no ids", CANVAS, "end=goal.limit, named=named)", "end=goal.limit)"),
    change("a rule without names is asked for some", CANVAS, " if self.rule.wants.named else ()", ""),
    change(
        "a device of dictionaries answers the same whatever is seen",
        SHADOW,
        "_hash(*parts, NAMED, token)",
        "_hash(NAMED, token)",
    ),
    change("what is named and drawn has another probability", SHADOW, "*listed[::-1], answer])", "*listed[::-1]])"),
    change("rows that name fewer ids are not padded", LOWERING, "pad = (-1,) * (width - own)", "pad = (0,) * (width - own)"),
    change(
        "named ids of a row are those of the next place",
        LOWERING,
        "[row * own : (row + 1) * own], *pad)",
        "[row : row + own], *pad)",
    ),
    change("the probabilities of padding are answered", LOWERING, "np.stack(named[:width], axis=1)", "np.stack(named, axis=1)"),
    change(
        "named probabilities are answered place by place",
        LOWERING,
        "named[:width], axis=1)[begin:end]",
        "named[:width], axis=0)[:, begin:end]",
    ),
    change(
        "another number of named ids is no other bucket", BUCKETS, 'len(arrays["named"]) // len(arrays["wanted"]) if', "1 if"
    ),
    change("named ids of a bucket have room for one a row", BUCKETS, "bucket.rows * kind.named", "bucket.rows"),
    change(
        "named ids are not divided by the sum",
        SAMPLING,
        "found = measured.gather(1, ids.clamp(0, last)) / total[:, None]",
        "found = measured.gather(1, ids.clamp(0, last))",
    ),
    change(
        "padding has the probability of id 0",
        SAMPLING,
        "(ids < 0) | (ids > last) | broken[:, None]",
        "(ids > last) | broken[:, None]",
    ),
    change(
        "ids past the vocabulary have that of its last",
        SAMPLING,
        "(ids < 0) | (ids > last) | broken[:, None]",
        "(ids < 0) | broken[:, None]",
    ),
    change(
        "filters do not count for named ids",
        SAMPLING,
        "_named(measured, total, settings.named, broken)",
        "_named(plain.exp(), total, settings.named, broken)",
    ),
    change("a kernel measures the mask id", NAMED, " & (token != mask_id)\n", "\n"),
    change("a kernel measures ids past the vocabulary", NAMED, "(token >= 0) & (token < vocab_size) &", "(token >= 0) &"),
    change(
        "a kernel forgets penalties of named ids",
        NAMED,
        "x = tl.where(token == tl.load(penalty_ids + row), x - tl.load(penalties + row), x)",
        "pass",
    ),
    change(
        "a kernel divides by the sum at the temperature",
        NAMED,
        "measured, scale = plain, 1.0",
        "measured, scale = total, inverse",
    ),
    change("a broken row has named ids", NAMED, "there & ~broken", "there"),
    # How a drawn id that is named, and one above the largest, are rounded only a GPU shows: tests/gpu/test_cuda_named_ids.py.
    change(
        "named logits have no bias",
        HEAD,
        "        x += tl.load(bias + column).to(tl.float32)\n    if CAPPED:\n        x = _capped(x, softcap)\n    tl.store(logits + at, x)",
        "        x += 0.0\n    if CAPPED:\n        x = _capped(x, softcap)\n    tl.store(logits + at, x)",
    ),
    change(
        "named logits are not capped",
        HEAD,
        "        x = _capped(x, softcap)\n    tl.store(logits + at, x)",
        "        x = x\n    tl.store(logits + at, x)",
    ),
)

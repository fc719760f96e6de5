"""Changes to the twins, the kernels and what drives them; tests of their own notice each."""

from .catalogue import Mutant, change

LOWERING, SAMPLING = "driver/lowering.py", "dlstep_kernels/sampling.py"
COMPILED = "models/compiled.py"
SAMPLING_KERNELS, PARTS = "dlstep_kernels/gpu/sampling.py", "dlstep_kernels/gpu/parts.py"

MUTANTS: tuple[Mutant, ...] = (
    change(
        "copied tables share the free rows", "driver/tables.py", "self._free = list(other._free)", "self._free = other._free"
    ),
    change(
        "a limit that an interrupt kept from being left stays",
        "engine/watchdog.py",
        "if self._entered.get(thread, now) < now and not is_limited(frames.get(thread)):",
        "if False:",
    ),
    change("copied tables share the pages", "driver/tables.py", "other.pages.copy()", "other.pages"),
    change(
        "a setting counts only if all requests of a batch have one",
        LOWERING,
        "if values.count(neutral) < len(values):",
        "if neutral not in values:",
    ),
    change("min_p alone is not looked at", LOWERING, '("min_p", 0.0, np.float32,', '("min_p", 0.5, np.float32,'),
    change(
        "a penalty crosses groups",
        LOWERING,
        "if span.start < position != span.grid.start(position) else -1",
        "if span.start < position else -1",
    ),
    change(
        "a penalised row is sampled from",
        LOWERING,
        "if penalised and name",
        "if False and name",
    ),
    change("an id at the edge of top_p is dropped", SAMPLING, "(before > top_p) &", "(before >= top_p) &"),
    change("top_p of 1 drops what a rounded sum leaves over", SAMPLING, "(before > top_p) & (top_p < 1.0)", "before > top_p"),
    change("an id at the edge of min_p is dropped", SAMPLING, "scores.exp() < settings", "scores.exp() <= settings"),
    change("settings of torch are set in every call", COMPILED, "if not _prepared.get():", "if True:"),
    change(
        "each equal size is a size of its own by chance",
        "models/compiled.py",
        "use_duck_shape = False",
        "use_duck_shape = True",
    ),
    change(
        "products with whole logits are rounded",
        SAMPLING_KERNELS,
        "weights = tl.exp2((x - base) * LOG2E)",
        "weights = tl.exp2(x * LOG2E - base * LOG2E)",
    ),
    change(
        "at high temperatures a range keeps weights of logits far below",
        SAMPLING_KERNELS,
        "    sunk = before - base  # unbounded, since a high temperature shrinks it\n",
        "    sunk = tl.maximum(before - base, LEAST)\n",
    ),
    change(
        "at high temperatures a row keeps weights of ranges far below",
        PARTS,
        'sunk = tl.load(numbers + MAXIMA * plane + at, mask=inside, other=float("-inf")) - base',
        'sunk = tl.maximum(tl.load(numbers + MAXIMA * plane + at, mask=inside, other=float("-inf")) - base, LEAST)',
    ),
)

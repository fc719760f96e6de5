"""Mutants of DiffusionGemma."""

from .catalogue import change

GEMMA, RANKING = "strategies/diffusion_gemma.py", "rules/_ranking.py"

MUTANTS = (
    change(
        "gemma: a canvas goes on after what it carried was lost",
        GEMMA,
        "        sequence = sequence.with_ledger(replace(sequence.ledger, steps=opened))\n"
        "        block = self._opened(sequence, sequence.window[0].start, spec)\n",
        "        block = sequence.window[0]\n",
    ),
    change(
        "gemma: a canvas that begins anew does not give its forwards back",
        GEMMA,
        "        sequence = sequence.with_ledger(replace(sequence.ledger, steps=opened))\n",
        "",
    ),
    change(
        "gemma: a canvas begins with self-conditioning of the one before",
        GEMMA,
        'carry="held" if taken else "fresh"',
        'carry="held" if sequence.ledger.steps else "fresh"',
    ),
    change(
        "gemma: draws are numbered by the request", GEMMA, "draws=(taken,) * count", "draws=(sequence.ledger.steps,) * count"
    ),
    change(
        "gemma: what is committed is what was sampled",
        GEMMA,
        "done = Block(block.start, best, (), chances",
        "done = Block(block.start, rows.tokens, (), chances",
    ),
    change(
        "gemma: a canvas that reaches past the answer is final",
        GEMMA,
        "        if block.end > goal.limit:\n",
        "        if block.end > goal.limit + self.canvas_length:\n",
    ),
    change(
        "gemma: the last canvas is denoised only up to the answer's end",
        GEMMA,
        "wanted=positions(block.start, block.end)",
        "wanted=block.undecided",
    ),
    change(
        "gemma: the canvas sees its rows causally",
        GEMMA,
        "grid=Grid(block.start, count)",
        "grid=sequence.goal.grid",
    ),
    change(
        "gemma: one step too many", GEMMA, "block.opened >= self.max_denoising_steps", "block.opened > self.max_denoising_steps"
    ),
    change(
        "gemma: one equal canvas too few",
        GEMMA,
        "stable = run > self.stability_threshold",
        "stable = run >= self.stability_threshold",
    ),
    change(
        "gemma: the last forward must agree only with the one before",
        GEMMA,
        "run = before.run + 1 if isinstance(before, Draft) and before.tokens == best else 1",
        "run = before.run + 1 if isinstance(before, Draft) else 1",
    ),
    change("gemma: confident is enough", GEMMA, "if last or (stable and fsum", "if last or (bool(run) and fsum"),
    change(
        "gemma: the sum of the entropies counts, not their mean",
        GEMMA,
        "fsum(entropies) / (len(best) - len(pinned)) <",
        "fsum(entropies) <",
    ),
    change(
        "gemma: the entropy of a position counts against itself",
        RANKING,
        "bisect_right(list(accumulate(ordered)), bound) + 1",
        "max(1, bisect_right(list(accumulate(ordered)), bound))",
    ),
    change(
        "gemma: of equally uncertain positions the last are accepted", RANKING, "[count - len(kept) :]", "[: len(kept) - count]"
    ),
    change(
        "gemma: what is not accepted stays as sampled",
        GEMMA,
        "    canvas = list(noise)\n    for index in kept:\n        canvas[index] = tokens[index]\n",
        "    canvas = list(tokens)\n    for index in kept:\n        canvas[index] = noise[index]\n",
    ),
    change(
        "gemma: the temperature rises",
        GEMMA,
        "self.temperature(self.max_denoising_steps - taken)",
        "self.temperature(taken + 1)",
    ),
    change(
        "gemma: the temperature is computed in double precision",
        GEMMA,
        "        return _fp32(_fp32(self.t_min) + _fp32(_fp32(self.t_max - self.t_min) * share))\n",
        "        return self.t_min + (self.t_max - self.t_min) * share\n",
    ),
    change(
        "gemma: canvases open with the same noise",
        GEMMA,
        'integers(request.seed, start, stop, 0, "open"',
        'integers(request.seed, 0, length, 0, "open"',
    ),
    change(
        "gemma: a canvas that begins anew opens with other noise",
        GEMMA,
        'start, stop, 0, "open"',
        'start, stop, sequence.ledger.nfe, "open"',
    ),
    change(
        "gemma: pages are asked for up to the last whole canvas only",
        GEMMA,
        "len(request.prompt) - (-request.params.max_tokens // self.canvas_length) * self.canvas_length",
        "len(request.prompt) + (request.params.max_tokens // self.canvas_length) * self.canvas_length",
    ),
    change(
        "gemma: a temperature of the request is ignored",
        GEMMA,
        "            if given != plain:\n",
        "            if given < plain:\n",
    ),
    change("gemma: lanes run into one another", "core/draws.py", "(values >> 27) & mask", "(values >> 27)"),
    change("a number that is the chance is below it", "core/draws.py", "(1 << 23) - 0.5)", "(1 << 23) + 0.5)"),
    change(
        "gemma: forwards hold all that a request says",
        GEMMA,
        "params=_at(self.temperature(self.max_denoising_steps - taken)),",
        "params=replace(request.params, temperature=self.temperature(self.max_denoising_steps - taken)),",
    ),
)

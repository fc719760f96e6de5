"""Mutants of the decoding rules."""

from .catalogue import change

THRESHOLD, QUOTA = "rules/threshold.py", "rules/quota.py"
SLIDING, ADA_BLOCK, EARLY_COMMIT = "rules/sliding.py", "rules/ada_block.py", "rules/early_commit.py"
CANVAS = "strategies/_canvas.py"

MUTANTS = (
    change(
        "a probability equal to the threshold is enough",
        THRESHOLD,
        "enumerate(probabilities, begin) if probability > accept]",
        "enumerate(probabilities, begin) if probability >= accept]",
    ),
    change(
        "a probability equal to the threshold is enough in every block",
        THRESHOLD,
        "enumerate(rows.probabilities) if probability > accept]",
        "enumerate(rows.probabilities) if probability >= accept]",
    ),
    change(
        "a probability equal to an inclusive threshold is not enough",
        THRESHOLD,
        "enumerate(probabilities, begin) if probability >= accept]",
        "enumerate(probabilities, begin) if probability > accept]",
    ),
    change(
        "a forward may decide nothing",
        THRESHOLD,
        "[begin + of_block.index(max(of_block))] if must else []",
        "[begin + of_block.index(max(of_block))] if False else []",
    ),
    change(
        "every block is made to take something",
        THRESHOLD,
        "[begin + of_block.index(max(of_block))] if must else []",
        "[begin + of_block.index(max(of_block))] if True else []",
    ),
    change(
        "the last position of equal ones is taken",
        "core/rule.py",
        "return begin + of_block.index(max(of_block))",
        "return end - 1 - of_block[::-1].index(max(of_block))",
    ),
    change(
        "shares are counted anew in each step",
        QUOTA,
        "size = len(block.sampled(sequence.goal.limit))",
        "size = len(block.undecided)",
    ),
    change(
        "a window does not grow", SLIDING, "block.end + self.window - len(block.undecided)", "block.undecided[0] + self.window"
    ),
    change("a window has no greatest width", SLIDING, "return end if self.max_window is None else", "return end if True else"),
    change("what is decided in a window is shared out", SLIDING, "block.opened, restart=True)", "block.opened)"),
    change(
        "a window is refreshed one position late", SLIDING, "if since >= self.refresh_count:", "if since > self.refresh_count:"
    ),
    change(
        "a window is fed with what is in front of the answer",
        SLIDING,
        "max(block.undecided[0] - self.window_delay, block.start)",
        "max(block.undecided[0] - self.window_delay, 0)",
    ),
    change("the canvas is fed once", CANVAS, "sequence = refreshed(sequence, undecided)", "sequence = warmed(sequence)"),
    change(
        "what the refresh itself decides does not count",
        CANVAS,
        "sequence = refreshed(sequence, undecided)",
        "sequence = refreshed(sequence, len(block.undecided))",
    ),
    change(
        "with a shifted head the row in front of a window is not fed", CANVAS, "start = min(part[0], first)", "start = part[0]"
    ),
    change("a block keeps what lies behind its end", CANVAS, "            if end < block.end:\n", "            if end < 0:\n"),
    change(
        "a delimiter of the threshold is not enough",
        ADA_BLOCK,
        "] < self.delimiter_threshold:",
        "] <= self.delimiter_threshold:",
    ),
    change(
        "a block ends in front of its delimiter", ADA_BLOCK, "return block.start + end + 1", "return block.start + max(end, 1)"
    ),
    change(
        "pinned positions that are given back are forwards ahead",
        ADA_BLOCK,
        "block.undecided if sequence.ledger.steps > block.opened else block.tokens",
        "block.undecided",
    ),
    change("the last of equal delimiters ends the block", ADA_BLOCK, "chances[row * best], -row)", "chances[row * best], row)"),
    change("the first delimiter ends the block", ADA_BLOCK, "(chances[row * best], -row)", "-row"),
    change(
        "only the block is searched",
        ADA_BLOCK,
        "searched = min(floor(self.look_ahead * answer), len(rows.tokens))",
        "searched = min(floor(self.look_ahead * answer), size, len(rows.tokens))",
    ),
    change("a gap that is just wide enough is not", EARLY_COMMIT, "rows, begin) >= gap:", "rows, begin) > gap:"),
    change("progress counts the forwards before", EARLY_COMMIT, "self.due((number + 1) / ", "self.due(number / "),
    change(
        "the gap that is due does not fall",
        EARLY_COMMIT,
        "return self.middle_gap if progress < 0.67",
        "return self.middle_gap if True",
    ),
    change(
        "the schedule of a part goes on in the next",
        EARLY_COMMIT,
        "opened = block.opened + number * self.inner.bound(self.part_size)",
        "opened = block.opened",
    ),
    change(
        "the region is all of the answer",
        EARLY_COMMIT,
        "        region = self._region(block, limit)\n        asked",
        "        region = block.sampled(limit)\n        asked",
    ),
)

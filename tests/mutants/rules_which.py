"""Mutants of rules that choose positions: each must be noticed by a slow loop or by a reduction."""

from .catalogue import change

THRESHOLD, QUOTA, BOUND, FACTOR = (f"rules/{name}.py" for name in ("threshold", "quota", "entropy_bound", "factor"))
LEAP, HIERARCHY, DILATED, SPACED = (f"rules/{name}.py" for name in ("local_leap", "hierarchy", "dilated", "spaced"))
RANKING, SCHEDULE = "rules/_ranking.py", "rules/_schedule.py"

MUTANTS = (
    change(
        "of equal scores the last are taken",
        RANKING,
        "sorted(range(len(scores)), key=scores.__getitem__, reverse=True)",
        "sorted(range(len(scores)), key=scores.__getitem__)[::-1]",
    ),
    change("a falling threshold rises", THRESHOLD, "accept *= 1.0 - self", "accept *= 1.0 + self"),
    change(
        "a falling threshold counts given positions",
        THRESHOLD,
        "len(block.undecided) / len(block.sampled(sequence.goal.limit))",
        "len(block.undecided) / len(block.tokens)",
    ),
    change(
        "an entropy that equals the threshold is always enough",
        THRESHOLD,
        "if entropy < most]",
        "if entropy <= most]",
    ),
    change(
        "where none is certain, the most uncertain is taken",
        THRESHOLD,
        "entropies.index(min(entropies))",
        "entropies.index(max(entropies))",
    ),
    change("forwards of Dream's schedule that take none are run", QUOTA, "        if taken:\n", "        if taken >= 0:\n"),
    change("what is left over of shares goes to the last forwards", SCHEDULE, "(number < over)", "(number >= over)"),
    change("ends of the answer come first", QUOTA, 'float("-inf")', 'float("inf")'),
    change("ends of the answer count above the threshold", QUOTA, " and score != _BEHIND", ""),
    change("the order's noise has the wrong sign", QUOTA, "score / scale - own", "score / scale + own"),
    change("fewer than the share may be above the threshold", QUOTA, "if len(sure) >= due:", "if sure:"),
    change("independent positions wait for a forward after the last", QUOTA, "number >= forwards - 1", "number >= forwards"),
    change("large entropies come first", QUOTA, "[-entropy for entropy in", "[entropy for entropy in"),
    change("the largest entropy counts", BOUND, "total - largest > bound", "total > bound"),
    change("the bound is one of the last entropy", BOUND, "max(largest, entropies[index])", "entropies[index]"),
    change("one position more is counted", FACTOR, "(count + 2)", "(count + 1)"),
    change("a forward takes a position that none must take", FACTOR, " and (count or not must)", " and count"),
    change("a leap goes to the right only", LEAP, "anchors[first] <= position + radius", "anchors[first] <= position"),
    change(
        "a leap starts from any likely position",
        LEAP,
        "strict=True) if probability >= accept]",
        "strict=True) if probability >= relaxed]",
    ),
    change("stretches go over what is decided", HIERARCHY, "position != before + 1", "before < 0"),
    change(
        "the last of equal positions of a stretch is taken",
        HIERARCHY,
        "if probabilities[index] > highest:",
        "if probabilities[index] >= highest:",
    ),
    change("what equals the doubt is doubted", HIERARCHY, "if chance < doubt and", "if chance <= doubt and"),
    change(
        "only undecided positions are sampled again",
        HIERARCHY,
        "return block.sampled(limit) if self.remask_threshold else",
        "return block.undecided or",
    ),
    change("a small last level has a forward of its own", DILATED, "len(found[-1]) < len(found[-2])", "len(found[-1]) < 0"),
    change("what was kept back is left as masks", DILATED, "number >= len(all_levels) - 1", "number >= len(all_levels)"),
    change("levels are counted from the block's beginning", DILATED, "first = sampled[0]", "first = block.start"),
    change("neighbours are taken at once", SPACED, "max(2, ", "max(1, "),
    change(
        "what is taken first is what is most probable, whatever the inner rule goes by",
        SPACED,
        "scores = self.inner.scores(sequence, block, rows, begin)",
        "scores = rows.probabilities[begin:]",
    ),
)

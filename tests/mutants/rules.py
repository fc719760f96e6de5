"""Mutants of the decoding rules."""

from .catalogue import change

THRESHOLD, QUOTA = "rules/threshold.py", "rules/quota.py"

MUTANTS = (
    change(
        "a probability equal to the threshold is enough", THRESHOLD, "if probability > accept]", "if probability >= accept]"
    ),
    change(
        "a probability equal to an inclusive threshold is not enough",
        THRESHOLD,
        "if probability >= accept]",
        "if probability > accept]",
    ),
    change("a forward may decide nothing", THRESHOLD, "if must else []", "if False else []"),
    change("every block is made to take something", THRESHOLD, "if must else []", "if True else []"),
    change(
        "the last position of equal ones is taken",
        "core/rule.py",
        "return begin + of_block.index(max(of_block))",
        "return end - 1 - of_block[::-1].index(max(of_block))",
    ),
    change(
        "what is left over of a share comes last", QUOTA, "(draw(sequence, block) < over)", "(draw(sequence, block) >= over)"
    ),
    change(
        "shares are counted anew in each step",
        QUOTA,
        "size = len(block.sampled(sequence.goal.limit))",
        "size = len(block.undecided)",
    ),
    change(
        "a share is taken from the least probable",
        QUOTA,
        "key=rows.probabilities.__getitem__, reverse=True",
        "key=rows.probabilities.__getitem__",
    ),
)

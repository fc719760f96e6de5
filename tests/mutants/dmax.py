"""Mutants of `dmax`."""

from .catalogue import change

FILE = "strategies/dmax.py"

MUTANTS = (
    change(
        "a probability equal to the threshold stops the filling",
        FILE,
        "and probabilities[reach] >= accept",
        "and probabilities[reach] > accept",
    ),
    change("the first mask is skipped if it is not confident", FILE, "reach = min(begin + 1, end)", "reach = begin"),
    change(
        "a mask is filled behind one that is not confident",
        FILE,
        "if begin < end and probabilities[begin] >= accept:",
        "if begin < end:",
    ),
    change(
        "a block is ready as soon as it is full",
        FILE,
        "(timed_out or stays or min(probabilities[begin:end]) >= CONFIDENT)",
        "(timed_out or stays or begin >= 0)",
    ),
    change(
        "a block that is sure waits until nothing changes", FILE, "stays or min(probabilities[begin:end]) >= CONFIDENT", "stays"
    ),
    change(
        "only the tokens of filled masks count as sure",
        FILE,
        "min(probabilities[begin:end])",
        "min(probabilities[old:end], default=1.0)",
    ),
    change("a block may be refreshed for ever", FILE, "steps - block.opened >= last", "steps < 0"),
    change("a block's time ends one forward late", FILE, "steps - block.opened >= last", "steps - block.opened > last"),
    change("a refreshed token keeps its probability", FILE, "now if token != before else then", "then"),
    change("a token that stays gets a new probability", FILE, "now if token != before else then", "now"),
    change(
        "soft tokens go with the tokens before the last forward",
        FILE,
        "rows.best_ids[begin * top_k : new * top_k],\n            rows.best_probabilities[begin * top_k : new * top_k],",
        "rows.best_ids[begin * top_k : old * top_k],\n            rows.best_probabilities[begin * top_k : old * top_k],",
    ),
    change(
        "the ids of one row go to another",
        FILE,
        "rows.best_ids[begin * top_k : new * top_k]",
        "rows.best_ids[: (new - begin) * top_k]",
    ),
    change("what is not merged goes to nobody", "core/soft.py", "1.0 - total if total < 1.0 else 0.0", "0.0"),
    change(
        "a weight of 0 merges all the same",
        FILE,
        "best=self.token_merge_top_k if self.token_merge_weight else 0",
        "best=self.token_merge_top_k",
    ),
    change("probabilities are those of the temperature", FILE, ", tempered=False)", ")"),
    change("a weight that does nothing is let in", FILE, "weight not in (0.0, 1.0) and not smooth", "False"),
)

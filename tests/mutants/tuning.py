"""Mutants of the tuner: what a search tries and pays for, what it resumes from, and which options it chooses."""

from .catalogue import change

TUNING, SPACE, LOAD = "evaluate/tuning.py", "evaluate/space.py", "evaluate/load.py"

MUTANTS = (
    change("a search pays for everything", TUNING, "answers = tuning.share * space.size * problems", "answers = space.size * problems"),
    change("a few problems are enough", TUNING, "min(problems, ENOUGH)", "1"),
    change("more sets are tried than allowed", TUNING, "space.spread(min(most, tuning.trials))", "space.spread(most)"),
    change("the last value is left out", SPACE, "max(1, most - 1)", "most"),
    change("the whole grid is tried", SPACE, "if most >= self.size:", "if most >= 1:"),
    change("held-out problems are those of the search", TUNING, "return problems[:searched], problems[searched : searched + held]", "return problems[:searched], problems[:held]"),
    change("a resumed search asks for everything again", TUNING, "if item.key not in answers]", "if item.key]"),
    change("another space goes on in a folder", TUNING, 'searching = {"over": over, ', 'searching = {"over": list(over), '),
    change("the slowest set is accurate enough", TUNING, "if point.accuracy >= at_least * best][-1]", "if point.accuracy >= at_least * best][0]"),
    change("a range leaves out its end", SPACE, "value = low + step * width", "value = low + step * width * (count - 1) / count"),
    change("noise chooses", LOAD, "next(rate for rate in own if rate.is_as_fast_as(fastest))", "fastest"),
    change("the options of a load hold up to the next one", LOAD, "int((live * above) ** 0.5)", "above - 1"),
)  # fmt: skip

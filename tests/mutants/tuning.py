"""Mutants of the tuner: what a search tries, drops and pays for, what it resumes from, and which options it chooses."""

from .catalogue import change

SEARCH, TUNING, SPACE, LOAD = "evaluate/search.py", "evaluate/tuning.py", "evaluate/space.py", "evaluate/load.py"

MUTANTS = (
    change("a search pays for everything", SEARCH, "        return self._budget.share * whole - sum(", "        return whole - 0 * sum("),
    change("what was dropped is tried again", SEARCH, "new = sorted({*proposed} - seen)", "new = sorted({*proposed} - {*places})"),
    change("nothing between neighbours is tried", SEARCH, "        found = [place for one, other in pairwise(line) for place in self.space.between(one, other)]\n", "        found = list[Place]()\n"),
    change("nothing around the frontier is tried", SEARCH, "                found += [(*place", "                found += [] and [(*place"),
    change("a few equal answers make it sure", SEARCH, "squares = (sum(each * each for each in apart) + 2) / (count + 2)", "squares = sum(each * each for each in apart) / (count + 2)"),
    change("two accuracies are in doubt as if asked other problems", SEARCH, "apart = [mine.score - yours.score for mine, yours in pairs]", "apart = [mine.score + yours.score for mine, yours in pairs]"),
    change("only the frontier goes on", SEARCH, "kept = sorted([*line, *beside],", "kept = sorted([*line],"),
    change("a round asks for what is known", SEARCH, "if len(known.get(options, ())) < problems])", "if len(known.get(options, ())) <= problems])"),
    change("held-out problems are those of the search", TUNING, "return problems[:searched], problems[searched : searched + held]", "return problems[:searched], problems[:held]"),
    change("a resumed search asks for everything again", TUNING, "if (task, document.number, text) not in self._store.answers:", "if text:"),
    change("another space goes on in a folder", TUNING, '    return {"over": over} | budget', '    return {"over": list(over)} | budget'),
    change("the slowest set is accurate enough", TUNING, "if point.accuracy >= at_least * best][-1]", "if point.accuracy >= at_least * best][0]"),
    change("a range leaves out its end", SPACE, "value = low + step * width", "value = low + step * width * (count - 1) / count"),
    change("noise chooses", LOAD, "next(rate for rate in own if rate.is_as_fast_as(fastest))", "fastest"),
    change("the options of a load hold up to the next one", LOAD, "int((live * above) ** 0.5)", "above - 1"),
)  # fmt: skip

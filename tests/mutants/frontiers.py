"""Mutants of frontiers, their figures, and comparisons."""

from .catalogue import change

FRONTIER, COMPARING = "evaluate/metrics.py", "evaluate/comparing.py"
TABLE = "evaluate/table.py"

MUTANTS = (
    change("equal accuracy stays on the frontier", FRONTIER, "point.accuracy > kept[-1].accuracy", "point.accuracy >= kept[-1].accuracy"),
    change("each rectangle begins at the reference", FRONTIER, "area += (point.speed - before) *", "area += (point.speed - speed) *"),
    change("what has fallen far counts for the AUP", FRONTIER, "if height >= least]", "if height >= 0]"),
    change("the first rectangle of the AUP is weighted", FRONTIER, "total = curve[0][0] * curve[0][1]", "total = curve[0][0] * weighted(curve[0][1])"),
    change("weights of the AUP are measured against the curve itself", FRONTIER, "height / (100 * best)", "height / max(height for _, height in curve)"),
    change("a point beats its like", FRONTIER, "return self.speed > other.speed or self.accuracy > other.accuracy", "return self.speed > other.speed or self.accuracy >= other.accuracy"),
    change("the knee is the fastest point", FRONTIER, "return max(points, key=lambda point: (height(point), point.accuracy))", "return max(points, key=lambda point: point.speed)"),
    change("the fastest row is the best", COMPARING, "best = max(result.accuracy for result in results)", "best = max(results, key=lambda result: result.speed).accuracy"),
    change("one problem tells of all others", COMPARING, "LEAST = 2 ", "LEAST = 1 "),
    change("names are parts of the page", "views/page.py", "autoescape=True,", "autoescape=False,"),
    change("names reorder the page", "views/page.py", "else printable(str(value))", "else str(value)"),
    change("a tag begins in the data of a page", "views/page.py", '.replace("<", "\\\\u003c")', ""),
    change("steps of another answer are shown", "evaluate/report_html.py", 'list(sequence.answer) == run.rows[key]["tokens"]', "sequence.answer"),
    change("a name may be a formula", TABLE, "if value.startswith(FORMULAS) else", "if value.startswith(FORMULAS[:1]) else"),
)  # fmt: skip

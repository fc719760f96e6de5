"""Mutants of frontiers and their figures."""

from .catalogue import change

FRONTIER = "evaluate/frontier.py"

MUTANTS = (
    change("equal accuracy stays on the frontier", FRONTIER, "point.accuracy > kept[-1].accuracy", "point.accuracy >= kept[-1].accuracy"),
    change("each rectangle begins at the reference", FRONTIER, "area += (point.speed - before) *", "area += (point.speed - speed) *"),
    change("what has fallen far counts for the AUP", FRONTIER, "if height >= least]", "if height >= 0]"),
    change("the first rectangle of the AUP is weighted", FRONTIER, "total = curve[0][0] * curve[0][1]", "total = curve[0][0] * weighted(curve[0][1])"),
    change("weights of the AUP are measured against the curve itself", FRONTIER, "height / (100 * best)", "height / max(height for _, height in curve)"),
    change("a point beats its like", FRONTIER, "return self.speed > other.speed or self.accuracy > other.accuracy", "return self.speed > other.speed or self.accuracy >= other.accuracy"),
    change("the knee is the fastest point", FRONTIER, "return max(points, key=lambda point: (height(point), point.accuracy))", "return max(points, key=lambda point: point.speed)"),
)  # fmt: skip

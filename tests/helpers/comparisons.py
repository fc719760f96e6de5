"""A row of a comparison, with made-up figures."""

from dataclasses import replace

from dlstep.evaluate.comparing import ComparisonRow


def row(task: str = "t", strategy: str = "s", rule: str = "r", value: object = 1, **more: object) -> ComparisonRow:
    """A row of hand-made figures."""
    given = {"options": {} if value is None else {"count": value}, "on_frontier": False, "as_right": True, "aup": 3.0, **more}
    usual = (9, 0, 0.5, 0.3, 0.7, 2.0, 0.2, 3.0, 0.3, 1.0, False, 0.0, 0.0, 0.0, True, 0.0, 1.0, "")
    return replace(ComparisonRow(task, strategy, rule, "", "m", {}, *usual), **given)  # type: ignore[arg-type]

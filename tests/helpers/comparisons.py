"""A row of a comparison, with made-up figures."""

from typing import Any

from dlstep.evaluate.comparing import ComparisonRow


def row(task: str = "t", strategy: str = "s", rule: str = "r", value: object = 1, **more: object) -> ComparisonRow:
    """A row of hand-made figures."""
    given: dict[str, Any] = {
        "options": {} if value is None else {"count": value},
        "on_frontier": False,
        "as_right": True,
        "aup": 3.0,
        **more,
    }
    usual: dict[str, Any] = {
        "model": "m", "answers": 9, "failed": 0, "accuracy": 0.5, "accuracy_low": 0.3, "accuracy_high": 0.7,
        "tokens": 54, "tokens_per_forward": 2.0, "tokens_per_forward_error": 0.2, "forwards_per_answer": 3.0,
        "forwards_per_answer_error": 0.3, "forwards": 27, "seconds": 1.0,
        "to_best": 0.0, "to_best_low": 0.0, "to_best_high": 0.0,
        "aup_best": 1.0, "error": "",
    }  # fmt: skip
    return ComparisonRow(task=task, strategy=strategy, rule=rule, **usual | given)

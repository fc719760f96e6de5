"""Seconds of a forward pass as a linear function of its plan, fitted to measurements."""

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from itertools import combinations

import numpy as np

from ..core import Plan

NAMES = ("forward", "row", "request", "context")
TINY = 1e-12  # smaller coefficients, in the unit of their column, are solver noise


@dataclass(frozen=True, slots=True)
class Size:
    """The quantities that cost time: 1 for the pass itself, rows, requests, and positions of context."""

    forward: float = 1.0
    rows: float = 0.0
    requests: float = 0.0
    context: float = 0.0


@dataclass(frozen=True, slots=True)
class StepCost:
    """Seconds of a forward pass: `forward` for itself, plus per row, request and position of context."""

    forward: float
    row: float = 0.0
    request: float = 0.0
    context: float = 0.0

    def __post_init__(self) -> None:
        for name, seconds in zip(NAMES, astuple(self), strict=True):
            if not 0 <= seconds < float("inf"):
                raise ValueError(f"StepCost.{name} must be a number of seconds that is not below 0, got {seconds}")

    def seconds(self, size: Size) -> float:
        """Return the seconds of a forward pass of this size."""
        return self.forward * size.forward + self.row * size.rows + self.request * size.requests + self.context * size.context


def size_of(plan: Plan) -> Size:
    """Return the size of a planned forward pass."""
    spans = plan.spans
    return Size(1.0, sum([len(span.tokens) for span in spans]), len(spans), sum([span.end for span in spans]))


def fitted(sizes: Sequence[Size], seconds: Sequence[float], names: Sequence[str] = NAMES) -> StepCost:
    """Return the non-negative costs that fit the measured `seconds` by least squares of relative errors.

    Only the costs in `names` are fitted, the others are 0. Relative errors give short forward
    passes the same weight as long ones. Raises ValueError for fewer measurements than costs.
    """
    if unknown := [name for name in names if name not in NAMES]:
        raise ValueError(f"costs are {', '.join(NAMES)}, got {unknown[0]!r}")
    if len(sizes) < len(names) or len(sizes) != len(seconds):
        raise ValueError(f"{len(names)} costs need at least as many measured forward passes, got {len(seconds)}")
    if not min(seconds) > 0:
        raise ValueError(f"measured forward passes take more than 0 seconds, got {min(seconds)}")
    table = np.array([astuple(size) for size in sizes], dtype=float) / np.array(seconds, dtype=float)[:, None]
    columns = [NAMES.index(name) for name in names]
    best, best_costs = float("inf"), np.zeros(len(NAMES))
    # The non-negative solution equals the unconstrained one of some subset of the columns.
    for count in range(1, len(columns) + 1):
        for chosen in combinations(columns, count):
            part = table[:, chosen]
            scale = np.maximum(np.abs(part).max(axis=0), TINY)
            answer, *_ = np.linalg.lstsq(part / scale, np.ones(len(seconds)), rcond=None)
            if answer.min() < -TINY:
                continue
            error = float(np.square(part @ (answer / scale) - 1).sum())
            if error < best - TINY:
                best = error
                best_costs = np.zeros(len(NAMES))
                best_costs[list(chosen)] = np.maximum(answer, 0.0) / scale
    return StepCost(*[float(value) for value in best_costs])

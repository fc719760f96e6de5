"""Options of a tuner: what it varies, how much of it, and which set of options it chooses."""

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Gt, Interval

from ..core.checks import check_ranges

OVER = ("accept_threshold=0.3:0.99",)


@dataclass(frozen=True, slots=True)
class TuneOptions:
    """Options of a search. Raises ValueError naming field, value and what is allowed."""

    over: tuple[str, ...] = OVER
    """Options to vary, each as NAME=LOW:HIGH, NAME=LOW:HIGH:COUNT or NAME=VALUE,VALUE; more than two need optuna."""
    problems: Annotated[int, Ge(1)] | None = None
    """Most problems that a set of options answers in the search; null: half of the tasks' problems, at most 200."""
    held_out: Annotated[int, Ge(1)] | None = None
    """Problems after these, on which what was found is measured; null: as many as there are, at most 200."""
    first: Annotated[int, Ge(1)] | None = None
    """Problems of the first round; null: an eighth of them, from 8 to 25."""
    share: Annotated[float, Interval(gt=0.0, le=1.0)] = 0.2
    """About how much the search may take of the forwards of the whole grid with all problems; its first round always runs."""
    at_least: Annotated[float, Interval(gt=0.0, le=1.0)] | None = None
    """Choose the fastest set that has this share of the best accuracy; null: the knee of the frontier."""
    trials: Annotated[int, Gt(0)] = 96
    """Most sets of options that optuna proposes."""
    resume: bool = False
    """Go on with the search in the folder of --out."""

    def __post_init__(self) -> None:
        check_ranges(self)

"""Options of a tuner: what it varies, how much of it, and which set of options it chooses."""

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Interval

from ..core.checks import check_ranges

OVER = ("accept_threshold=0.3:0.99",)


@dataclass(frozen=True, slots=True)
class TuneOptions:
    """Options of a search. Raises ValueError naming field, value and what is allowed."""

    over: tuple[str, ...] = OVER
    """Options to vary, each as NAME=LOW:HIGH, NAME=LOW:HIGH:COUNT or NAME=VALUE,VALUE."""
    problems: Annotated[int, Ge(1)] | None = None
    """Maximum number of problems that each set of options answers in the search; null: half of the tasks' problems, at most
    200."""
    held_out: Annotated[int, Ge(1)] | None = None
    """Number of later problems, on which the frontier of the search is measured; null: all that are left, at most 200."""
    share: Annotated[float, Interval(gt=0.0, le=1.0)] = 0.2
    """Answers of the search, as a share of the answers of all sets of options to all of its problems; at least two sets are
    tried."""
    at_least: Annotated[float, Interval(gt=0.0, le=1.0)] | None = None
    """Choose the fastest set that has this share of the best accuracy; null: the knee of the frontier."""
    trials: Annotated[int, Ge(2)] = 100
    """Maximum number of sets of options to try."""
    resume: bool = False
    """Resume the search in the folder of --out."""

    def __post_init__(self) -> None:
        check_ranges(self)

"""The search for the fewest replicas that meet latency targets under a given load."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from .figures import Figures, SimulatedReplicas
from .work import SimulatedRequest

PERCENTILES = {"p50": "latency_p50", "p95": "latency_p95", "p99": "latency_p99"}
ALONE = 1e4  # seconds between requests, so that no two run at a time


@dataclass(frozen=True, slots=True)
class LatencyTarget:
    """An upper bound in seconds on a latency percentile: p50, p95 or p99."""

    percentile: str
    seconds: float

    def measured(self, row: Figures) -> float:
        """Return the percentile of a row, in seconds."""
        return getattr(row, PERCENTILES[self.percentile]) / 1e3

    def met(self, row: Figures) -> bool:
        """Return whether the row is within the target."""
        return self.measured(row) <= self.seconds

    def __str__(self) -> str:
        return f"{self.percentile} <= {self.seconds:g} s"


def parse_targets(text: str) -> tuple[LatencyTarget, ...]:
    """Parse targets such as `p95=0.5` or `p50=0.2,p95=0.5`. Raises ValueError for anything else."""
    targets: dict[str, LatencyTarget] = {}
    for part in text.split(","):
        name, equals, value = part.strip().partition("=")
        if name not in PERCENTILES or not equals or not re.fullmatch(r"\d+\.?\d*|\.\d+", value) or not float(value):
            raise ValueError(
                f"--target takes seconds for {', '.join(PERCENTILES)}, such as p95=0.5 or p50=0.2,p95=0.5, got {part.strip()!r}"
            )
        if name in targets:
            raise ValueError(f"--target names {name} twice: give it once")
        targets[name] = LatencyTarget(name, float(value))
    return tuple(targets.values())


def sized(figures_of: Callable[[int], Figures], targets: Sequence[LatencyTarget], most: int) -> Iterator[Figures]:
    """Yield the figures of each number of replicas tried.

    Double the number until the targets are met, then bisect. The answer is the smallest number
    tried that meets the targets; the number below it was also tried and fails. If even `most`
    replicas fail, their figures come last and there is no answer.
    """
    enough, short = 1, 0
    while True:
        row = figures_of(enough)
        yield row
        if meets(row, targets):
            break
        if enough == most:
            return
        enough, short = min(2 * enough, most), enough
    while enough - short > 1:
        middle = (short + enough) // 2
        row = figures_of(middle)
        yield row
        if meets(row, targets):
            enough = middle
        else:
            short = middle


def meets(row: Figures, targets: Sequence[LatencyTarget]) -> bool:
    """Return whether a row is within all targets."""
    return all(target.met(row) for target in targets)


def alone(simulated: SimulatedReplicas, jobs: Sequence[SimulatedRequest]) -> Figures:
    """Return the figures if every request runs alone. No number of replicas is faster."""
    return simulated.figures([replace(job, at=ALONE * number) for number, job in enumerate(jobs)])

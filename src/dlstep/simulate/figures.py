"""Figures of simulated replicas, and their curve over the number of replicas."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from ..core import Config, Strategy
from .costs import StepCost
from .replicas import Course, Simulation
from .work import Beginnings, MeasuredAnswer, SimulatedRequest, drawn_jobs

REPLICAS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of a simulation.

    Latencies are milliseconds from arrival to the whole answer, those with `queue_` to the first
    pass. `hit_rate` is the share of prompt tokens found in pages, `busy` the share of time in which
    replicas ran forward passes. Times span from the first arrival to the end of the last answer.
    """

    replicas: int
    requests: int
    requests_per_s: float
    tokens_per_s: float
    latency_p50: float
    latency_p95: float
    latency_p99: float
    queue_p50: float
    queue_p95: float
    token_p50: float
    tokens_per_forward: float
    rows_per_forward: float
    requests_per_forward: float
    hit_rate: float
    busy: float


def figures(jobs: Sequence[SimulatedRequest], course: Course, tail: float = 1.0) -> Figures:
    """Return the figures of a course with at least one request; `tail` scales distances to the median."""
    fates = course.fates
    span = (max(fate.ended for fate in fates) - min(fate.came for fate in fates)) or 1.0
    whole = np.array([1e3 * (fate.ended - fate.came) for fate in fates])
    queued = np.array([1e3 * (fate.began - fate.came) for fate in fates])
    tokens, nfe = sum(fate.tokens for fate in fates), sum(fate.forwards for fate in fates)
    each = [1e3 * (fate.ended - fate.came) / fate.tokens for fate in fates if fate.tokens]
    size, prompts = course.size, sum(len(job.prompt) for job in jobs)
    middle, slow, slowest = (float(value) for value in np.percentile(whole, (50, 95, 99)))
    return Figures(
        replicas=len(course.busy),
        requests=len(fates),
        requests_per_s=len(fates) / span,
        tokens_per_s=tokens / span,
        latency_p50=middle,
        latency_p95=middle + tail * (slow - middle),
        latency_p99=middle + tail * (slowest - middle),
        queue_p50=float(np.percentile(queued, 50)),
        queue_p95=float(np.percentile(queued, 95)),
        token_p50=float(np.median(each)) if each else 0.0,
        tokens_per_forward=tokens / nfe,
        rows_per_forward=size.rows / size.forward,
        requests_per_forward=size.requests / size.forward,
        hit_rate=sum(fate.found for fate in fates) / prompts,
        busy=sum(course.busy) / (span * len(course.busy)),
    )


@dataclass(frozen=True, slots=True)
class SimulatedReplicas:
    """Equal replicas: scheduler, step costs, and a `delay` in seconds added to each request.

    Real forward passes of one size vary in time. `tail` corrects for that: it scales the distance
    of slow requests from the median latency.
    """

    config: Config
    strategy: Strategy
    cost: StepCost
    delay: float = 0.0
    tail: float = 1.0

    def figures(self, jobs: Sequence[SimulatedRequest], replicas: int = 1, before: Sequence[SimulatedRequest] = ()) -> Figures:
        """Return figures for `jobs`, answered after those `before`. Raises ValueError if there are none."""
        if not jobs:
            raise ValueError("there is no request to simulate: raise the rate or the seconds")
        simulation = Simulation(self.config, self.strategy, self.cost, replicas, self.delay)
        if before:
            simulation.run(before)
        return figures(jobs, simulation.run(jobs), self.tail)


@dataclass(frozen=True, slots=True)
class Traffic:
    """Requests whose answers are drawn from measured ones.

    By default the load grows with the number of replicas, for a curve: `rate` requests a second and
    `each` in all per replica. With `seconds`, the load is the same for any number of replicas:
    `rate` requests a second in all, for that many seconds. Either way there are at least `fewest`
    requests.
    """

    answers: tuple[MeasuredAnswer, ...]
    rate: float
    each: int = 20
    limit: int = 64
    beginnings: Beginnings = Beginnings()
    seed: int = 0
    fewest: int = 1000
    seconds: float | None = None

    def jobs(self, replicas: int) -> list[SimulatedRequest]:
        """Return the requests for a number of replicas."""
        if self.seconds is None:
            count, rate = max(self.fewest, self.each * replicas), self.rate * replicas
        else:
            count, rate = max(self.fewest, ceil(self.rate * self.seconds)), self.rate
        return drawn_jobs(self.answers, count, rate, limit=self.limit, seed=self.seed, beginnings=self.beginnings)


def curve(simulated: SimulatedReplicas, traffic: Traffic, replicas: Sequence[int] = REPLICAS) -> Iterator[Figures]:
    """Yield the figures of each number of replicas, under the load that the traffic defines for that number."""
    for count in replicas:
        yield simulated.figures(traffic.jobs(count), count)

"""Prometheus metrics: vLLM's names where the meaning is the same, else dlstep_*."""

from collections import Counter as Counts
from collections.abc import Sequence, Sized
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

from ..messages import StepReport
from .pending_requests import PendingRequest
from .replica import Replica

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0)
SECONDS_PER_TOKEN = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
RATIOS = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 32.0)
# Counters of fields of `Work`: of all engines, then of each replica.
WORK = (
    ("prompt_tokens", "vllm:prompt_tokens", "Prompt tokens of requests that the engine started."),
    ("preemptions", "vllm:num_preemptions", "Requests preempted for older ones."),
    ("prompt_tokens", "vllm:prefix_cache_queries", "Prompt tokens looked up in the prefix cache."),
    ("cached_tokens", "vllm:prefix_cache_hits", "Prompt tokens found in the prefix cache."),
    ("rows", "dlstep_positions_computed", "Positions computed by forward passes."),
    ("wasted", "dlstep_positions_wasted", "Positions recomputed, or computed for aborted answers."),
)
REPLICA_WORK = (
    ("rows", "dlstep_replica_positions_computed", "Positions that a replica computed."),
    ("prompt_tokens", "dlstep_replica_prompt_tokens", "Prompt tokens of a replica's requests."),
    ("cached_tokens", "dlstep_replica_cached_tokens", "Prompt tokens found in a replica's pages."),
)


class Metrics:
    """All metrics of `/metrics`, in a separate registry. `queued` are the requests that no replica has."""

    def __init__(self, replicas: Sequence[Replica], queued: Sized) -> None:
        self._replicas, self._queued_requests = replicas, queued
        self.registry = CollectorRegistry()
        gauge, counter = partial(Gauge, registry=self.registry), partial(Counter, registry=self.registry)
        histogram = partial(Histogram, registry=self.registry)

        running = gauge("vllm:num_requests_running", "Requests that hold pages.")
        running.set_function(lambda: sum(replica.load.running for replica in replicas))
        self._waiting = gauge("vllm:num_requests_waiting", "Requests waiting in the server or in the engine.")
        self._used = gauge("vllm:kv_cache_usage_perc", "Fraction of the KV pages that requests hold (0 to 1).")
        self._pages = gauge("dlstep_pages", "KV pages by use.", ["use"])
        deaths = gauge("dlstep_engine_deaths", "Number of engine deaths since the server started.")
        deaths.set_function(lambda: sum(replica.deaths for replica in replicas))

        self._generated = counter("vllm:generation_tokens", "Emitted tokens of requests that ended.")
        self._ended = counter("vllm:request_success", "Requests that ended, by finish reason.", ["finished_reason"])
        self._work = [(field, counter(name, text)) for field, name, text in WORK]
        self._forwards = counter(
            "dlstep_forwards", "Forward passes: those that sampled, and those that only stored KV.", ["kind"]
        )
        self._spent = counter("dlstep_engine_cpu_seconds", "CPU seconds of the engine since it was loaded.")
        self._passed = counter("dlstep_engine_busy_seconds", "Seconds in which the engine had requests.")
        self.missed = counter("dlstep_engine_timeouts", "Engines killed because they missed a deadline.", ["deadline"])
        for deadline in ("start", "heartbeat", "step"):
            self.missed.labels(deadline)
        self.refused = counter("dlstep_requests_refused", "Requests rejected because the queue was full.")
        self.unlogged = counter("dlstep_log_lines_dropped", "Lines of the request log that could not be written.")

        seconds = partial(histogram, buckets=SECONDS)
        self._first = seconds("vllm:time_to_first_token_seconds", "From arrival to the first settled token.")
        self._whole = seconds("vllm:e2e_request_latency_seconds", "From arrival to the end of the answer.")
        self._queued = seconds("vllm:request_queue_time_seconds", "From arrival to the engine.")
        self._per_token = histogram(
            "vllm:request_time_per_output_token_seconds", "Seconds in the engine / emitted tokens.", buckets=SECONDS_PER_TOKEN
        )
        self._per_forward = histogram(
            "dlstep_tokens_per_forward", "Emitted tokens / forward passes of an answer.", buckets=RATIOS
        )
        ProcessCollector(registry=self.registry)  # CPU, memory and files of the HTTP process

        self._up = gauge("dlstep_replica_up", "Whether a replica's engine is loaded.", ["replica"])
        self._replica_requests = gauge("dlstep_replica_requests", "Requests of a replica by state.", ["replica", "state"])
        self._replica_pages = gauge("dlstep_replica_pages", "Pages of a replica by use.", ["replica", "use"])
        self._replica_deaths = gauge("dlstep_replica_deaths", "Number of deaths of a replica's engine.", ["replica"])
        self._replica_work = [(field, counter(name, text, ["replica"])) for field, name, text in REPLICA_WORK]
        for _, counted in self._replica_work:
            for replica in replicas:
                counted.labels(replica.number)

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        waiting, pages = len(self._queued_requests), Counts[str]()
        for replica in self._replicas:
            load, number = replica.load, replica.number
            unstarted = max(0, len(replica.sent) - load.running)
            waiting += unstarted
            self._up.labels(number).set(replica.phase == "ready")
            self._replica_deaths.labels(number).set(replica.deaths)
            self._replica_requests.labels(number, "running").set(load.running)
            self._replica_requests.labels(number, "waiting").set(unstarted)
            for use, count in (("owned", load.pages_owned), ("cached", load.pages_cached), ("free", load.pages_free)):
                self._replica_pages.labels(number, use).set(count)
                pages[use] += count
        self._waiting.set(waiting)
        for use, count in pages.items():
            self._pages.labels(use).set(count)
        self._used.set(pages["owned"] / (pages.total() or 1))
        return generate_latest(self.registry)

    def work(self, number: int, report: StepReport) -> None:
        """Count the work of a replica's engine."""
        work = report.work._asdict()
        for field, counter in self._work:
            counter.inc(work[field])
        for field, counter in self._replica_work:
            counter.labels(number).inc(work[field])
        for kind in ("sampling", "storing"):
            self._forwards.labels(kind).inc(work[f"{kind}_forwards"])
        self._spent.inc(report.cpu_seconds)
        self._passed.inc(report.busy_seconds)

    def ended(self, pending: PendingRequest) -> None:
        """Count an answer that has ended."""
        assert pending.finish_info is not None and pending.ended is not None
        self._ended.labels(pending.fault or pending.finish_info.reason).inc()
        self._generated.inc(len(pending.tokens))
        self._whole.observe(pending.ended - pending.arrived)
        if pending.sent is not None:
            self._queued.observe(pending.sent - pending.arrived)
            if pending.tokens:
                self._per_token.observe((pending.ended - pending.sent) / len(pending.tokens))
        if pending.first is not None:
            self._first.observe(pending.first - pending.arrived)
        if pending.nfe:
            self._per_forward.observe(pending.tokens_per_forward)

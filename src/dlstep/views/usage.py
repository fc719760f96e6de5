"""The usage of requests and the work of forward passes, counted from plans for metrics and frames."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ..core import Plan, Span


class Work(NamedTuple):
    """Sums over forward passes.

    `wasted` rows did not contribute to an answer: rows of positions whose stored KV entries were
    lost, and all rows of requests that were aborted or failed.
    """

    sampling_forwards: int = 0
    storing_forwards: int = 0
    rows: int = 0
    wasted: int = 0
    preemptions: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0


@dataclass(slots=True)
class RequestUsage:
    """The usage of one request so far.

    Attributes:
        prompt: Length of its prompt.
        cached: Tokens of the prompt found in pages at its first admission; None before that.
        rows: Rows computed for it.
        again: Computed rows whose keys and values had been stored before.
        pages: Pages that it holds.
        lost: Whether it lost pages since the caller last reset this flag.
    """

    prompt: int
    cached: int | None = None
    rows: int = 0
    again: int = 0
    pages: int = 0
    lost: bool = False
    reached: int = 0  # the end of the positions that were ever stored

    def lose(self) -> None:
        """Record that the device has lost the pages."""
        self.lost, self.pages = self.lost or self.pages > 0, 0

    def feed(self, span: Span) -> int:
        """Count the rows of a span. Return how many of them had been stored before."""
        fed, reached = span.rows, self.reached
        start = fed.start + fed.query_only
        final = start + fed.final_rows
        again = max(0, min(reached, final) - start)
        self.rows += len(fed.tokens)
        self.again += again
        self.reached = max(reached, final)
        return again


def worked(usages: Mapping[int, RequestUsage], plan: Plan, page_size: int) -> Work:
    """Count a forward pass in the usage of its requests, and return its work.

    The prompt tokens, cached tokens and wasted rows of the work are those of requests in `usages`.

    Args:
        usages: Usage by sequence number.
        plan: The plan of the forward pass.
        page_size: Positions of a page.
    """
    prompts = cached = again = 0
    for seq_id in plan.preemptions:
        if (usage := usages.get(seq_id)) is not None:
            usage.lose()
    for admission in plan.admissions:
        if (usage := usages.get(admission.seq_id)) is not None:
            usage.pages = len(admission.shared)
            if usage.cached is None:  # the first admission, not one after a preemption
                # A fork also finds pages with tokens of its answer.
                usage.cached = min(usage.pages * page_size, usage.prompt)
                cached += usage.cached
    for grant in plan.grants:
        if (usage := usages.get(grant.seq_id)) is not None:
            usage.pages += len(grant.pages)
    samples, rows = False, 0
    for span in plan.spans:
        samples = samples or bool(span.wanted.sampled)
        rows += len(span.rows.tokens)
        if (usage := usages.get(span.who.seq_id)) is not None:
            if not usage.rows:
                prompts += usage.prompt
            again += usage.feed(span)
    return Work(int(samples), int(not samples), rows, again, len(plan.preemptions), prompts, cached)

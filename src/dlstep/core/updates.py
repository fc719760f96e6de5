"""Updates, the difference between two states by request, and usage, the work of forward passes by request."""

from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from .plan import Plan, Span
from .sequence import FinishInfo, FinishReason, SequenceState
from .state import State


@dataclass(frozen=True, slots=True)
class Cell:
    """An unsettled position of the window."""

    token: int | None
    """Its token; None if it is masked."""
    probability: float
    """Probability of the token when it was unmasked; 0 if the position is masked."""


@dataclass(frozen=True, slots=True)
class Update:
    """The progress of one request.

    The properties compute everything else on demand, in time linear in the new tokens. The tokens
    of all updates of a request, joined, are its answer.
    """

    sequence: SequenceState
    """The current sequence of the request."""
    start: int
    """Position of the first newly settled token."""

    @property
    def id(self) -> int:
        """The id of the request."""
        return self.sequence.request.id

    @property
    def stop(self) -> int:
        """The end of the settled tokens of the answer."""
        finish_info = self.sequence.finish_info
        return max(self.start, self.sequence.settled if finish_info is None else finish_info.end)

    @property
    def tokens(self) -> tuple[int, ...]:
        """The newly settled tokens."""
        return self.sequence.tokens(self.start, self.stop)

    @property
    def probabilities(self) -> tuple[float, ...]:
        """The probability of each of `tokens` when it was unmasked."""
        return self.sequence.probabilities_of(self.start, self.stop)

    @property
    def window(self) -> tuple[Cell, ...]:
        """The unsettled positions of the window within the answer; empty once it has ended."""
        return tuple(map(Cell, *self.window_values))

    @property
    def window_values(self) -> tuple[tuple[int | None, ...], tuple[float, ...]]:
        """The tokens and the probabilities of the cells in `window`; faster to compute."""
        tokens: list[int | None] = []
        probabilities: list[float] = []
        sequence, stop = self.sequence, self.stop
        for block in sequence.window if sequence.finish_info is None else ():
            first, last = max(stop, block.start), min(sequence.request.limit, block.end)
            if first < last:
                part, added = slice(first - block.start, last - block.start), len(tokens)
                tokens += block.tokens[part]
                probabilities += block.probabilities[part]
                for position in block.masked:
                    if first <= position < last:
                        tokens[added + position - first], probabilities[added + position - first] = None, 0.0
        return tuple(tokens), tuple(probabilities)

    @property
    def steps(self) -> int:
        """The number of forward passes so far that sampled a position of the request."""
        return self.sequence.steps

    @property
    def nfe(self) -> int:
        """The number of forward passes so far with a span of the request."""
        return self.sequence.nfe

    @property
    def finish_info(self) -> FinishInfo | None:
        """How the answer ended; None while it is unfinished."""
        return self.sequence.finish_info


def updates(before: State, after: State) -> tuple[Update, ...]:
    """Return an update for each request that changed; requests that ended come first.

    The cost is linear in the running requests and in those that ended.

    Args:
        before: A state.
        after: A later state of the same decode, with no `prune` in between.
    """
    known = {sequence.request.seq_id: sequence for sequence in before.running}

    def update(sequence: SequenceState) -> Update:
        request = sequence.request
        earlier = known.get(request.seq_id) or before.waiting.get(request.seq_id)
        # Pinned tokens may settle positions before the first pass; no update has reported them yet.
        if earlier is None or not earlier.nfe:
            return Update(sequence, len(request.prompt))
        return Update(sequence, max(earlier.settled, len(request.prompt)))

    ended = [after.finished[request_id] for request_id in islice(after.ended, len(after.ended) - len(before.ended))]
    moved = [sequence for sequence in after.running if known.get(sequence.request.seq_id) is not sequence]
    return tuple([update(sequence) for sequence in (*reversed(ended), *moved)])


BROKEN_OFF: tuple[FinishReason, ...] = ("abort", "error")


class Work(NamedTuple):
    """Sums over forward passes, each with one span per request in the batch.

    `wasted` rows did not contribute to an answer: rows of positions whose stored KV entries were
    lost, and all rows of requests that were aborted or failed.
    """

    sampling_forwards: int = 0
    storing_forwards: int = 0
    spans: int = 0
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
        again: Those of its rows that had been stored before.
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

    def wasted(self, reason: FinishReason) -> int:
        """Return the wasted rows of the request, which ended for this reason."""
        return self.rows if reason in BROKEN_OFF else self.again

    def lose(self) -> None:
        """Note that the device has lost the pages."""
        self.lost, self.pages = self.lost or self.pages > 0, 0

    def feed(self, span: Span) -> int:
        """Count the rows of a span. Return how many of them had been stored before."""
        start = span.rows.start + span.rows.query_only
        final, reached = start + span.rows.final_rows, self.reached
        again = max(0, min(reached, final) - start)
        self.rows += len(span.rows.tokens)
        self.again += again
        self.reached = max(reached, final)
        return again


class Usage:
    """The usage of the open requests, by sequence number."""

    def __init__(self) -> None:
        self._requests: dict[int, RequestUsage] = {}

    def open(self, seq_id: int, prompt: int) -> RequestUsage:
        """Count a request with a prompt of this length from now on."""
        usage = self._requests[seq_id] = RequestUsage(prompt)
        return usage

    def of(self, seq_id: int) -> RequestUsage:
        """Return the usage of a request; that of a new one if it is not open."""
        return self._requests.get(seq_id) or RequestUsage(0)

    def close(self, seq_id: int) -> None:
        """Stop counting a request; nothing happens if it is not open."""
        self._requests.pop(seq_id, None)

    def rebuild(self) -> None:
        """Note that the device has lost all its contents."""
        for usage in self._requests.values():
            usage.lose()

    def take(self, plan: Plan, page_size: int) -> Work:
        """Count a forward pass and return its work.

        Its prompt tokens, cached tokens and wasted rows are those of open requests.
        """
        known, prompts, cached, again = self._requests, 0, 0, 0
        for seq_id in plan.preemptions:
            if (usage := known.get(seq_id)) is not None:
                usage.lose()
        for admission in plan.admissions:
            if (usage := known.get(admission.seq_id)) is not None:
                usage.pages = len(admission.shared)
                if usage.cached is None:  # the first admission, not one after a preemption
                    # A fork also finds pages with tokens of its answer.
                    usage.cached = min(usage.pages * page_size, usage.prompt)
                    cached += usage.cached
        for grant in plan.grants:
            if (usage := known.get(grant.seq_id)) is not None:
                usage.pages += len(grant.pages)
        samples, rows = False, 0
        for span in plan.spans:
            samples = samples or bool(span.wanted.sampled)
            rows += len(span.rows.tokens)
            if (usage := known.get(span.who.seq_id)) is not None:
                if not usage.rows:
                    prompts += usage.prompt
                again += usage.feed(span)
        return Work(int(samples), int(not samples), len(plan.spans), rows, again, len(plan.preemptions), prompts, cached)

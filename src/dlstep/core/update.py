"""Updates: what changed for each request between two states."""

from dataclasses import dataclass
from itertools import islice

from .sequence import FinishInfo, SequenceState
from .state import State


@dataclass(frozen=True, slots=True)
class Update:
    """The progress of one request.

    The properties compute everything else on demand, in time linear in the new tokens. Concatenating
    the tokens of all updates of a request gives its answer.
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
        """Position after the last settled token of the answer."""
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
    def window(self) -> tuple[tuple[int | None, ...], tuple[float, ...]]:
        """Tokens and probabilities of the answer's unsettled positions in the window; empty once the answer has ended.

        A masked position has the token None and the probability 0.
        """
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
    def finish_info(self) -> FinishInfo | None:
        """How the answer ended; None while it is unfinished."""
        return self.sequence.finish_info


def updates(before: State, after: State) -> tuple[Update, ...]:
    """Return an update for each request that changed; requests that ended come first.

    The cost is linear in the number of requests that run or have just ended.

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

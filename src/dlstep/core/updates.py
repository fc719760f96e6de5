"""Updates: the difference between two states, request by request. Streams, servers and pages fold them."""

from itertools import islice

from .ledger import Ending
from .sequence import Sequence
from .state import State
from .values import value


@value
class Cell:
    """A position of the window that is not settled: `token` is None while it is undecided, `probability` then 0."""

    token: int | None
    probability: float


@value
class Update:
    """News of one request: `sequence` as it is now, and the position `start` up to which its answer was known before.

    Everything else is worked out of the sequence when it is asked for, at the cost of what is new. The tokens of all updates
    of a request, one after the other, are its answer.
    """

    sequence: Sequence
    start: int

    @property
    def id(self) -> int:
        """The request's id."""
        return self.sequence.goal.request.id

    @property
    def stop(self) -> int:
        """First position whose token is not settled, or that is no part of the answer."""
        ending = self.sequence.ledger.ending
        return max(self.start, self.sequence.settled if ending is None else ending.end)

    @property
    def tokens(self) -> tuple[int, ...]:
        """The newly settled tokens."""
        return self.sequence.tokens(self.start, self.stop)

    @property
    def probabilities(self) -> tuple[float, ...]:
        """The probability that each of `tokens` had when it was decided."""
        return self.sequence.probabilities_of(self.start, self.stop)

    @property
    def window(self) -> tuple[Cell, ...]:
        """The positions behind the settled ones, up to the end of the window or of the answer; empty once it has ended."""
        sequence = self.sequence
        if sequence.ledger.ending is not None:
            return ()
        found: list[Cell] = []
        for block in sequence.window:
            undecided = set(block.undecided)
            for position, token in enumerate(block.tokens, block.start):
                if self.stop <= position < sequence.limit:
                    open_ = position in undecided
                    found.append(Cell(None, 0.0) if open_ else Cell(token, block.probabilities[position - block.start]))
        return tuple(found)

    @property
    def steps(self) -> int:
        """Forwards so far that sampled a position of the request."""
        return self.sequence.ledger.steps

    @property
    def nfe(self) -> int:
        """All forwards so far that the request took part in."""
        return self.sequence.ledger.nfe

    @property
    def ending(self) -> Ending | None:
        """How the answer ended; None while it has not."""
        return self.sequence.ledger.ending


def updates(before: State, after: State) -> tuple[Update, ...]:
    """The news of each request from `before` to `after`, a later state of the same decode; those that ended come first.

    Between the two lie any additions, aborts and forwards, but no `prune`. Costs the number of running requests and of those
    that ended.
    """
    known = {sequence.goal.request.arrival: sequence for sequence in before.running}

    def update(sequence: Sequence) -> Update:
        request = sequence.goal.request
        earlier = known.get(request.arrival) or before.waiting.get(request.arrival)
        # Nobody was told of what pinned tokens settled before the first forward.
        if earlier is None or not earlier.ledger.nfe:
            return Update(sequence, len(request.prompt))
        return Update(sequence, max(earlier.settled, len(request.prompt)))

    ended = [after.finished[request_id] for request_id in islice(after.ended, len(after.ended) - len(before.ended))]
    moved = [sequence for sequence in after.running if known.get(sequence.goal.request.arrival) is not sequence]
    return tuple([update(sequence) for sequence in (*reversed(ended), *moved)])

"""Updates: the difference between two states by request, for streams and servers."""

from itertools import islice

from .ledger import Ending
from .sequence import Sequence
from .state import State
from .values import value


@value
class Cell:
    """An unsettled position of the window; an undecided one has token None, probability 0."""

    token: int | None
    probability: float


@value
class Update:
    """The progress of one request: its current `sequence`, and the `start` of its new tokens.

    The properties compute everything else on demand, in time linear in the new tokens. The tokens
    of all updates of a request, joined, are its answer.
    """

    sequence: Sequence
    start: int

    @property
    def id(self) -> int:
        """The id of the request."""
        return self.sequence.goal.request.id

    @property
    def stop(self) -> int:
        """The end of the settled tokens of the answer."""
        ending = self.sequence.ledger.ending
        return max(self.start, self.sequence.settled if ending is None else ending.end)

    @property
    def tokens(self) -> tuple[int, ...]:
        """The newly settled tokens."""
        return self.sequence.tokens(self.start, self.stop)

    @property
    def probabilities(self) -> tuple[float, ...]:
        """The probability of each of `tokens` when it was decided."""
        return self.sequence.probabilities_of(self.start, self.stop)

    @property
    def window(self) -> tuple[Cell, ...]:
        """The unsettled positions of the window within the answer; empty once it has ended."""
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
        """The number of forward passes so far that sampled a position of the request."""
        return self.sequence.ledger.steps

    @property
    def nfe(self) -> int:
        """The number of forward passes so far with a span of the request."""
        return self.sequence.ledger.nfe

    @property
    def ending(self) -> Ending | None:
        """How the answer ended; None while it is unfinished."""
        return self.sequence.ledger.ending


def updates(before: State, after: State) -> tuple[Update, ...]:
    """Return an update for each request that changed; requests that ended come first.

    `after` is a later state of the same decode, with no `prune` in between. The cost is linear in
    the running requests and in those that ended.
    """
    known = {sequence.goal.request.arrival: sequence for sequence in before.running}

    def update(sequence: Sequence) -> Update:
        request = sequence.goal.request
        earlier = known.get(request.arrival) or before.waiting.get(request.arrival)
        # Pinned tokens may settle positions before the first pass; no update has reported them yet.
        if earlier is None or not earlier.ledger.nfe:
            return Update(sequence, len(request.prompt))
        return Update(sequence, max(earlier.settled, len(request.prompt)))

    ended = [after.finished[request_id] for request_id in islice(after.ended, len(after.ended) - len(before.ended))]
    moved = [sequence for sequence in after.running if known.get(sequence.goal.request.arrival) is not sequence]
    return tuple([update(sequence) for sequence in (*reversed(ended), *moved)])

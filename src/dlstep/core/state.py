"""Everything the engine knows, as one value."""

from collections.abc import Iterable, Iterator
from operator import attrgetter

from rpds import HashTrieMap, List

from .cache import Cache
from .diff import Move, StateDiff, check_same_kind, decided, differing, moves_of, names_of, requests_diff
from .options import shown_options
from .plan import START_LINE
from .queue import WaitingQueue
from .sequence import Sequence, Strategy
from .spec import Config
from .values import value
from .words import clipped, clipped_front, counted, more, piece, printable

MOST_REQUESTS = 8  # shown by `str`
WIDEST_ANSWER = 76
_WORDS = {"line": "device history", "cache": "pages", "live": "ids in use", "ended": "order of endings"}


@value
class State:
    """All requests and who holds which page.

    `running` (they hold pages) and `waiting` are in order of arrival, every running one older than every waiting one.
    `finished` is looked up by id, `ended` are their ids, newest first; `live` finds the arrival number of an id that waits
    or runs. `arrivals` counts the requests added, `line` names the device history the next plan relies on, `releases` are
    the arrival numbers of those that gave their pages back since the last plan.
    """

    config: Config
    strategy: Strategy
    cache: Cache
    waiting: WaitingQueue = WaitingQueue()
    running: tuple[Sequence, ...] = ()
    finished: "HashTrieMap[int, Sequence]" = HashTrieMap()
    ended: "List[int]" = List([])
    live: "HashTrieMap[int, int]" = HashTrieMap()
    step: int = 0
    line: int = START_LINE
    arrivals: int = 0
    releases: tuple[int, ...] = ()

    def __str__(self) -> str:
        counts = f"{len(self.running)} running, {len(self.waiting)} waiting, {len(self.finished)} finished"
        config = self.config
        lines = [f"State at step {self.step}: {counts}, {len(self.cache.owners)} of {config.num_pages} pages held"]
        everyone = sorted(self.sequences(), key=lambda item: item[0].request.arrival)
        for sequence, waits in everyone[-MOST_REQUESTS:]:
            lines += self._said(sequence, waits)
        return "\n".join(lines + more(len(everyone) - MOST_REQUESTS, "request"))

    def _said(self, sequence: Sequence, waits: bool) -> Iterator[str]:
        """A request in two lines: its counts, and its answer with a dot for each undecided position."""
        status = f"ended by {sequence.finish}" if sequence.finish else ("waiting" if waits else "running")
        forwards = counted(sequence.nfe, "forward")
        if sequence.error:
            yield clipped(f"  request {sequence.id}, {status}: {printable(sequence.error)}")
            return
        known, start, spec = decided(sequence), len(sequence.request.prompt), self.config.spec
        if sequence.finish:
            end = start + len(sequence.answer)
            yield f"  request {sequence.id}, {status} after {forwards}: {counted(end - start, 'token')}"
        else:
            end = min(max([start, *(block.end for block in sequence.window)]), sequence.limit)
            far = f"{len(known)} decided, {end - start - len(known)} not"
            yield f"  request {sequence.id}, {status}, {forwards}: {far}"
        if end > start:
            text = "".join([piece(spec, known.get(position)) for position in range(start, end)])
            yield f"    {clipped_front(text, WIDEST_ANSWER)}"

    def sequences(self) -> Iterator[tuple[Sequence, bool]]:
        """All requests, each with whether it waits."""
        yield from ((sequence, False) for sequence in self.running)
        yield from ((sequence, True) for sequence in self.waiting)
        yield from ((sequence, False) for sequence in self.finished.values())

    def diff(self, other: "State") -> StateDiff:
        """The differences of `other`, request by request; false if there are none. Costs the positions of both states.

        Raises ValueError for what is no state.
        """
        check_same_kind(self, other)
        counts = ({"step": each.step, "pages held": len(each.cache.owners)} for each in (self, other))
        moves = (*moves_of(*counts), *self._options(other))
        requests = requests_diff(self.sequences(), other.sequences())
        queues = differing(self, other, ("waiting", "running", "finished", "ended", "live"))
        others = [] if requests else queues
        others += differing(self, other, ("cache", "line", "arrivals", "releases"))
        others += differing(self.config, other.config, ("spec",))
        return StateDiff(moves, requests, tuple(_WORDS.get(name, name) for name in others), other.config.spec)

    def _options(self, other: "State") -> Iterator[Move]:
        """Options of strategy and engine that differ."""
        old, new = self.strategy, other.strategy
        if type(old) is not type(new):
            yield Move("strategy", type(old).__name__, type(new).__name__)
        else:
            shown, now = shown_options(old), shown_options(new)
            yield from moves_of({name: option for name, option in shown.items() if name in now}, now)
        one, two = self.config, other.config
        names = [name for name in names_of(one) if name != "spec"]
        yield from (Move(name, attrgetter(name)(one), attrgetter(name)(two)) for name in differing(one, two, names))

    @property
    def done(self) -> bool:
        """Whether no request waits or runs."""
        return not self.running and not self.waiting

    def find(self, request_id: int) -> Sequence | None:
        """The sequence of a request, live or finished; None when there is none. Costs the number of running requests."""
        arrival = self.live.get(request_id)
        return self.finished.get(request_id) if arrival is None else self.sequence(arrival)

    def filed(self, sequences: Iterable[Sequence]) -> "tuple[HashTrieMap[int, Sequence], List[int], HashTrieMap[int, int]]":
        """`finished`, `ended` and `live` once `sequences` have ended."""
        finished, ended, live = self.finished, self.ended, self.live
        for sequence in sequences:
            request_id = sequence.goal.request.id
            finished, ended = finished.insert(request_id, sequence), ended.push_front(request_id)
            if request_id in live:
                live = live.remove(request_id)
        return finished, ended, live

    def sequence(self, arrival: int) -> Sequence | None:
        """The live sequence with this arrival number; None when there is none. Costs the number of running requests."""
        for sequence in self.running:
            if sequence.goal.request.arrival == arrival:
                return sequence
        return self.waiting.get(arrival)

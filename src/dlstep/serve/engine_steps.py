"""The engine's side of steps: frames of the requests that asked for them, and the sequences that forks begin at."""

from ..core import Event, Sequence, State
from ..engine.overrides import with_changes, with_params
from ..views.frames import Frame, Watch
from .messages import Origin


class Steps:
    """Frames that are still to be told, and each kept request's sequence after each of its forwards.

    The sequences share what did not change between two steps. They are kept until `drop`, which the HTTP process asks for.
    """

    def __init__(self) -> None:
        self._watch = Watch()
        self._frames: dict[int, list[Frame]] = {}
        self._kept: dict[int, tuple[int, list[Sequence]]] = {}  # by id: the first one's number, then all

    def __len__(self) -> int:
        return len(self._kept)

    def open(self, request_id: int, sequence: Sequence, *, keeps: bool) -> None:
        """Watch a request that has just come in, maybe keep it; the HTTP process knows its first frame itself."""
        first, *rest = self._watch.open(sequence)
        self._frames[request_id] = rest
        if keeps:
            self._kept[request_id] = (first.seq, [] if rest else [sequence])

    def take(self, event: Event, state: State) -> None:
        """Note what an event made of the requests that are watched."""
        if not len(self._watch):
            return
        for sequence, frame in self._watch.take(event, state):
            self._frames[sequence.id].append(frame)
            if frame.ending is None and sequence.id in self._kept:
                self._kept[sequence.id][1].append(sequence)

    def told(self, request_id: int, *, over: bool) -> tuple[Frame, ...]:
        """The frames of a request that were not told yet; none come after those of one that is `over`."""
        found = tuple(self._frames[request_id])
        self._frames[request_id] = []
        if over:
            del self._frames[request_id]
        return found

    def drop(self, request_id: int) -> None:
        """Keep a request no longer; it goes on if it is under way."""
        self._kept.pop(request_id, None)

    def at(self, origin: Origin, state: State) -> Sequence:
        """The sequence that a fork begins with, to be adopted. Raises ValueError where the fork could not go on."""
        first, sequences = self._kept[origin.id]
        sequence = with_params(sequences[origin.seq - first], seed=origin.seed, temperature=origin.temperature)
        return with_changes(sequence, dict(origin.changes), state.config, state.strategy)

"""Recorded steps: frames for requests with `stream: steps`, and sequences for forks."""

from ..core import Event, SequenceState, State
from ..engine.overrides import with_changes
from ..views.frames import Frame, FrameRecorder
from .messages import Origin


class Steps:
    """Unsent frames, and each kept request's sequence after every forward pass.

    Consecutive sequences share their unchanged parts. They are kept until `drop` is called.
    """

    def __init__(self) -> None:
        self._recorder = FrameRecorder()
        self._frames: dict[int, list[Frame]] = {}
        self._kept: dict[int, tuple[int, list[SequenceState]]] = {}  # id -> (seq of the first, all)

    def __len__(self) -> int:
        return len(self._kept)

    def open(self, request_id: int, sequence: SequenceState, *, keeps: bool) -> None:
        """Record a new request. Its first frame is not sent: the HTTP process computes it."""
        first, *rest = self._recorder.open(sequence)
        self._frames[request_id] = rest
        if keeps:
            self._kept[request_id] = (first.seq, [] if rest else [sequence])

    def record(self, event: Event, state: State) -> None:
        """Record the changes that an event made to the recorded requests."""
        if not len(self._recorder):
            return
        for sequence, frame in self._recorder.record(event, state):
            self._frames[sequence.id].append(frame)
            if frame.finish_info is None and sequence.id in self._kept:
                self._kept[sequence.id][1].append(sequence)

    def unsent(self, request_id: int, *, over: bool) -> tuple[Frame, ...]:
        """Return and clear the unsent frames of a request; `over`: it has ended."""
        frames = tuple(self._frames[request_id])
        self._frames[request_id] = []
        if over:
            del self._frames[request_id]
        return frames

    def drop(self, request_id: int) -> None:
        """Discard the kept sequences of a request. A live request continues."""
        self._kept.pop(request_id, None)

    def at(self, origin: Origin, state: State) -> SequenceState:
        """Return the sequence that a fork starts from. Raises ValueError for invalid changes."""
        first, sequences = self._kept[origin.id]
        sequence, changes = sequences[origin.seq - first], dict(origin.changes)
        return with_changes(sequence, state.config, state.strategy, changes, seed=origin.seed, temperature=origin.temperature)

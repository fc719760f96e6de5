"""Recordings: the frames of whole answers, as saved by pages and computed from traces. Needs no model."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ..core import Add, Adopt, SequenceState, Spec, Trace
from ..core.trace import applied
from ..text.detokenize import cut
from ..text.words import Pieces
from .frames import Frame, FrameEncoder, FrameRecorder, Json, folded, head_of

KIND = "dlstep_recording"
VERSION: Literal[1] = 1


def recorded(runs: list[Json]) -> Json:
    """Return a recording, as saved by pages. Each run has `head`, `frames` and `text`."""
    return {KIND: VERSION, "runs": runs}


@dataclass(slots=True)
class _Run:
    """One answer of a trace: its first sequence, its origin, its frames, and the sequence and step after each frame."""

    sequence: SequenceState
    forked_from: Json | None
    frames: list[Frame]
    sequences: list[SequenceState]
    steps: list[int]


def recording(trace: Trace, model: str = "") -> Json:
    """Return all requests of a trace, by sequence number, as a recording. Needs no model.

    `steps` of a run lists the state's step after each frame.
    """
    state, recorder = trace.first, FrameRecorder()
    spec, runs = state.config.spec, dict[int, _Run]()

    def opened(sequence: SequenceState, origin: SequenceState | None = None) -> None:
        frames = recorder.open(sequence)
        runs[sequence.request_spec.request.seq_id] = _Run(
            sequence, _origin(runs, origin), list(frames), [sequence], [state.step] * len(frames)
        )

    for sequence, _ in sorted(state.sequences(), key=lambda pair: pair[0].request_spec.request.seq_id):
        opened(sequence)
    for number, event in enumerate(trace.events):
        state = applied(state, event, number)
        if isinstance(event, Add | Adopt):
            added = state.find(event.request.id if isinstance(event, Add) else event.id)
            assert added is not None, "it was just added"
            opened(added, None if isinstance(event, Add) else event.sequence)
        for sequence, frame in recorder.record(event, state):
            run = runs[sequence.request_spec.request.seq_id]
            run.frames.append(frame)
            run.sequences.append(sequence)
            run.steps.append(state.step)
    return recorded([_encoded_run(run, spec, model) for run in runs.values()])


def _origin(runs: Mapping[int, _Run], sequence: SequenceState | None) -> Json | None:
    """Return where in the trace an adopted sequence comes from; None if it comes from elsewhere or was not adopted."""
    if sequence is None:
        return None
    for seq_id, run in runs.items():
        seq = sequence.nfe - run.frames[0].seq
        if 0 <= seq < len(run.sequences) and run.sequences[seq] == sequence:
            return {"request": str(seq_id), "index": 0, "seq": sequence.nfe}
    return None


def _encoded_run(run: _Run, spec: Spec, model: str) -> Json:
    """Return a run of a recording."""
    request = run.sequence.request_spec.request
    # Requests of a trace may reuse an id, so the sequence number identifies them.
    head = head_of(run.sequence, spec, request=str(request.seq_id), kind="trace", model=model, forked_from=run.forked_from)
    encoder = FrameEncoder(0, len(request.prompt), spec.pieces)
    frames = [encoder.encode(frame) for frame in run.frames]
    frames[0]["head"] = head
    tokens, _, last = folded(run.frames)
    text = cut("".join(filter(None, Pieces(spec.pieces).texts(tokens))), request.params.stop)
    return {
        "index": 0, "head": head, "frames": frames, "steps": run.steps, "text": text, "ended": last.finish_info is not None,
    }  # fmt: skip

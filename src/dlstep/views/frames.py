"""Frames: the changes of one answer after each forward pass, as plain values.

Servers send frames; pages and terminals display them. `FrameRecorder` creates them during a decode,
`recording` from a saved trace. Both need only the core. Folding the frames of an answer yields the
same tokens, window and counts as folding its updates.
"""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal, NamedTuple

from ..core import (
    Abort,
    Add,
    Adopt,
    Event,
    Fail,
    Fields,
    Ids,
    Json,
    Options,
    Positions,
    Probabilities,
    Rebuild,
    Samples,
    SequenceState,
    Span,
    SpanSamples,
    Spec,
    State,
    Trace,
    Update,
    options_of,
)
from ..core.lifecycle import apply
from ..core.sequence import Best, FinishInfo, token_masks
from ..text.detokenize import cut
from ..text.words import Pieces
from .usage import RequestUsage, worked

KIND = "dlstep_recording"
VERSION: Literal[1] = 1


class Feeding(NamedTuple):
    """The part of a request in a forward pass. Positions count from the prompt's first token.

    `cached` prompt tokens were found in pages at its first admission. Positions `[0, stored)` are
    stored permanently; the request held `pages` pages. `preempted`: its KV cache was lost since its
    last forward pass. All fields except the last two are those of `plan` in the JSON.
    `best_ids` lists the candidates of each sampled position in turn, most probable first.
    """

    rows: int
    start: int
    cached: int
    stored: int
    sampled: Positions
    pages: int
    preempted: bool
    batch_requests: int
    batch_rows: int
    best_ids: Ids = ()
    best_probabilities: Probabilities = ()


class Frame(NamedTuple):
    """An answer after one forward pass, and its changes. `seq` numbers the frames of an answer.

    `tokens` are newly settled, `settled` is their total number. The window after them is packed:
    int32 ids (-1: masked) and float64 probabilities. `fed` is None if no forward pass created the
    frame: the first frame, and the last one if the request was aborted or failed. Under a
    constraint, `allowed` has the number of ids that each masked position of the window may hold, in order.
    `best` has the most probable ids at each of `tokens`, if the request asks for them.
    """

    seq: int
    steps: int
    nfe: int
    settled: int
    tokens: Ids
    probabilities: Probabilities
    packed_cells: bytes = b""
    packed_chances: bytes = b""
    fed: Feeding | None = None
    finish_info: FinishInfo | None = None
    allowed: tuple[int, ...] = ()
    best: tuple[Best, ...] = ()

    @property
    def cells(self) -> list[tuple[int | None, float]]:
        """The id (None: masked) and the probability of each position of the window."""
        ids, chances = array("i", self.packed_cells), array("d", self.packed_chances)
        return [(None if token < 0 else token, chance) for token, chance in zip(ids, chances, strict=True)]

    @property
    def size(self) -> int:
        """The number of positions in the frame."""
        return len(self.tokens) + len(self.packed_cells) // 4


@dataclass(slots=True)
class _Answer(RequestUsage):
    """The usage of an answer, the `seq` of its last frame, and the numbers of positions reported and stored by then."""

    seq: int = 0
    reported: int = 0
    stored: int = 0


class FrameRecorder:
    """A recorder that creates frames of the opened answers from the events of a decode."""

    def __init__(self) -> None:
        self._answers: dict[int, _Answer] = {}  # by sequence number

    def open(self, sequence: SequenceState) -> tuple[Frame, ...]:
        """Record a sequence. Return a frame of its settled tokens, and a second one if it has ended."""
        request, seq = sequence.request, sequence.nfe
        first = _frame(sequence, seq, request.start, None)
        reported = first.settled + request.start
        if sequence.finish_info is not None:
            return first._replace(finish_info=None), _frame(sequence, seq + 1, reported, None)
        stored, pages = sequence.storage.stored, len(sequence.storage.table)
        self._answers[request.seq_id] = _Answer(
            request.start, cached=0 if pages else None, pages=pages, seq=seq, reported=reported, stored=stored
        )
        return (first,)

    def record(self, event: Event, state: State) -> list[tuple[SequenceState, Frame]]:
        """Return the frames of an event, each with its sequence. `state` is the state after the event."""
        if not self._answers:
            return []
        match event:
            case Samples():
                worked(self._answers, event.plan, state.config.page_size)
                return list(self._fed(event, state))
            case Abort(id=request_id) | Fail(id=request_id):
                sequence = state.finished.get(request_id)
                if sequence is not None and (answer := self._answers.pop(sequence.request.seq_id, None)) is not None:
                    return [(sequence, _frame(sequence, answer.seq + 1, answer.reported, None))]
            case Rebuild():
                for answer in self._answers.values():
                    answer.lose()
            case _:
                pass
        return []

    def _fed(self, samples: Samples, state: State) -> Iterator[tuple[SequenceState, Frame]]:
        """Yield the frames of the recorded answers in a forward pass."""
        plan = samples.plan
        running = {sequence.request.seq_id: sequence for sequence in state.running}
        all_rows = plan.num_rows
        for span, rows in zip(plan.spans, samples.spans, strict=True):
            seq_id = span.who.seq_id
            if (answer := self._answers.get(seq_id)) is None:
                continue
            if (sequence := running.get(seq_id)) is None:
                sequence = state.finished[span.who.id]
                del self._answers[seq_id]
            fed = _feeding(answer, sequence, span, rows, len(plan.spans), all_rows)
            answer.seq, answer.lost, answer.stored = answer.seq + 1, False, fed.stored
            frame = _frame(sequence, answer.seq, answer.reported, fed)
            answer.reported += len(frame.tokens)
            yield sequence, frame


def _feeding(answer: _Answer, sequence: SequenceState, span: Span, rows: SpanSamples, requests: int, all_rows: int) -> Feeding:
    """Return the part of a span in its forward pass."""
    stored, fed = sequence.storage.stored, span.rows
    if sequence.finish_info is not None:  # its storage is already released
        stored = 0 if answer.lost else answer.stored
        if fed.final_rows:
            stored = max(stored, fed.start + fed.query_only + fed.final_rows)
    return Feeding(
        len(fed.tokens),
        fed.start,
        answer.cached or 0,
        stored,
        span.wanted.sampled,
        answer.pages,
        answer.lost,
        requests,
        all_rows,
        rows.best_ids,
        rows.best_probabilities,
    )


def _frame(sequence: SequenceState, seq: int, reported: int, fed: Feeding | None) -> Frame:
    """Return the frame of a sequence whose positions `[0, reported)` were already reported."""
    finish_info, update = sequence.finish_info, Update(sequence, reported)
    cells, chances = update.window
    return Frame(
        seq,
        sequence.steps,
        sequence.nfe,
        update.stop - sequence.request.start,
        update.tokens,
        update.probabilities,
        array("i", [-1 if token is None else token for token in cells]).tobytes(),
        array("d", chances).tobytes(),
        fed,
        finish_info,
        () if finish_info is not None or sequence.request.constraint is None else _allowed(sequence, update.stop),
        sequence.best_of(reported, update.stop),
    )


def _allowed(sequence: SequenceState, stop: int) -> tuple[int, ...]:
    """Return the number of ids that each masked position of the window, from `stop` to the answer's limit, may hold."""
    limit = sequence.request.limit
    masked = tuple(place for block in sequence.progress.window for place in block.masked if stop <= place < limit)
    return tuple(mask.count for mask in token_masks(sequence, masked))


class FrameEncoder:
    """A converter of an answer's frames, in order, to JSON with offsets in the answer."""

    def __init__(self, index: int, prompt_length: int, pieces: tuple[bytes, ...]) -> None:
        self._index, self._prompt, self._pieces = index, prompt_length, pieces
        self._settled = Pieces(pieces)

    def skip(self, frames: Sequence[Frame]) -> None:
        """Skip the first frames."""
        self._settled.texts(folded(frames)[0], end=False)

    def encode(self, frame: Frame, seconds: float | None = None) -> Json:
        """Return a frame as JSON, which must be the one after the previous frame."""
        begin = frame.settled - len(frame.tokens)
        texts = self._settled.texts(frame.tokens, end=frame.finish_info is not None)
        tokens = zip(frame.tokens, frame.probabilities, texts, strict=True)
        encoded: Json = {
            "index": self._index,
            "seq": frame.seq,
            "step": frame.steps,
            "nfe": frame.nfe,
            "settled": frame.settled,
            "tokens": [[place, *token] for place, token in enumerate(tokens, begin)],
            "cells": self._cells(frame),
            "plan": None if frame.fed is None else self._plan(frame.fed),
            "rivals": {} if frame.fed is None else self._rivals(frame.fed),
            "allowed": self._allowed(frame),
            "seconds": seconds,
        }
        if frame.finish_info is not None:
            ratio = round(frame.settled / frame.nfe, 4) if frame.nfe else 0.0
            encoded |= {"finish_reason": frame.finish_info.reason, "tokens_per_forward": ratio}
            if frame.finish_info.error:
                encoded["error"] = frame.finish_info.error
        return encoded

    def _cells(self, frame: Frame) -> list[list[Any]]:
        cells = frame.cells
        texts = Pieces(self._pieces).texts([token for token, _ in cells])
        return [[place, *cell, text] for place, (cell, text) in enumerate(zip(cells, texts, strict=True), frame.settled)]

    def _allowed(self, frame: Frame) -> dict[str, int]:
        if not frame.allowed:
            return {}
        masked = [place for place, (token, _) in enumerate(frame.cells, frame.settled) if token is None]
        return {str(place): count for place, count in zip(masked, frame.allowed, strict=True)}

    def _plan(self, fed: Feeding) -> Json:
        offsets = {"start": fed.start - self._prompt, "sampled": [position - self._prompt for position in fed.sampled]}
        return {name: value for name, value in (fed._asdict() | offsets).items() if not name.startswith("best")}

    def _rivals(self, fed: Feeding) -> Json:
        if not fed.best_ids:
            return {}
        texts = (Pieces(self._pieces).texts([token])[0] for token in fed.best_ids)
        rivals = [list(rival) for rival in zip(fed.best_ids, fed.best_probabilities, texts, strict=True)]
        width = len(rivals) // len(fed.sampled)
        return {str(p - self._prompt): rivals[n * width : (n + 1) * width] for n, p in enumerate(fed.sampled)}


def name_of(value: Options) -> str:
    """Return the name of a strategy or rule, which is that of its module."""
    return type(value).__module__.rpartition(".")[2]


def shown_options(value: Options) -> Json:
    """Return all options of a strategy by name, as JSON; a rule as its name."""
    options = {name: name_of(option) if isinstance(option, Options) else option for name, option in options_of(value).items()}
    return {name: list(option) if isinstance(option, tuple) else option for name, option in sorted(options.items())}


def head_of(
    sequence: SequenceState, spec: Spec, *, request: str, kind: str, model: str, forked_from: Fields | None = None
) -> Json:
    """Return the facts of an answer before its first forward pass, as JSON."""
    submitted = sequence.request
    strategy, grid = submitted.strategy, submitted.grid
    prompt = Pieces(spec.pieces).texts(submitted.prompt)
    return {
        "request": request,
        "kind": kind,
        "model": model,
        "prompt": "".join(filter(None, prompt)),
        "prompt_tokens": len(submitted.prompt),
        "strategy": name_of(strategy),
        "options": shown_options(strategy),
        "seed": submitted.seed,
        "temperature": submitted.params.temperature,
        "max_tokens": submitted.limit - submitted.start,
        "grid": {"start": grid.origin - submitted.start, "size": grid.size},
        "mask": spec.mask_id,
        "eos": list(spec.eos_ids),
        "forked_from": None if forked_from is None else dict(forked_from),
    }


def framed(sequence: SequenceState, spec: Spec) -> tuple[Json, list[Json]]:
    """Return the facts of an answer and the frames that show it as it is, as JSON.

    Args:
        sequence: The sequence of the answer.
        spec: Facts of the model.
    """
    encoder = FrameEncoder(0, sequence.request.start, spec.pieces)
    frames = [encoder.encode(frame) for frame in FrameRecorder().open(sequence)]
    return head_of(sequence, spec, request=str(sequence.request.id), kind="state", model=""), frames


def folded(frames: Sequence[Frame]) -> tuple[Ids, Probabilities, Frame]:
    """Return joined tokens and probabilities of frames, at least one, and the last frame."""
    tokens, chances = (chain.from_iterable(each) for each in zip(*((f.tokens, f.probabilities) for f in frames), strict=True))
    return tuple(tokens), tuple(chances), frames[-1]


def joined(frames: Sequence[Frame]) -> Frame:
    """Return the merged frame of at least one frame, as the first frame of a fork."""
    tokens, chances, last = folded(frames)
    return last._replace(tokens=tokens, probabilities=chances, fed=None, finish_info=None)


_Shown = list[tuple[Frame, SequenceState, int]]  # each frame of an answer, with the sequence and the step after it


def recording(trace: Trace, model: str = "") -> Json:
    """Return all requests of a trace, by sequence number, as a recording. Needs no model.

    `steps` of a run lists the state's step after each frame.

    Args:
        trace: The trace of a decode.
        model: Name of the model to show.
    """
    state, recorder = trace.first, FrameRecorder()
    spec, runs = state.config.spec, dict[int, _Shown]()

    def opened(sequence: SequenceState) -> None:
        runs[sequence.request.seq_id] = [(frame, sequence, state.step) for frame in recorder.open(sequence)]

    for sequence, _ in sorted(state.sequences(), key=lambda pair: pair[0].request.seq_id):
        opened(sequence)
    for event in trace.events:
        state = apply(state, event)
        if isinstance(event, Add | Adopt):
            added = state.find(event.request.id if isinstance(event, Add) else event.id)
            assert added is not None, "it was just added"
            opened(added)
        for sequence, frame in recorder.record(event, state):
            runs[sequence.request.seq_id].append((frame, sequence, state.step))
    return {KIND: VERSION, "runs": [_encoded_run(shown, spec, model) for shown in runs.values()]}


def _encoded_run(shown: _Shown, spec: Spec, model: str) -> Json:
    """Return a run of a recording."""
    plain, sequences, steps = zip(*shown, strict=True)
    request = sequences[0].request
    # Requests of a trace may reuse an id, so the sequence number identifies them.
    head = head_of(sequences[0], spec, request=str(request.seq_id), kind="trace", model=model)
    encoder = FrameEncoder(0, request.start, spec.pieces)
    frames = [encoder.encode(frame) for frame in plain]
    frames[0]["head"] = head
    tokens, _, last = folded(plain)
    text = cut("".join(filter(None, Pieces(spec.pieces).texts(tokens))), request.params.stop)
    return {
        "index": 0, "head": head, "frames": frames, "steps": list(steps), "text": text, "ended": last.finish_info is not None,
    }  # fmt: skip

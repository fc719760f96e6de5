"""Pools of engines that answer items: the engine of this process, or several worker processes."""

import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from time import perf_counter
from typing import Any

from ..core import DlstepError, Event, Request, Samples, Update
from ..core.plugins import searched
from ..core.usage import RequestUsage, Usage
from ..driver import TorchDriver
from ..engine.config import EngineConfig
from ..engine.devices import device_of
from ..engine.loader import LoadedEngine, load_engine
from ..processes import Clock, Heart, Pulse, Worker, WorkerDied
from ..text.detokenize import cut, decode
from ..text.prompts import with_stop_ids
from .items import Item
from .metrics import ROUND, ForwardSums
from .options import EvalOptions
from .versions import EvaluatorInfo, about


@dataclass(frozen=True, slots=True)
class AnsweredItem:
    """The answer to the item at `place`: `row` depends only on the request, unlike `beside`."""

    place: int
    row: Mapping[str, Any]
    beside: Mapping[str, Any]


class Live:
    """A live request, with the step at which each token of the window was unmasked."""

    def __init__(self, place: int, item: Item) -> None:
        self.place, self.item, self.begin = place, item, perf_counter()
        self._unmasked: dict[int, tuple[int, int]] = {}  # offset in the answer: token, step

    def fold(self, update: Update) -> None:
        """Record the step at which each position got its current token."""
        unmasked, first = self._unmasked, update.start - len(update.sequence.request.prompt)
        for offset, token in enumerate([*update.tokens, *(cell.token for cell in update.window)], first):
            if token is None:
                unmasked.pop(offset, None)
            elif offset not in unmasked or unmasked[offset][0] != token:
                unmasked[offset] = token, update.steps

    def answered(self, update: Update, engine: LoadedEngine, usage: RequestUsage) -> AnsweredItem:
        """Return the answer, from the update that ended it and the request's usage."""
        sequence, item = update.sequence, self.item
        tokens = sequence.answer
        key = {"task": item.task, "document": item.document.number, "options": dict(item.options)}
        text = cut(decode(engine.tokenizer, tokens), item.params.stop)
        row = key | {
            "prompt": item.prompt, "answer": text, "tokens": list(tokens), "steps": sequence.steps,
            "finish": sequence.finish, "error": sequence.error, "seed": sequence.request.seed,
        }  # fmt: skip
        beside = key | {
            "forwards": sequence.nfe,
            "computed": usage.rows,
            "wasted": usage.wasted(sequence.finish or "error"),
            "seconds": round(perf_counter() - self.begin, ROUND),
            "decided_at": [self._unmasked[offset][1] for offset in range(len(tokens))],
            "probabilities": [round(probability, ROUND) for probability in sequence.probabilities],
        }
        return AnsweredItem(self.place, row, beside)


class Answering:
    """An engine that accepts items at any time: the pool of this process."""

    def __init__(self, engine: LoadedEngine) -> None:
        self.about = about(engine)
        self._engine = engine
        self._decode = engine.decode(record=self._count)
        self._live: dict[int, Live] = {}
        self._usage = Usage()
        self._work = ForwardSums()  # work of the current step

    @property
    def live(self) -> int:
        """The number of live requests."""
        return len(self._live)

    def add(self, place: int, item: Item) -> None:
        """Queue an item. Raises ValueError for a prompt that cannot be encoded."""
        params = with_stop_ids(item.params, self._engine.tokenizer)
        self._decode.add(Request(place, item.ids(self._engine), params, index=item.index))
        self._live[place] = Live(place, item)
        if (seq_id := self._decode.state.live.get(place)) is not None:
            self._usage.open(seq_id, 0)

    def step(self) -> tuple[list[AnsweredItem], ForwardSums]:
        """Run one forward pass, and return its work and the answers that it completed."""
        begin, padding, self._work = perf_counter(), self._padding, ForwardSums()
        ended: list[AnsweredItem] = []
        for update in self._decode.step():
            live = self._live[update.id]
            live.fold(update)
            if update.finish_info is not None:
                seq_id = update.sequence.request.seq_id
                ended.append(live.answered(update, self._engine, self._usage.of(seq_id)))
                self._usage.close(seq_id)
                del self._live[update.id]
        took = perf_counter() - begin
        timed = ForwardSums(padding=self._padding - padding, seconds=took, decode_seconds=took if self._work.sampling else 0.0)
        return ended, self._work + timed

    def close(self) -> None:
        """Do nothing: there are no resources to release."""

    @property
    def _padding(self) -> int:
        """The number of padding rows so far; only captured forward passes have some."""
        driver = self._engine.driver
        return driver.padding if isinstance(driver, TorchDriver) else 0

    def _count(self, event: Event) -> None:
        """Count a forward pass, for each request and in total."""
        if isinstance(event, Samples):
            done = self._usage.take(event.plan, self._decode.state.config.page_size)
            self._work += ForwardSums(1, done.sampling_forwards, done.spans, done.rows, preemptions=done.preemptions)


START = 1800.0  # minimum seconds allowed for a worker to load


class Processes:
    """A pool of equal engines in worker processes; the least busy one gets the next item.

    The pool kills a worker that sends no heartbeat for `seconds` or whose forward pass takes
    longer, and moves the items of a lost worker to the others. Raises ValueError if no engine can
    be made from the configuration, and DlstepError, with the reasons, once no worker is left.
    """

    def __init__(self, config: EngineConfig, count: int, seconds: float = 300.0) -> None:
        if config.tensor_parallel_size > 1:
            raise ValueError(
                f"workers={count} cannot be combined with tensor_parallel_size={config.tensor_parallel_size}, which also "
                "starts processes: give one of the two"
            )
        self._seconds, self._clock = seconds, Clock()
        self._lost: list[str] = []  # the reasons of lost workers
        self._live: dict[Pulse, dict[int, Item]] = {}  # unanswered items of each worker, by place
        self._ready: dict[Pulse, EvaluatorInfo] = {}
        try:
            for number in range(count):
                self._live[Pulse(Worker(work, config, number, name=f"worker {number} of {count}"))] = {}
            while len(self._ready) < len(self._live):
                self.step()
        except BaseException:
            self.close()
            raise
        infos = list(self._ready.values())
        self.about = infos[0]._replace(seats=sum(info.seats for info in infos))

    @property
    def live(self) -> int:
        """The number of requests without an answer."""
        return sum(map(len, self._live.values()))

    def add(self, place: int, item: Item) -> None:
        """Send an item to the least busy worker."""
        pulse = min(self._live, key=lambda pulse: len(self._live[pulse]))
        if not self._live[pulse]:
            pulse.silence.standstill = 0.0  # an idle worker makes no progress
        self._live[pulse][place] = item
        with suppress(WorkerDied):  # the next step notices the death
            pulse.worker.send((place, item), self._seconds)

    def step(self) -> tuple[list[AnsweredItem], ForwardSums]:
        """Wait for answers or a heartbeat. Raises a worker's error, and DlstepError if all died."""
        answers, done = list[AnsweredItem](), ForwardSums()
        passed = self._clock.wait([pulse.worker for pulse in self._live])
        for pulse in list(self._live):
            alive = pulse.worker.alive  # read first, so that a dead worker's last messages count
            for message in pulse.take(passed):
                match message:
                    case ValueError():
                        raise message
                    case EvaluatorInfo():
                        self._ready[pulse] = message
                    case ended, worked:
                        for answered in ended:
                            del self._live[pulse][answered.place]
                        answers += ended
                        done += worked
            if not alive or self._overdue(pulse):
                self._lose(pulse)
        return answers, done

    def close(self) -> None:
        """Ask the workers to end, and kill those that do not."""
        for pulse in self._live:
            pulse.worker.connection.close()
        for pulse in self._live:
            pulse.worker.end()

    def _overdue(self, pulse: Pulse) -> bool:
        """Return whether a worker is stopped or hangs, and kill it if so."""
        limit = self._seconds if pulse in self._ready else max(self._seconds, START)
        if pulse.silence.longer(self._seconds):
            pulse.worker.kill(f"sent no heartbeat for {pulse.silence.seconds:.0f} seconds and was killed")
        elif pulse.silence.stuck(limit) and (self._live[pulse] or pulse not in self._ready):
            task = "finished no forward pass" if pulse in self._ready else "was not ready"
            pulse.worker.kill(f"{task} for {pulse.silence.standstill:.0f} seconds and was killed")
        else:
            return False
        return True

    def _lose(self, pulse: Pulse) -> None:
        """Move the items of a lost worker to the others. Raises DlstepError if none is left."""
        pulse.worker.end(0)
        self._lost.append(pulse.worker.reason)
        items = self._live.pop(pulse)
        self._ready.pop(pulse, None)
        if not self._live:
            raise DlstepError(f"{'; '.join(self._lost)}: the answers so far are kept, run the same command again")
        print(f"dlstep: {self._lost[-1]}; the other workers answer what it had", file=sys.stderr, flush=True)
        for place, item in items.items():
            self.add(place, item)


AnswererPool = Answering | Processes


def pool_of(config: EngineConfig, options: EvalOptions) -> AnswererPool:
    """Return the pool that the options select. Raises ValueError if it cannot be created."""
    if options.workers > 1:
        return Processes(config, options.workers, options.worker_timeout)
    return Answering(load_engine(config))


def work(connection: Connection, config: EngineConfig, number: int) -> None:
    """Run a worker: load the engine, then answer items until the connection closes."""
    heart = Heart(connection)
    try:
        with searched(Path.cwd()):
            answering, done = Answering(load_engine(replace(config, device=device_of(config.device, number)))), ForwardSums()
        heart.send(answering.about)
        while True:
            while connection.poll() or not answering.live:
                answering.add(*connection.recv())
            ended, worked = answering.step()
            done += worked
            heart.progress += 1
            if ended:
                heart.send((ended, done))
                done = ForwardSums()
    except (ValueError, OSError, DlstepError, EOFError) as error:
        # The other errors mean that the parent has ended.
        if not isinstance(error, EOFError | BrokenPipeError | ConnectionResetError):
            heart.send(ValueError(" ".join(str(error).split())))

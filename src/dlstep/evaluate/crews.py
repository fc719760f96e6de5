"""Who decodes: this process, or several of their own. Which of them answers an item changes no token of it."""

import sys
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from ..config import EngineConfig
from ..core import Config, DlstepError, Strategy
from ..devices import device_of
from ..engine import Engine, load_engine
from ..lookup import searched
from ..processes import Clock, Heart, Pulse, Worker, WorkerDied
from .answering import Answered, Answering
from .items import Item
from .metrics import Work

START = 1800.0  # seconds at least that a worker may take to load


class About(NamedTuple):
    """The engine of a crew: the facts that its answers depend on, and how many requests it takes at a time."""

    facts: dict[str, Any]
    seats: int
    config: Config
    strategy: Strategy


class Failed(NamedTuple):
    """A process cannot go on, and why."""

    why: str


class Crew(Protocol):
    """Takes items at any time."""

    @property
    def about(self) -> About:
        """The facts of the crew."""
        ...

    @property
    def live(self) -> int:
        """Requests without an answer."""
        ...

    def add(self, place: int, item: Item) -> None:
        """Let an item wait."""
        ...

    def step(self) -> tuple[list[Answered], Work]:
        """Some answers, perhaps none, and the work since the last ones."""
        ...

    def close(self) -> None:
        """Give up what is not answered."""
        ...


def about(engine: Engine) -> About:
    """The facts of an engine."""
    config = engine.first.config
    facts = {
        "model": engine.name,
        "fingerprint": config.spec.fingerprint,
        "strategy": repr(engine.first.strategy),
        "max_model_len": config.max_model_len,
        "seed": config.seed,
    }
    return About(facts, config.max_num_reqs, config, engine.first.strategy)


class Alone:
    """An engine in this process."""

    def __init__(self, engine: Engine) -> None:
        self._about = about(engine)
        self._answering = Answering(engine)

    @property
    def about(self) -> About:
        """The facts of the engine."""
        return self._about

    @property
    def live(self) -> int:
        """Requests without an answer."""
        return self._answering.live

    def add(self, place: int, item: Item) -> None:
        """Let an item wait."""
        self._answering.add(place, item)

    def step(self) -> tuple[list[Answered], Work]:
        """The answers that a forward ended."""
        return self._answering.step(), self._answering.worked()

    def close(self) -> None:
        """Nothing is left behind."""


class Processes:
    """Engines in worker processes, each with the configuration; the one with the fewest requests gets the next.

    A worker that dies, that gives no sign of life for `seconds`, or that takes longer for one forward pass, is killed, and its
    items go to the others. Raises ValueError for a configuration that no engine can be made of, and DlstepError, with the
    reasons, once no worker is left.
    """

    def __init__(self, config: EngineConfig, count: int, seconds: float = 300.0) -> None:
        if config.tensor_parallel_size > 1:
            raise ValueError(
                f"workers={count} does not go with tensor_parallel_size={config.tensor_parallel_size}, which starts processes "
                "of its own: give one of the two"
            )
        self._seconds, self._clock = seconds, Clock()
        self._lost: list[str] = []  # why workers are gone
        self._live: dict[Pulse, dict[int, Item]] = {}  # what each worker has not answered, by place
        self._ready: dict[Pulse, About] = {}
        try:
            for number in range(count):
                self._live[Pulse(Worker(work, config, number, name=f"worker {number} of {count}"))] = {}
            while len(self._ready) < len(self._live):
                self.step()
        except BaseException:
            self.close()
            raise
        each = list(self._ready.values())
        self._about = each[0]._replace(seats=sum(one.seats for one in each))

    @property
    def about(self) -> About:
        """The facts of the engines, and the seats of all."""
        return self._about

    @property
    def live(self) -> int:
        """Requests without an answer."""
        return sum(map(len, self._live.values()))

    def add(self, place: int, item: Item) -> None:
        """Send an item to a process."""
        pulse = min(self._live, key=lambda pulse: len(self._live[pulse]))
        if not self._live[pulse]:
            pulse.standstill = 0.0  # it had nothing to do
        self._live[pulse][place] = item
        with suppress(WorkerDied):  # the next look finds that out
            pulse.worker.send((place, item), self._seconds)

    def step(self) -> tuple[list[Answered], Work]:
        """Wait for answers of any process, or for a heartbeat. Raises what a process raised, DlstepError if all have died."""
        answers, done = list[Answered](), Work()
        passed = self._clock.wait([pulse.worker for pulse in self._live])
        for pulse in list(self._live):
            alive = pulse.worker.alive  # before its last messages are read
            for message in pulse.take(passed):
                match message:
                    case Failed():
                        raise ValueError(message.why)
                    case About():
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
        """Ask the processes to end, and end those by force that do not."""
        for pulse in self._live:
            pulse.worker.connection.close()
        for pulse in self._live:
            pulse.worker.end()

    def _overdue(self, pulse: Pulse) -> bool:
        """Whether a worker has stopped or hangs; it is killed then."""
        limit = self._seconds if pulse in self._ready else max(self._seconds, START)
        if pulse.silent(self._seconds):
            pulse.worker.kill(f"gave no sign of life for {pulse.silence:.0f} seconds and was killed")
        elif pulse.stuck(limit) and (self._live[pulse] or pulse not in self._ready):
            task = "finished no forward pass" if pulse in self._ready else "was not ready"
            pulse.worker.kill(f"{task} for {pulse.standstill:.0f} seconds and was killed")
        else:
            return False
        return True

    def _lose(self, pulse: Pulse) -> None:
        """Let the other workers answer what one that is gone had. Raises DlstepError if none is left."""
        pulse.worker.end(0)
        self._lost.append(pulse.worker.reason)
        items = self._live.pop(pulse)
        self._ready.pop(pulse, None)
        if not self._live:
            raise DlstepError(f"{'; '.join(self._lost)}: the answers so far are kept, run the same command again")
        print(f"dlstep: {self._lost[-1]}; the other workers answer what it had", file=sys.stderr, flush=True)
        for place, item in items.items():
            self.add(place, item)


def work(connection: Connection, config: EngineConfig, number: int) -> None:
    """Be a worker: load, then answer until the connection closes."""
    heart = Heart(connection)
    try:
        with searched(Path.cwd()):
            answering = Answering(load_engine(replace(config, device=device_of(config.device, number))))
        heart.send(about(answering.engine))
        while True:
            while connection.poll() or not answering.live:
                answering.add(*connection.recv())
            ended = answering.step()
            heart.progress += 1
            if ended:
                heart.send((ended, answering.worked()))
    except (ValueError, OSError, DlstepError, EOFError) as error:
        if not isinstance(error, EOFError | BrokenPipeError | ConnectionResetError):  # those: the parent has gone
            heart.send(Failed(" ".join(str(error).split())))

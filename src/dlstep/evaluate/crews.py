"""Who decodes: this process, or several of their own. Which of them answers an item changes no token of it."""

import signal
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from ..config import EngineConfig
from ..core import Config, DlstepError, Strategy
from ..devices import device_of
from ..engine import Engine, load_engine
from ..lookup import searched
from .answering import Answered, Answering
from .items import Item
from .metrics import Work

PATIENCE = 5.0  # seconds that a process has to end by itself


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
    """Engines in processes of their own, each with the configuration; the one with the fewest requests gets the next."""

    def __init__(self, config: EngineConfig, count: int) -> None:
        if config.tensor_parallel_size > 1:
            raise ValueError(
                f"workers={count} does not go with tensor_parallel_size={config.tensor_parallel_size}, which starts processes "
                "of its own: give one of the two"
            )
        self._pipes: list[Connection] = []
        self._processes: list[BaseProcess] = []
        self._live: dict[Connection, int] = {}
        context = get_context("spawn")  # a fork would share threads of torch
        for number in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(target=work, args=(theirs, config, number), name=f"dlstep-eval-{number}", daemon=True)
            process.start()
            theirs.close()  # so that its end closes the pipe
            self._pipes.append(ours)
            self._processes.append(process)
            self._live[ours] = 0
        try:
            each = [self._heard(pipe) for pipe in self._pipes]
        except (ValueError, DlstepError):
            self.close()
            raise
        self._about = each[0]._replace(seats=sum(one.seats for one in each))

    @property
    def about(self) -> About:
        """The facts of the engines, and the seats of all."""
        return self._about

    @property
    def live(self) -> int:
        """Requests without an answer."""
        return sum(self._live.values())

    def add(self, place: int, item: Item) -> None:
        """Send an item to a process."""
        pipe = min(self._pipes, key=lambda pipe: self._live[pipe])
        self._live[pipe] += 1
        pipe.send((place, item))

    def step(self) -> tuple[list[Answered], Work]:
        """Wait for answers of any process. Raises what the process raised, and DlstepError when one dies."""
        answers, done = list[Answered](), Work()
        for pipe in wait([pipe for pipe in self._pipes if self._live[pipe]]):
            assert isinstance(pipe, Connection), "only pipes are waited for"
            ended, worked = self._heard(pipe)
            self._live[pipe] -= len(ended)
            answers += ended
            done += worked
        return answers, done

    def close(self) -> None:
        """Ask the processes to end, and end those by force that do not."""
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join(PATIENCE)
            if process.is_alive():
                process.kill()
                process.join()

    def _heard(self, pipe: Connection) -> Any:
        try:
            message = pipe.recv()
        except (EOFError, ConnectionResetError) as error:
            number = self._pipes.index(pipe)
            raise DlstepError(
                f"worker {number} of {len(self._pipes)} died: the answers so far are kept, run the same command again"
            ) from error
        if isinstance(message, Failed):
            raise ValueError(message.why)
        return message


def work(pipe: Connection, config: EngineConfig, number: int) -> None:
    """A process of a crew: load, then answer until the pipe closes. Ctrl-C is its parent's affair."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with searched(Path.cwd()):
            answering = Answering(load_engine(replace(config, device=device_of(config.device, number))))
        pipe.send(about(answering.engine))
        while True:
            while pipe.poll() or not answering.live:
                answering.add(*pipe.recv())
            ended = answering.step()
            if ended:
                pipe.send((ended, answering.worked()))
    except (ValueError, OSError, DlstepError, EOFError) as error:
        if not isinstance(error, EOFError | BrokenPipeError | ConnectionResetError):  # those: the parent has gone
            pipe.send(Failed(" ".join(str(error).split())))

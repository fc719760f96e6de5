"""An engine's process and its loop, which executes commands, reports each step, and records steps for frames and forks."""

import gc
import logging
import os
from collections.abc import Iterable
from dataclasses import replace
from multiprocessing.connection import Connection
from operator import add, methodcaller
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from time import perf_counter, process_time
from typing import Any, NoReturn

from ..core import DlstepError, Event, Refusal, Samples, SequenceState, State, Update, WeightsDriver, schedule
from ..core.options import searched
from ..core.sequence import AddedRequest, FinishInfo
from ..core.step_map import step_map_of
from ..distributed import RankLost
from ..engine.config import EngineConfig
from ..engine.decode import Decode, RanksDriver
from ..engine.devices import FIRST_DEVICE, device_of
from ..engine.loader import LoadedEngine, changed, load_engine
from ..engine.overrides import with_changes
from ..engine.reads import ReadResult, Reads
from ..processes import Heart, disconnect, last_words
from ..views.frames import Frame, FrameRecorder
from ..views.usage import RequestUsage, Work, worked
from .log_lines import LOG, LineHandler
from .messages import (
    EMPTY_WINDOW,
    Cancel,
    ChangeEngine,
    Command,
    Drop,
    EngineFailed,
    EngineLoad,
    Facts,
    News,
    Origin,
    StepReport,
    Submit,
)


class Steps:
    """Unsent frames, and each kept request's sequence after every forward pass.

    Consecutive sequences share their unchanged parts. They are kept until `drop` is called.
    """

    def __init__(self) -> None:
        self._recorder = FrameRecorder()
        self._frames: dict[int, list[Frame]] = {}
        self._kept: dict[int, tuple[int, list[SequenceState]]] = {}  # id -> (seq of the first, all)

    def open(self, request_id: int, sequence: SequenceState, *, keeps: bool) -> None:
        """Record a new request. Its first frame is not sent: the HTTP process computes it."""
        first, *rest = self._recorder.open(sequence)
        self._frames[request_id] = rest
        if keeps:
            self._kept[request_id] = (first.seq, [] if rest else [sequence])

    def record(self, event: Event, state: State) -> None:
        """Record the changes that an event made to the recorded requests."""
        for sequence, frame in self._recorder.record(event, state):
            self._frames[sequence.request.id].append(frame)
            if frame.finish_info is None and sequence.request.id in self._kept:
                self._kept[sequence.request.id][1].append(sequence)

    def unsent(self, request_id: int, *, over: bool) -> tuple[Frame, ...]:
        """Return and clear the unsent frames of a request; `over`: it has ended."""
        frames = self._frames.pop(request_id)
        if not over:
            self._frames[request_id] = []
        return tuple(frames)

    def drop(self, request_id: int) -> None:
        """Discard the kept sequences of a request. A live request continues."""
        self._kept.pop(request_id, None)

    def at(self, origin: Origin, state: State) -> SequenceState:
        """Return the sequence that a fork starts from. Raises ValueError for invalid changes."""
        first, sequences = self._kept[origin.id]
        sequence, changes = sequences[origin.seq - first], dict(origin.changes)
        return with_changes(sequence, state.config, state.strategy, changes, seed=origin.seed, temperature=origin.temperature)


FAILED = "the model failed in a forward pass that included this request"
STALE = "the last update of the weights failed: update them again"
MOST_FAILURES = 2  # consecutive failed forward passes that an engine survives; one more ends it


class EngineLoop:
    """A `Decode` driven by commands, without transport or threads. Clocks only measure its cost."""

    def __init__(self, engine: LoadedEngine) -> None:
        self._engine, self._decode = engine, Decode(engine.first, engine.driver, record=self._count)
        self._reads: Reads | None = None  # created by the first read
        self._reading = False  # whether the current forward pass runs reads
        self._policy = engine.buffer_policy
        self._failures, self._stale = 0, ""  # `_stale`: other engines have newer weights
        self._submits: dict[int, Submit] = {}  # of live requests, by id
        self._usage: dict[int, RequestUsage] = {}  # of live requests, by sequence number
        self._steps = Steps()
        self._work = Work()
        self._spent, self._passed = process_time(), perf_counter()

    @property
    def idle(self) -> bool:
        """Whether a step would neither run a forward pass nor report anything."""
        state = self._decode.state
        reads = self._reads is not None and self._reads.live
        return state.done and not state.ended and not reads  # `ended`: requests that are not reported yet

    def execute(self, commands: Iterable[Command]) -> list[Facts]:
        """Execute commands: queue requests, end cancelled ones, drop the steps of kept ones. Return the facts after changes."""
        commands, facts = tuple(commands), list[Facts]()
        if self.idle:
            self._passed = perf_counter()
        live = len(self._decode.state.live) + sum(isinstance(command, Submit) for command in commands)
        for command in commands:
            match command:
                case Submit():
                    self._submits[command.id] = command
                    self._start(command, live)
                case Cancel():
                    sequence = self._decode.state.find(command.id)
                    if sequence is None or not (command.unstarted and sequence.nfe):
                        self._decode.abort(command.id, command.reason)
                    if self._reads is not None:
                        self._reads.abort(command.id, command.reason)
                case Drop():
                    self._steps.drop(command.id)
                case ChangeEngine():
                    facts.append(self._change(command))
        return facts

    def _change(self, change: ChangeEngine) -> Facts:
        """Change weights or memory, and return the facts. The router sends this only while no request is live."""
        driver, result, refusal = self._engine.driver, None, None
        try:
            self._engine, result = changed(self._engine, methodcaller(change.method, *change.arguments))
        except (ValueError, OSError, RuntimeError) as error:  # RuntimeError: no memory
            refusal = Refusal("", "engine_error" if isinstance(error, RuntimeError) else "invalid_value", str(error))
        if change.method == "update":
            self._stale = STALE if refusal and (change.needed or self._stale) else ""
        self._decode.rewind(self._engine.first)
        self._reads, problem = None, self._stale
        try:
            if isinstance(driver, WeightsDriver):
                driver.check()
        except DlstepError as error:
            problem = str(error)
        return known_facts(self._engine)._replace(problem=problem, result=result, refusal=refusal)

    def _start(self, submit: Submit, live: int) -> None:
        """Queue a request, a read or a fork. `live` counts live requests, including new ones."""
        if submit.template is not None:
            self._reads = self._reads or Reads(self._engine)
            self._reads.add(submit.request)
            return
        if submit.origin is None:
            self._decode.add(submit.request if self._policy is None else self._policy.applied(submit.request, live))
        else:
            self._decode.adopt(self._steps.at(submit.origin, self._decode.state), submit.id)
        if (seq_id := self._decode.state.live.get(submit.id)) is not None:
            self._usage[seq_id] = RequestUsage(len(submit.request.prompt))
        if submit.steps:
            sequence = self._decode.state.find(submit.id)
            assert sequence is not None, "it was just added"
            self._steps.open(submit.id, sequence, keeps=submit.keeps)

    def step(self) -> StepReport:
        """Run one forward pass, if a request is live, and return its changes.

        If the forward pass raises RuntimeError, the next step retries it. If it fails again, its
        requests end with an error. A third consecutive failure raises the error.
        """
        news: tuple[News, ...] = ()
        try:
            news = self._read()
            news += tuple(self._news(update) for update in self._decode.step())
            self._failures = 0
        except RuntimeError as error:  # what torch raises when memory runs out or a kernel fails
            self._handle_failure(error)
        spent, self._spent = process_time() - self._spent, process_time()
        passed, self._passed = perf_counter() - self._passed, perf_counter()
        work, self._work = self._work, Work()
        return StepReport(news, work, self._load(), spent, passed)

    def _read(self) -> tuple[News, ...]:
        """Run one forward pass of reads, if any are live. Return the reads that ended."""
        if self._reads is None or not self._reads.live:
            return ()
        self._reading = True
        results = self._reads.step()
        self._reading = False
        return tuple(_news_of(self._submits.pop(request_id), result) for request_id, result in results.items())

    def _handle_failure(self, error: RuntimeError) -> None:
        self._failures += 1
        LOG.warning("dlstep: a forward pass failed (%s): %s", self._failures, error)
        if self._failures > MOST_FAILURES:
            raise error
        if self._failures == MOST_FAILURES and self._reading and self._reads is not None:
            self._reads.fail(FAILED)
        elif self._failures == MOST_FAILURES:
            for span in schedule(self._decode.state).spans:  # the same plan again
                self._decode.fail(span.who.id, FAILED)
        self._reading = False

    def _load(self) -> EngineLoad:
        state = self._decode.state
        owned, cached = len(state.cache.owners), len(state.cache.cached)
        free = state.config.num_pages - owned - cached
        return EngineLoad(len(state.running), owned, cached, free)

    def _news(self, update: Update) -> News:
        submit, finish_info = self._submits[update.id], update.finish_info
        seq_id = update.sequence.request.seq_id
        usage = self._usage.get(seq_id) or RequestUsage(0)
        if finish_info is not None:
            del self._submits[update.id]
            self._usage.pop(seq_id, None)
            if finish_info.reason in ("abort", "error"):  # none of its rows contributed to an answer
                self._work = self._work._replace(wasted=self._work.wasted + usage.rows - usage.again)
        costs = update.sequence.steps, update.sequence.nfe, usage.cached or 0
        found = finish_info and step_map_of(update.sequence, self._decode.state.config.spec)
        step_map = found and found.to_json()
        if submit.steps:
            frames = self._steps.unsent(update.id, over=finish_info is not None)
            return News(update.id, (), (), EMPTY_WINDOW, *costs, finish_info, frames, step_map=step_map)
        probabilities = update.probabilities if submit.probabilities else ()
        window = update.window if submit.drafts else EMPTY_WINDOW
        best = update.sequence.best_of(update.start, update.stop)
        return News(update.id, update.tokens, probabilities, window, *costs, finish_info, best=best, step_map=step_map)

    def _count(self, event: Event) -> None:
        """Add a forward pass to the work done, and pass the event to the recorded steps."""
        self._steps.record(event, self._decode.state)
        if not isinstance(event, Samples):
            return
        work = worked(self._usage, event.plan, self._decode.state.config.page_size)
        self._work = Work(*map(add, self._work, work))


def _news_of(submit: Submit, result: ReadResult) -> News:
    """Return the news that a read has ended."""
    probabilities = tuple(probability for slot in result.slots for probability in slot)
    reason = "abort" if result.aborted else "error" if result.error else "length"
    finish_info = FinishInfo(reason, submit.request.start, result.error)
    passes = int(not result.error)
    return News(submit.id, (), probabilities, EMPTY_WINDOW, passes, passes, result.cached, finish_info)


def known_facts(engine: LoadedEngine) -> Facts:
    """Return the facts of an engine that the HTTP process needs."""
    folder = None if engine.tokenizer is None else engine.folder
    return Facts(engine.first, folder, engine.prompt_end, engine.chat_template, engine.max_tokens, engine.name)


def execute_commands(engine: LoadedEngine, heart: Heart) -> None:
    """Execute commands from the connection of `heart` until it closes or sends None."""
    loop, arrived = EngineLoop(engine), Arrived()
    reader = Thread(target=_read_commands, args=(heart.connection, arrived), name="dlstep-commands", daemon=True)
    try:
        heart.send(known_facts(engine))
        reader.start()
        while True:
            while loop.idle or not arrived.empty():
                if (commands := arrived.get()) is None:
                    return
                for facts in loop.execute(commands):
                    heart.send(facts)
            report = loop.step()
            heart.progress += 1
            heart.send(report)
    except (BrokenPipeError, ConnectionResetError):
        return  # the HTTP process is gone
    finally:
        disconnect(heart.connection)  # so that `reader` ends
        heart.close()


Arrived = SimpleQueue[tuple[Command, ...] | None]  # None: no more will come


def _read_commands(pipe: Connection, arrived: Arrived) -> None:
    """Put the commands from a connection into a queue. Forward passes do not wait for the constraints of new requests."""
    from ..driver.tables import prepare_constraint  # imports torch, which the HTTP process does without

    try:
        while (commands := _received(pipe)) is not None:
            for command in commands:
                if isinstance(command, Submit) and isinstance(command.request, AddedRequest) and command.request.constraint:
                    prepare_constraint(command.request.constraint)
            arrived.put(commands)
    finally:
        arrived.put(None)


def _received(pipe: Connection) -> Any:
    """Return what the connection receives next; None if it is closed."""
    try:
        return pipe.recv()
    except (EOFError, OSError, TypeError):  # TypeError: another thread closed it just after `recv` saw that it is open
        return None


def run_process(pipe: Connection, config: EngineConfig, number: int) -> None:
    """Run the engine process: start heartbeats, load the engine, then execute commands.

    `number`, the replica's index, selects the CUDA device if there are enough devices.
    """
    heart = Heart(pipe)
    logging.getLogger().addHandler(LineHandler(2))
    logging.getLogger("dlstep.engine").setLevel(logging.INFO)  # of the line that states the chosen dtype and KV cache
    gc.disable()  # the millions of objects that loading creates stay: traversing them would only take time
    try:
        with searched(Path.cwd()):
            if config.tensor_parallel_size == 1:
                config = replace(config, device=device_of(config.device, number))
            else:  # each rank has a device; the rank processes inherit this variable
                os.environ[FIRST_DEVICE] = str(number * config.tensor_parallel_size)
            engine = load_engine(config)
    except RankLost as error:  # a restart may help, unlike for invalid options
        _end_with_rank(str(error))
    except (ValueError, OSError, DlstepError) as error:
        heart.send(EngineFailed(str(error)))
        return
    finally:
        gc.enable()
    if isinstance(engine.driver, RanksDriver):
        engine.driver.when_lost(_end_with_rank)
    gc.freeze()  # collections between steps do not traverse them either
    execute_commands(engine, heart)


def _end_with_rank(reason: str) -> NoReturn:
    """End this process, so that its requests end and the server restarts it with all ranks."""
    last_words(reason)  # printed by the server
    os._exit(1)

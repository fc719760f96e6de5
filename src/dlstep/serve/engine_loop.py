"""The engine's loop, which executes commands and reports each step."""

from collections.abc import Iterable
from operator import add
from time import perf_counter, process_time

from ..core import Event, Request, Samples, Update, schedule
from ..core.usage import Usage, Work
from ..engine.loader import Engine
from ..processes import Heart
from .engine_steps import Steps
from .log_lines import STDERR
from .messages import Cancel, Card, Command, Drop, Load, News, Report, Submit

MOST_FAILURES = 2  # consecutive failed forward passes that an engine survives; one more ends it


class EngineLoop:
    """A `Decode` driven by commands, without transport or threads. Clocks only measure its cost."""

    def __init__(self, engine: Engine) -> None:
        self._decode = engine.decode(record=self._count)
        self._policy = engine.buffer_policy
        self._failures = 0
        self._wishes: dict[int, Submit] = {}  # submissions of live requests, by id
        self._usage = Usage()
        self._steps = Steps()
        self._work = Work()
        self._spent, self._passed = process_time(), perf_counter()

    @property
    def idle(self) -> bool:
        """Whether a step would neither run a forward pass nor report anything."""
        state = self._decode.state
        return state.done and not state.ended  # what ended since the last step is not reported yet

    def take(self, commands: Iterable[Command]) -> None:
        """Execute commands: queue requests, end cancelled ones, and drop the steps of kept ones."""
        commands = tuple(commands)
        if self.idle:
            self._passed = perf_counter()
        live = len(self._decode.state.live) + sum(isinstance(command, Submit) for command in commands)
        for command in commands:
            match command:
                case Submit():
                    self._wishes[command.id] = command
                    self._enter(command, live)
                case Cancel():
                    self._decode.abort(command.id, command.reason)
                case Drop():
                    self._steps.drop(command.id)

    def _enter(self, submit: Submit, live: int) -> None:
        """Queue a request or a fork. `live` counts live requests, including new ones."""
        if submit.origin is None:
            params = submit.params if self._policy is None else self._policy.applied(submit.params, live)
            self._decode.add(Request(submit.id, submit.prompt, params, index=submit.index, salt=submit.salt))
        else:
            self._decode.adopt(self._steps.at(submit.origin, self._decode.state), submit.id)
        if (arrival := self._decode.state.live.get(submit.id)) is not None:
            self._usage.open(arrival, len(submit.prompt))
        if submit.steps:
            sequence = self._decode.state.find(submit.id)
            assert sequence is not None, "it has just come in"
            self._steps.open(submit.id, sequence, keeps=submit.keeps)

    def step(self) -> Report:
        """Run one forward pass, if a request is live, and return its changes.

        If the forward pass raises RuntimeError, the next step retries it. If it fails again, its
        requests end with an error. A third consecutive failure raises the error.
        """
        try:
            updates = self._decode.step()
            self._failures = 0
        except RuntimeError as error:  # what torch raises when memory runs out or a kernel fails
            self._after(error)
            updates = ()
        news = tuple([self._news(update) for update in updates])
        spent, self._spent = process_time() - self._spent, process_time()
        passed, self._passed = perf_counter() - self._passed, perf_counter()
        work, self._work = self._work, Work()
        return Report(news, work, self._load(), spent, passed)

    def _after(self, error: RuntimeError) -> None:
        self._failures += 1
        STDERR.write(f"dlstep: a forward pass failed ({self._failures}): {error}")
        if self._failures > MOST_FAILURES:
            raise error
        if self._failures == MOST_FAILURES:
            for span in schedule(self._decode.state).spans:  # the same plan again
                self._decode.fail(span.id, "the model failed in a forward pass that included this request")

    def _load(self) -> Load:
        state = self._decode.state
        owned, cached = len(state.cache.owners), len(state.cache.cached)
        free = state.config.num_pages - owned - cached
        return Load(len(state.running), len(state.waiting), owned, cached, free)

    def _news(self, update: Update) -> News:
        wish, arrival, ending = self._wishes[update.id], update.sequence.goal.request.arrival, update.ending
        usage = self._usage.of(arrival)
        if ending is not None:
            del self._wishes[update.id]
            self._usage.close(arrival)
            self._work = self._work._replace(wasted=self._work.wasted + usage.wasted(ending.reason) - usage.again)
        if wish.steps:
            frames = self._steps.told(update.id, over=ending is not None)
            return News(update.id, (), (), (), update.steps, update.nfe, usage.cached or 0, ending, frames)
        return News(
            update.id,
            update.tokens,
            update.probabilities if wish.probabilities else (),
            tuple([(cell.token, cell.probability) for cell in update.window]) if wish.drafts else (),
            update.steps,
            update.nfe,
            usage.cached or 0,
            ending,
        )

    def _count(self, event: Event) -> None:
        """Add a forward pass to the work done, and pass the event to the recorded steps."""
        self._steps.take(event, self._decode.state)
        if not isinstance(event, Samples):
            return
        done = self._usage.take(event.plan, self._decode.state.config.page_size)
        self._work = Work(*map(add, self._work, done))


def card_of(engine: Engine) -> Card:
    """Return the card of an engine: everything that the HTTP process needs to know about it."""
    first = engine.first
    folder = engine.folder if engine.tokenizer is not None else None
    texts = folder, engine.prompt_end, engine.chat_template
    return Card(engine.name, first.config, first.strategy, *texts, engine.user_code_timeout)


def converse(engine: Engine, heart: Heart) -> None:
    """Execute commands from the connection of `heart` until it closes or None arrives."""
    loop, pipe = EngineLoop(engine), heart.connection
    try:
        heart.send(card_of(engine))
        while True:
            while loop.idle or pipe.poll():
                commands: tuple[Command, ...] | None = pipe.recv()
                if commands is None:
                    return
                loop.take(commands)
            report = loop.step()
            heart.progress += 1
            heart.send(report)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return  # the HTTP process is gone
    finally:
        heart.close()

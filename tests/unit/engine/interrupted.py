"""Random histories of calls and streams of one `LLM`, interrupted at random bytecodes of the functions that queue requests."""

import _thread
import gc
import re
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from random import Random
from types import FrameType
from typing import Any, final

from dlstep import LLM, SamplingParams, llm as llm_module, stream as stream_module
from dlstep.core import DlstepError, Driver, Plan, Samples, SequenceState, Spec
from dlstep.engine import call_lock, decode, shared_decode
from dlstep.strategies.multi_bd import MultiBD
from dlstep.stream import Draft, Stream
from dlstep.testing.shadow import ShadowDriver
from dlstep.testing.sharing import LeadingDriver

from ...helpers.shadow_llm import make_llm

FILES = {module.__file__ for module in (call_lock, shared_decode, stream_module, llm_module)}
# Not `Decode.forward`: signals, which may come only between some bytecodes, cannot leave its lock locked; an exception raised
# at any bytecode can.
METHODS = {
    f"Decode.{name}" for name in ("_apply", "_advance", "_forward", "_catch_up", "_without_faulty", "updates", "acknowledge")
}
PROMPTS = ("Max has 53 shells.", "Max has 53 shells. Later Max buys 39 more.", "another", "yet another one")
PARAMS = (
    SamplingParams(max_tokens=9, ignore_eos=True),
    SamplingParams(max_tokens=14, temperature=1.0, seed=4, ignore_eos=True),
    SamplingParams(max_tokens=3, ignore_eos=True),
)
BUGGY = SamplingParams(seed=1001)  # the strategy fails on it
BROKEN = SamplingParams(seed=1002)  # it cannot be added
ACTIONS = ("open", "generate", "read", "close", "drop", "look", "fail")
SCRIPT = ("open", "open", "read", "close", "generate", "read", "look", "fail")
SCRIPT_SEED = 4
MOST_CALLS = 3000  # of `SharedDecode.advance` in a history; each is a forward pass, or waits for one
JOIN_SECONDS = 60.0


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class BuggyInit(MultiBD):
    """A strategy with a bug that one request meets."""

    def init(self, sequence: SequenceState, spec: Spec) -> SequenceState:
        """Open the first block, or fail."""
        if sequence.request_spec.request.seed == BUGGY.seed:
            raise LookupError("a bug")
        return MultiBD.init(self, sequence, spec)


class BrokenPolicy:
    """A policy that fails on one request, so that the request cannot be added."""

    def applied(self, params: SamplingParams, live: int) -> SamplingParams:
        """Return the parameters, or fail."""
        del live
        if params.seed == BROKEN.seed:
            raise RecursionError("too deep")
        return params


class Interrupter:
    """Interrupts the calls of one thread at their n-th traced bytecodes, for each n in `at`.

    Args:
        at: Numbers of bytecodes, counted from 1 over all calls.
        by_signal: Let Python raise KeyboardInterrupt where it next looks for signals, in whatever function that is, as
            Ctrl-C does; only in the main thread. Otherwise raise it at that very bytecode.
    """

    def __init__(self, at: set[int], *, by_signal: bool = False) -> None:
        self.at, self.by_signal = at, by_signal
        self.count, self.raised = 0, 0

    def attempt(self, call: Callable[[], Any]) -> tuple[Any, bool]:
        """Return what a call returns, and whether it did; it does not if it is interrupted or the device fails."""
        before = self.raised
        try:
            try:
                sys.settrace(self._function)
                returned = call()
            finally:
                sys.settrace(None)
        except KeyboardInterrupt:
            sys.settrace(None)
            return None, False
        except MemoryError:
            returned = None
        assert self.by_signal or self.raised == before, "an interrupt was swallowed"
        return returned, returned is not None

    def _function(self, frame: FrameType, event: str, arg: Any) -> Any:
        del event, arg
        code = frame.f_code
        if code.co_filename in FILES or (code.co_filename == decode.__file__ and code.co_qualname in METHODS):
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            return self._bytecode
        return None

    def _bytecode(self, frame: FrameType, event: str, arg: Any) -> Any:
        del frame, arg
        if event == "opcode":
            self.count += 1
            if self.count in self.at:
                self.raised += 1
                if not self.by_signal:
                    raise KeyboardInterrupt
                _thread.interrupt_main()
        return self._bytecode


class Device:
    """A driver that fails in some forward passes, after they ran."""

    def __init__(self, driver: Driver, failures: frozenset[int]) -> None:
        self.driver, self.failures, self.runs = driver, failures, 0

    def run(self, plan: Plan) -> Samples:
        """The samples of the driver."""
        self.runs += 1
        samples = self.driver.run(plan)
        if self.runs in self.failures:
            raise MemoryError
        return samples


def made(random: Random, *, leads: bool) -> LLM:
    """An LLM whose device fails now and then; if it `leads`, with another rank that must stay in step."""
    failures = frozenset(random.sample(range(1, 40), random.choice((0, 0, 2))))

    def wrap(driver: Driver) -> Driver:
        if leads:
            assert isinstance(driver, ShadowDriver)
            return LeadingDriver(driver)
        return Device(driver, failures)

    return guarded(make_llm(BuggyInit, wrap=wrap, num_pages=random.choice((20, 64)), max_num_reqs=random.choice((1, 4))))


def guarded(llm: LLM) -> LLM:
    """Let the LLM fail on broken requests, and let a caller that spins fail, too."""
    shared: Any = llm._shared
    shared._policy, calls, advance = BrokenPolicy(), [0], shared.advance

    def counted(*arguments: Any) -> None:
        calls[0] += 1
        assert calls[0] <= MOST_CALLS, "a caller spins"
        advance(*arguments)

    shared.advance = counted
    return llm


@cache
def expected(prompt: str, number: int) -> str:
    """The text of an answer without interrupts."""
    return make_llm().generate(prompt, PARAMS[number], progress=False)[0].text


class Reader:
    """A stream, and what came of it. A call that is interrupted may lose what it was about to return."""

    def __init__(self, stream: "Stream[str] | Stream[Draft]", expected: str) -> None:
        self.stream, self.expected = stream, expected
        self.pattern, self.done = "", False

    def read(self, interrupter: Interrupter) -> None:
        """Ask for one item."""
        item, returned = interrupter.attempt(lambda: next(self.stream, "end"))
        if not returned:
            self.pattern += "(?s:.*)"
        elif item == "end":
            self.done = True
        else:
            self.pattern += re.escape(item if isinstance(item, str) else item.piece)

    def check(self) -> None:
        """Compare what came of a stream that was read to its end; a conversion that was interrupted ends it early."""
        assert self.done
        if self.stream._converting:
            assert "(?s:.*)" in self.pattern, "nothing interrupted the stream"
            self.pattern += "(?s:.*)"
        else:
            assert self.stream.output.text == self.expected
        assert re.fullmatch(self.pattern, self.expected), (self.pattern, self.expected)


class History:
    """Calls and streams of one thread.

    Args:
        llm: May be shared with the histories of other threads.
        random: Decides what is done.
        interrupter: Interrupts it.
    """

    def __init__(self, llm: LLM, random: Random, interrupter: Interrupter) -> None:
        self._llm, self._random, self.interrupter = llm, random, interrupter
        self._readers: list[Reader] = []

    def run(self, actions: Iterable[str] = ()) -> None:
        """Do a few things, by default random ones, then read every stream that is left to its end, without interrupts."""
        for action in actions or self._random.choices(ACTIONS, weights=(2, 2, 6, 1, 1, 1, 1), k=self._random.randint(3, 12)):
            attrgetter(f"_{action}")(self)()
        calm = Interrupter(set())
        for reader in self._readers:
            while not reader.done:
                reader.read(calm)
            reader.check()
        self._readers.clear()

    def _open(self) -> None:
        prompt, number = self._random.choice(PROMPTS), self._random.randrange(len(PARAMS))
        opened = self._random.choice((self._llm.stream, self._llm.stream_drafts))
        stream, returned = self.interrupter.attempt(lambda: opened(prompt, PARAMS[number]))
        if returned:
            self._readers.append(Reader(stream, expected(prompt, number)))

    def _generate(self) -> None:
        asked = [self._random.choice(PROMPTS) for _ in range(self._random.randint(1, 3))]
        number = self._random.choice((0, 2))  # a seed for each: equal prompts are answered alike
        outputs, returned = self.interrupter.attempt(lambda: self._llm.generate(asked, PARAMS[number], progress=False))
        if returned:
            assert [output.text for output in outputs] == [expected(prompt, number) for prompt in asked]

    def _read(self) -> None:
        for reader in self._random.sample(self._readers, min(len(self._readers), 1)):
            reader.read(self.interrupter)

    def _close(self) -> None:
        if self._readers:
            self.interrupter.attempt(self._readers.pop().stream.close)

    def _drop(self) -> None:
        del self._readers[-1:]

    def _look(self) -> None:
        self.interrupter.attempt(lambda: self._llm.state)

    def _fail(self) -> None:
        params, kind = self._random.choice(((BUGGY, DlstepError), (BROKEN, RecursionError)))

        def call() -> str:
            try:
                self._llm.generate([PROMPTS[2], "faulty"], [PARAMS[0], params], progress=False)
                next(self._llm.stream("faulty", params))
            except kind:
                return "failed as it should"
            raise AssertionError("an error did not reach its caller")

        self.interrupter.attempt(call)


def interrupted(random: Random, *, by_signal: bool = False) -> Interrupter:
    """An interrupter of a few bytecodes, most of them early."""
    return Interrupter({int(10 ** random.uniform(0, 3.7)) for _ in range(random.randint(1, 6))}, by_signal=by_signal)


def run_history(seed: int) -> int:
    """Run one history; how many interrupts there were. Raises AssertionError for whatever is lost, or wrong."""
    random = Random(seed)
    by_signal = random.random() < 0.3
    llm = made(random, leads=not by_signal and random.random() < 0.3)
    histories = [History(llm, random, interrupted(random, by_signal=by_signal))]
    wrong: list[BaseException] = []

    def other(history: History) -> None:
        try:
            history.run()
        except BaseException as error:  # noqa: BLE001 - raised again in the main thread
            wrong.append(error)

    threads: list[threading.Thread] = []
    for number in range(random.choice((0, 0, 0, 2))):
        own = Random(f"{seed}/{number}")
        histories.append(History(llm, own, interrupted(own)))
        threads.append(threading.Thread(target=other, args=(histories[-1],), daemon=True))
    for thread in threads:
        thread.start()
    histories[0].run()
    for thread in threads:
        thread.join(JOIN_SECONDS)
        assert not thread.is_alive(), "a caller waits for ever"
    assert not wrong, wrong[0]
    check_nothing_is_left(llm)
    return sum(history.interrupter.raised for history in histories)


def run_script(number: int, *, by_signal: bool = False) -> bool:
    """Run one and the same history with an interrupt at this bytecode; whether there was one so late."""
    interrupter = Interrupter({number}, by_signal=by_signal)
    _run_script(interrupter)
    return interrupter.raised > 0


def script_bytecodes() -> int:
    """How many bytecodes of the script are traced."""
    counter = Interrupter(set())
    _run_script(counter)
    return counter.count


def _run_script(interrupter: Interrupter) -> None:
    llm = guarded(make_llm(BuggyInit))
    History(llm, Random(SCRIPT_SEED), interrupter).run(SCRIPT)
    check_nothing_is_left(llm)


def check_nothing_is_left(llm: LLM) -> None:
    """Look for requests and pages that nobody waits for."""
    gc.collect()
    state = llm.state
    assert state.done and not state.cache.owners and not llm._shared._references, "a request is left that nobody waits for"

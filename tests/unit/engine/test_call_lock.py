"""Interrupts at the bytecodes of the functions that queue requests: no request is lost, no caller spins, answers stay right."""

import gc
import sys
import threading
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

from dlstep import Request
from dlstep.engine.call_lock import CallLock, Hold

from ...helpers.shadow_llm import make_llm
from .interrupted import PARAMS, PROMPTS, check_nothing_is_left, expected, run_history, run_script, script_bytecodes

HISTORIES = 20_000


@pytest.fixture(autouse=True)
def few_objects() -> Iterator[None]:
    """Let the many garbage collections here look at new objects only."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.parametrize("by_signal", [False, True])
def test_interrupt_at_some_bytecodes_of_a_script(by_signal: bool) -> None:
    total = script_bytecodes()
    random = Random(total)
    assert all(run_script(random.randint(1, total), by_signal=by_signal) for _ in range(25))


def test_random_histories_with_interrupts() -> None:
    assert sum(map(run_history, range(100)))


@pytest.mark.stress
@pytest.mark.parametrize("by_signal", [False, True])
def test_interrupt_at_every_bytecode_of_a_script(by_signal: bool, report: Callable[[str], None]) -> None:
    total = script_bytecodes()
    raised = sum(run_script(number, by_signal=by_signal) for number in range(1, total + 1))
    report(f"{raised:,} interrupts {'by signal' if by_signal else 'raised'}, one at each of {total:,} bytecodes; nothing lost")


@pytest.mark.stress
def test_20000_random_histories_with_interrupts(report: Callable[[str], None]) -> None:
    raised = sum(map(run_history, range(HISTORIES)))
    report(f"{HISTORIES:,} histories with {raised:,} interrupts: none hung, nothing lost")


def finished(call: Callable[[], Any]) -> Any:
    """Return what a call returns; it might never end."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(call()), daemon=True)
    thread.start()
    thread.join(60)
    assert found, "a caller spins, or has failed"
    return found[0]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RecursionError("too deep")])
def test_error_while_a_request_is_added(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    llm, left = make_llm(), [error]
    decode, add = llm._shared._decode, llm._shared._decode.add

    def adding(request: Request) -> None:
        if left and request.params.seed == PARAMS[1].seed:
            raise left.pop()
        add(request)

    monkeypatch.setattr(decode, "add", adding)
    one, other = llm.stream(PROMPTS[0], PARAMS[0]), llm.stream(PROMPTS[2], PARAMS[1])
    if isinstance(error, KeyboardInterrupt):  # reaches the thread that runs, and loses nothing
        with pytest.raises(KeyboardInterrupt):
            next(one)
        assert finished(lambda: "".join(other)) == expected(PROMPTS[2], 1)
    else:  # reaches the caller whose request it is
        assert next(one)
        with pytest.raises(RecursionError, match="too deep"):
            next(other)
    assert finished(lambda: "".join(one)) and one.output.text == expected(PROMPTS[0], 0)
    check_nothing_is_left(llm)


def test_interrupted_delivery_is_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    llm, left = make_llm(), [KeyboardInterrupt()]
    streams = [llm.stream(PROMPTS[number], PARAMS[number]) for number in (0, 2)]
    decode = llm._shared._decode
    acknowledge = decode.acknowledge

    def acknowledging() -> None:
        if left and decode.state.step:
            raise left.pop()
        acknowledge()

    monkeypatch.setattr(decode, "acknowledge", acknowledging)
    with pytest.raises(KeyboardInterrupt):
        next(streams[0])
    assert [finished(lambda stream=stream: "".join(stream)) for stream in streams] == [expected(PROMPTS[n], n) for n in (0, 2)]


def test_interrupted_conversion_ends_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    llm = make_llm()
    stream, other = llm.stream(PROMPTS[0], PARAMS[0]), llm.stream(PROMPTS[2], PARAMS[2])

    def interrupt(update: object) -> list[str]:
        raise KeyboardInterrupt

    monkeypatch.setattr(stream, "_take", interrupt)
    with pytest.raises(KeyboardInterrupt):
        next(stream)
    monkeypatch.undo()
    assert list(stream) == [] and not stream._subscription.ended
    assert "".join(other) == expected(PROMPTS[2], 2)
    check_nothing_is_left(llm)


def test_answer_asked_for_inside_a_forward_is_refused() -> None:
    llm = make_llm()
    driver: Any = llm.engine.driver
    run = driver.run

    def nested(plan: Any) -> Any:
        with pytest.raises(RuntimeError, match="during a forward pass of the same LLM"):
            llm.generate(PROMPTS[1], PARAMS[0], progress=False)
        return run(plan)

    driver.run = nested
    assert finished(lambda: "".join(llm.stream(PROMPTS[0], PARAMS[2]))) == expected(PROMPTS[0], 2)


def test_call_lock_is_free_after_its_call() -> None:
    lock, holds = CallLock(), []

    def call() -> None:
        holds.append(Hold(sys._getframe()))
        assert lock.acquire(holds[-1]) is None
        assert lock.acquire(Hold(sys._getframe())) is holds[-1] and holds[-1].is_own()

    call()
    call()  # neither released the lock
    assert all(hold.over() for hold in holds)
    holds[-1].wait()


def test_call_lock_has_one_holder() -> None:
    lock, held, most = CallLock(), [0], [0]

    def call() -> bool:
        mine = Hold(sys._getframe())
        if (other := lock.acquire(mine)) is not None:
            other.wait()
            return False
        held[0] += 1
        most[0] = max(most[0], held[0])
        held[0] -= 1
        mine.release()
        return True

    def caller() -> None:
        assert sum(call() for _ in range(2000))

    threads = [threading.Thread(target=caller) for _ in range(4)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert most == [1]

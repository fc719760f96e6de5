"""A worker that dies, stops or hangs costs no answer: the others give it, or the run ends with the reasons."""

import os
import re
import signal
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from dlstep.core import DlstepError
from dlstep.engine.config import EngineConfig
from dlstep.evaluate import answerer_pool
from dlstep.evaluate.answerer_pool import Answering, Processes, work
from dlstep.evaluate.options import EvalOptions
from dlstep.processes import heartbeat, worker

from .running import answers, run

CONFIG = EngineConfig(model="tiny-bd", max_num_reqs=3, num_threads=1)
LIMIT = 4.0  # seconds without a heartbeat, or for a forward pass


def hang() -> None:
    """Take for ever, while a thread gives signs of life."""
    time.sleep(600)


def fail() -> None:
    raise KeyError("no such layer")


FAULTS: dict[str, tuple[Callable[[], object], str]] = {
    "kill": (lambda: os.kill(os.getpid(), signal.SIGKILL), r"was killed by SIGKILL \(memory may have run out\)"),
    "stop": (lambda: os.kill(os.getpid(), signal.SIGSTOP), "sent no heartbeat for [4-9] seconds and was killed"),
    "hang": (hang, "finished no forward pass for [4-9] seconds and was killed"),
    "exit": (lambda: sys.exit(3), "ended with exit code 3"),
    "error": (fail, r"failed: KeyError: 'no such layer' \(test_answerer_pool.py:\d+\)"),
}


def faulty(moment: str, fault: str, who: tuple[int, ...], connection: Any, config: EngineConfig, number: int) -> None:
    """Be a worker, that has a fault if its number is in `who`."""
    strike = FAULTS[fault][0]
    if number in who and moment == "start":
        strike()
    elif number in who and moment == "loading":
        answerer_pool.load_engine = lambda *_: strike()  # pyright: ignore[reportAttributeAccessIssue]
    elif number in who:
        step, steps = Answering.step, []

        def struck(self: Answering) -> Any:
            steps.append(1)
            if len(steps) == 6:
                strike()
            return step(self)

        Answering.step = struck
    work(connection, config, number)


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> EvalOptions:
    """A short run; sampled, so that seeds count."""
    return EvalOptions(out=str(tmp_path_factory.mktemp("unbroken") / "run"), dataset_limit=12, max_tokens=24, temperature=0.7)


@pytest.fixture(scope="module")
def unbroken(options: EvalOptions) -> bytes:
    """The answers of a run in this process."""
    return answers(run(options))


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers are forked from a process that has imported torch, which takes longest."""
    context: Any = get_context("forkserver")
    context.set_forkserver_preload(["dlstep.engine.loader", "dlstep.models", "dlstep.driver", "dlstep.evaluate.answerer_pool"])
    monkeypatch.setattr(worker, "get_context", lambda _: context)
    monkeypatch.setattr(heartbeat, "IMPORT_SECONDS", LIMIT)


FEW = [("start", "stop"), ("step", "stop"), ("step", "hang"), ("step", "kill"), ("step", "error")]
REST = [(moment, fault) for moment in ("start", "step") for fault in FAULTS if (moment, fault) not in FEW]
REST.remove(("start", "hang"))  # it sends no heartbeat, as one that is stopped


@pytest.mark.usefixtures("fast")
@pytest.mark.parametrize(
    ("moment", "fault"), [*FEW, *[pytest.param(moment, fault, marks=pytest.mark.stress) for moment, fault in REST]]
)
def test_other_workers_answer_what_a_lost_one_had(
    moment: str,
    fault: str,
    options: EvalOptions,
    unbroken: bytes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.setattr(answerer_pool, "work", partial(faulty, moment, fault, (0,)))
    broken = replace(options, out=str(tmp_path / "run"), workers=2)
    with closing(Processes(CONFIG, 2, LIMIT)) as pool:
        assert answers(run(broken, pool)) == unbroken
        assert pool.live == 0
    message = capsys.readouterr().err
    assert re.search(f"worker 0 of 2 {FAULTS[fault][1]}; the other workers answer", message), message


@pytest.mark.stress
@pytest.mark.usefixtures("fast")
def test_other_workers_answer_for_one_that_hangs_at_its_start(
    options: EvalOptions, unbroken: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(answerer_pool, "work", partial(faulty, "loading", "hang", (0,)))
    monkeypatch.setattr(answerer_pool, "START", 20.0)
    with closing(Processes(CONFIG, 2, LIMIT)) as pool:
        assert answers(run(replace(options, out=str(tmp_path / "run"), workers=2), pool)) == unbroken
    assert re.search(r"worker 0 of 2 was not ready for 2\d seconds and was killed; the other", capsys.readouterr().err)


@pytest.mark.usefixtures("fast")
def test_run_ends_with_the_reasons_once_all_workers_are_lost(
    options: EvalOptions, unbroken: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(answerer_pool, "work", partial(faulty, "step", "kill", (0, 1)))
    broken = replace(options, out=str(tmp_path / "run"), workers=2)
    message = r"worker \d of 2 was killed by SIGKILL.*; worker \d of 2 was killed by SIGKILL.*: the answers so far are kept"
    with closing(Processes(CONFIG, 2, LIMIT)) as pool, pytest.raises(DlstepError, match=message):
        run(broken, pool)
    assert answers(run(broken)) == unbroken


@pytest.mark.usefixtures("fast")
def test_mistake_of_the_user_is_told_once():
    with pytest.raises(ValueError, match="no checkpoint folder at 'nowhere'"):
        Processes(EngineConfig(model="nowhere"), 2, LIMIT)

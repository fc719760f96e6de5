"""Faults of a rank other than the first, and the moments at which they come."""

import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from dlstep.distributed.worker_group import RankInfo
from dlstep.engine.config import EngineConfig
from dlstep.engine.loader import run_rank


def _raise(error: BaseException) -> None:
    raise error


FAULTS: dict[str, tuple[Callable[[], object], str]] = {
    "kill": (lambda: os.kill(os.getpid(), signal.SIGKILL), "was killed by SIGKILL"),
    "stop": (lambda: os.kill(os.getpid(), signal.SIGSTOP), "did not answer for"),
    "exit": (lambda: os._exit(3), "ended with exit code 3"),
    "sys_exit": (lambda: sys.exit(4), "ended with exit code 4"),
    "bug": (lambda: _raise(KeyError("no such key")), "KeyError: 'no such key'"),
    "failed_forward": (lambda: _raise(RuntimeError("the device failed")), "the device failed"),
    "memory": (lambda: _raise(MemoryError("1 TiB")), "MemoryError: 1 TiB"),
    "import": (lambda: _raise(ImportError("No module named 'absent'")), "ImportError: No module named 'absent'"),
    "mistake": (lambda: _raise(ValueError("this file is broken")), "this file is broken"),
}


def strike(fault: str) -> None:
    """Let this process have a fault."""
    FAULTS[fault][0]()


class Unpickled:
    """Has its fault while the arguments of a process are unpickled, as an import that fails does."""

    def __init__(self, fault: str) -> None:
        self.fault = fault

    def __reduce__(self) -> Any:
        return strike, (self.fault,)


def before(owner: Any, name: str, fault: str, at: int = 1) -> None:
    """Have the fault when `owner.name` is called for the time number `at`."""
    called, calls = getattr(owner, name), []

    def struck(*args: Any, **kwargs: Any) -> Any:
        calls.append(name)
        if len(calls) == at:
            strike(fault)
        return called(*args, **kwargs)

    setattr(owner, name, struck)


def _in_forward(fault: str) -> None:
    """After the cache digests were compared, before the first sum."""
    from dlstep.driver import TorchDriver

    submit = TorchDriver.submit

    def submitted(self: Any, forwards: Any) -> Any:
        strike(fault)
        return submit(self, forwards)

    TorchDriver.submit = submitted


def arm(moment: str, fault: str) -> None:
    """Let this process have the fault at that moment."""
    import torch.distributed as dist

    from dlstep import models
    from dlstep.distributed import control_channel, rank_zero

    match moment:
        case "arriving":
            strike(fault)
        case "joining":
            before(dist, "init_process_group", fault)
        case "loading":
            before(models, "load_checkpoint", fault)
        case "connecting":
            before(rank_zero, "connect", fault)
        case "calling":
            before(control_channel, "call", fault)
        case "message":
            before(control_channel.ControlChannel, "receive", fault, at=1)  # once the group is there, before the first command
        case "digest":
            before(control_channel.ControlChannel, "check", fault, at=3)
        case "forward":
            _in_forward(fault)
        case "commit":
            before(rank_zero, "commit", fault, at=2)
        case _:
            raise ValueError(moment)


AT_START = ("arriving", "joining", "loading", "connecting", "calling")
IN_A_STEP = ("message", "digest", "forward", "commit")


def faulty(moment: str, fault: str, rank_info: RankInfo, config: EngineConfig) -> None:
    """Be a rank that has a fault."""
    arm(moment, fault)
    run_rank(rank_info, config)


def rank_with(moment: str, fault: str) -> Callable[..., None]:
    """The function that ranks run in place of `engine.run_rank`."""
    if moment == "unpickling":
        return partial(_unpickled, Unpickled(fault))
    return partial(faulty, moment, fault)


def _unpickled(_: object, rank_info: RankInfo, config: EngineConfig) -> None:
    run_rank(rank_info, config)

"""How ranks leave a group on CUDA devices. NCCL is pretended: it does not end while graphs hold its exchanges."""

import os
import signal
import time
from threading import Event
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist

from dlstep import LLM
from dlstep.core import DlstepError
from dlstep.distributed import rank_zero, ranks
from dlstep.distributed.rank_zero import RankZeroDriver
from dlstep.distributed.ranks import ALONE, Ranks
from dlstep.distributed.worker_group import RankInfo, WorkerGroup
from dlstep.driver import TorchDriver
from dlstep.driver.buckets import Bucket, Kind
from dlstep.driver.graphs import PaddedExecutor
from dlstep.engine import loader
from dlstep.engine.config import EngineConfig
from dlstep.processes import worker
from dlstep_kernels.sampling import SIMPLE

from ...helpers.ranks_running import prepared
from ...helpers.waiting import until

SOON = 5.0  # seconds
VARIABLE = "TORCH_NCCL_ASYNC_ERROR_HANDLING"


class Nccl:
    """A backend with exchanges in graphs. What waits for their end for longer than `SOON` is reported by `stuck`."""

    def __init__(self):
        self.said = []
        self.free, self.joined = Event(), True
        self.stuck = False

    def abort(self):
        self.said.append("abort")
        self._wait("aborted")

    def destroy(self):
        self._wait("destroyed")
        self.joined = False

    def _wait(self, word):
        self.stuck |= not self.free.wait(SOON)
        self.said.append(word)


class Graphs:
    """A driver with graphs, of which nothing else is asked."""

    def __init__(self, nccl):
        self.nccl = nccl

    def drop_graphs(self):
        self.nccl.said.append("dropped")
        self.nccl.free.set()


@pytest.fixture
def nccl(monkeypatch):
    found = Nccl()
    world = SimpleNamespace(_get_backend=lambda device: found)
    monkeypatch.setattr(dist, "is_initialized", lambda: found.joined)
    monkeypatch.setattr(dist, "destroy_process_group", found.destroy)
    monkeypatch.setattr(dist, "group", SimpleNamespace(WORLD=world))
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    channel = SimpleNamespace(send=lambda message: None)
    monkeypatch.setattr(rank_zero, "connect", lambda *_: channel)
    monkeypatch.setattr(worker, "get_context", lambda _: prepared())
    return found


def group_of(processes):
    """A group whose other ranks are processes that this one started, or that torchrun did."""
    workers = [worker.Worker(sleep, name=f"rank {rank} of 2") for rank in range(1, 1 + processes)]
    return WorkerGroup(Ranks(0, 2, "group"), workers)


def sleep(_):
    time.sleep(60)


@pytest.mark.parametrize("processes", [0, 1])
def test_graphs_are_freed_before_a_group_is_left(processes, nccl):
    """NCCL does not say goodbye to ranks that were ended."""
    group = group_of(processes)
    driver = RankZeroDriver(Graphs(nccl), group)
    del driver
    for thread in ranks._aborts:
        thread.join(SOON)
    assert not nccl.joined
    assert not nccl.stuck
    assert nccl.said.index("dropped") < nccl.said.index("destroyed")
    assert ("abort" in nccl.said) == bool(processes)


def test_a_rank_that_is_killed_ends_the_group_soon(nccl):
    """Both who waits for processes and who runs forward passes notice it; neither waits for graphs that the other has."""
    group, reasons = group_of(1), []
    driver = RankZeroDriver(Graphs(nccl), group)
    group.when_lost = reasons.append
    os.kill(group.pids[0], signal.SIGKILL)
    start = time.monotonic()
    until(lambda: reasons, SOON)
    with pytest.raises(DlstepError, match="rank 1 of 2 was killed by SIGKILL"):
        raise group.ended_by(RuntimeError("rank 1 is gone: its connection is closed"))
    assert time.monotonic() - start < SOON
    assert not nccl.joined
    assert not nccl.stuck
    assert nccl.said == ["abort", "dropped", "aborted", "destroyed"]
    with pytest.raises(DlstepError, match="rank 1 of 2 was killed by SIGKILL"):
        driver.fork(0, 1)


def test_graphs_that_nobody_frees_are_not_waited_for_for_ever(nccl, monkeypatch):
    monkeypatch.setattr(ranks, "PARTING", 0.1)
    ranks.break_off()
    start = time.monotonic()
    ranks.leave_ranks()
    assert time.monotonic() - start < SOON
    assert nccl.joined
    assert nccl.said == ["abort"]
    nccl.free.set()


def test_a_rank_that_torchrun_started_frees_its_graphs_first(monkeypatch):
    order = []
    driver = TorchDriver.__new__(TorchDriver)
    monkeypatch.setattr(TorchDriver, "drop_graphs", lambda _: order.append("drop"))
    monkeypatch.setattr(loader, "build_engine", lambda *_: SimpleNamespace(driver=driver, ranks=ALONE))
    monkeypatch.setattr(rank_zero, "follow_rank_zero", lambda *_: order.append("follow"))
    monkeypatch.setattr(ranks, "leave_ranks", lambda: order.append("leave"))
    loader.run_rank(RankInfo(1, 2, None), EngineConfig(tensor_parallel_size=2))
    assert order == ["follow", "drop", "leave"]


def test_a_start_that_fails_frees_the_graphs_it_has(monkeypatch):
    order = []

    def capture(*_):
        raise torch.OutOfMemoryError("Tried to allocate much")

    monkeypatch.setattr(TorchDriver, "capture", capture)
    monkeypatch.setattr(TorchDriver, "drop_graphs", lambda _: order.append("drop"))
    monkeypatch.setattr(WorkerGroup, "end", lambda _: order.append("end"))
    with pytest.raises(ValueError, match="lower num_pages or gpu_memory_utilization"):
        LLM()
    assert order == ["drop", "end"]


class Graph:
    """A captured graph."""

    def __init__(self):
        self.there = True

    def reset(self):
        self.there = False


@pytest.mark.parametrize("works", [True, False])
def test_executors_free_graphs_once_the_device_has_run_them(works, monkeypatch):
    llm, graph = LLM(), Graph()
    driver = llm.engine.driver
    main = driver._caches.main
    main.executor = PaddedExecutor(driver.network, main.memory, driver._target, captures=False)
    main.executor._captured[Bucket(1, 1, 1, Kind(1, 0, 0, (), SIMPLE, masked=False))] = SimpleNamespace(graphs=[graph])
    main.executor.graph_count = 1

    def synchronize(device):
        assert graph.there
        if not works:
            raise RuntimeError(f"{device} failed")

    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    driver.drop_graphs()
    assert (graph.there, driver.graph_count, main.executor._captured) == (False, 0, {})


@pytest.mark.parametrize("own", [None, "3"])
def test_torch_does_not_end_a_process_whose_mate_is_gone(own, monkeypatch):
    """A group reports it as an error. Who set torch's variable gets what it says."""
    monkeypatch.setattr(dist, "is_initialized", lambda: False)
    monkeypatch.setattr(dist, "init_process_group", lambda *_, **__: None)
    monkeypatch.setattr(dist, "group", SimpleNamespace(WORLD=SimpleNamespace(group_name="0")))
    monkeypatch.delenv(VARIABLE, raising=False)
    if own is not None:
        monkeypatch.setenv(VARIABLE, own)
    assert ranks.join_ranks(0, 2, None) == Ranks(0, 2, "0")
    assert os.environ.pop(VARIABLE) == (own or "0")

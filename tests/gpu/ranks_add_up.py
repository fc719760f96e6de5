"""Sums of two ranks on two devices: their bits, their cost beside NCCL's, and that they end when the other rank is gone."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event, Timer
from typing import Any

import torch
from torch import Tensor

from dlstep.distributed import ranks as module
from dlstep.distributed.ranks import Ranks, break_off, sum_by_torch

WIDTH = 4096
ROWS = (130, 1040, 4174)  # of a step of sdar-8b with 1, 8 and 32 requests
DTYPES = (torch.bfloat16, torch.float16, torch.float32)
# The last two go through NCCL: they divide into no two parts of whole vectors, or are too large.
SHAPES = ((1, WIDTH), (3, WIDTH), (5, 32), (130, WIDTH), (131, WIDTH), (517, 2048), (1041, WIDTH), (7, 24), (8200, WIDTH))
REPLAYS, IN_GRAPH, LOST = 300, 20, 50
SOON = 3.0  # seconds in which a sum ends once it is given up


def numbers(ranks: Ranks, shape: tuple[int, int], dtype: torch.dtype, seed: int) -> tuple[Tensor, Tensor]:
    """This rank's tensor, and the sum of all ranks' rounded once."""
    device = torch.device("cuda", ranks.rank)
    every = []
    for rank in range(ranks.size):
        generator = torch.Generator(device).manual_seed(1000 * seed + rank)
        every.append(torch.randn(shape, generator=generator, device=device).to(dtype))
    total = every[0].float()
    for other in every[1:]:
        total = total + other.float()
    return every[ranks.rank], total.to(dtype)


def right(ranks: Ranks, add_up: Callable[[Tensor], Tensor]) -> dict[str, bool]:
    """For each dtype whether sums of all shapes are right, twice in turns."""
    found = {}
    for dtype in DTYPES:
        equal = True
        for seed, shape in enumerate(SHAPES + SHAPES[::-1]):
            own, expected = numbers(ranks, shape, dtype, seed)
            before = own.clone()
            equal &= torch.equal(add_up(own), expected) and torch.equal(own, before)
        found[str(dtype).removeprefix("torch.")] = equal
    return found


def wrong_in_replays(ranks: Ranks) -> int:
    """How many numbers are wrong in a graph of sums of several sizes, replayed with new numbers while ranks come late."""
    shapes = [(rows, WIDTH) for rows in (130, 1, 1040, 3, 131, 700, 130, 2)]
    device = torch.device("cuda", ranks.rank)
    sets = [[numbers(ranks, shape, torch.bfloat16, 10 * one + place) for place, shape in enumerate(shapes)] for one in range(3)]
    given = [torch.empty_like(own) for own, _ in sets[0]]
    expected = [torch.empty_like(total) for _, total in sets[0]]
    wrong = torch.zeros((), dtype=torch.int64, device=device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(2):
            for own, total in zip(given, expected, strict=True):
                wrong += (ranks.add_up(own) != total).sum()
    for turn in range(REPLAYS):
        for place, (own, total) in enumerate(sets[turn % len(sets)]):
            given[place].copy_(own)
            expected[place].copy_(total)
        if (turn + 3 * ranks.rank) % 7 == 0:
            torch.cuda._sleep(1_000_000 * (1 + turn % 3))
        graph.replay()
    return int(wrong)


def microseconds(call: Callable[[], Any]) -> float:
    """The time of one of many calls in a graph, the best of several replays."""
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(IN_GRAPH):
            call()
    times = []
    for _ in range(5):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1000 / IN_GRAPH)
    return min(times)


def eager_microseconds(call: Callable[[], Any]) -> float:
    """The time of one of many calls that are launched one by one."""
    for _ in range(10):
        call()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(200):
        call()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) * 1e6 / 200


def sums(ranks: Ranks) -> dict[str, Any]:
    """Everything about sums while both ranks live; rank 0's are reported."""
    torch.cuda.set_device(ranks.rank)
    given, _ = numbers(ranks, (1, WIDTH), torch.bfloat16, 0)
    ranks.add_up(given)
    commons = module._commons[ranks.group]
    assert commons is not None, "two devices of one host have memory in common"
    compiled = torch.compile(lambda given: ranks.add_up(given * 2) + 1, dynamic=True)
    halved: Callable[[Tensor], Tensor] = lambda given: ranks.add_up(given / 2) * 2  # noqa: E731
    equal = all(torch.equal(compiled(own), total * 2 + 1) for own, total in _few(ranks))
    found: dict[str, Any] = {
        "eager": right(ranks, ranks.add_up),
        "compiled": equal,
        "wrong_in_replays": wrong_in_replays(ranks),
    }
    found["captured_compiled"] = _captured(ranks, torch.compile(halved, dynamic=True))
    found["rows"] = []
    for rows in ROWS:
        given, _ = numbers(ranks, (rows, WIDTH), torch.bfloat16, rows)
        row = {"rows": rows, "us": microseconds(lambda given=given: ranks.add_up(given))}
        row["nccl_us"] = microseconds(lambda given=given: sum_by_torch(given, ranks.group))
        row["eager_us"] = eager_microseconds(lambda given=given: ranks.add_up(given))
        row["eager_nccl_us"] = eager_microseconds(lambda given=given: sum_by_torch(given, ranks.group))
        found["rows"].append(row)
    ranks.gather_objects(None)  # nobody leaves while the others need it
    return found


def _few(ranks: Ranks) -> list[tuple[Tensor, Tensor]]:
    return [numbers(ranks, (rows, WIDTH), torch.bfloat16, rows) for rows in (1, 2, 130, 131, 1040, 2048)]


def _captured(ranks: Ranks, compiled: Callable[[Tensor], Tensor]) -> bool:
    """Whether a compiled sum is right in a graph."""
    given, _ = numbers(ranks, (130, WIDTH), torch.bfloat16, 1)
    compiled(given)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        answer = compiled(given)
    equal = True
    for seed in range(2, 5):
        own, expected = numbers(ranks, (130, WIDTH), torch.bfloat16, seed)
        given.copy_(own)
        graph.replay()
        equal &= torch.equal(answer, expected)
    return equal


def lost(ranks: Ranks, file: Path, cold: bool) -> None:
    """Rank 1 dies; rank 0 writes whether its sums waited, and how many seconds they took to end once they were given up.

    If `cold`, the last of them needs a kernel that is yet to be loaded, for which the device has to come to rest.
    """
    torch.cuda.set_device(ranks.rank)
    given, _ = numbers(ranks, (1040, WIDTH), torch.bfloat16, 0)
    for rows in (1040,) if cold else (1040, 130):
        ranks.add_up(given[:rows])
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(LOST):
            ranks.add_up(given)
    torch.cuda.synchronize()
    ranks.gather_objects(None)
    if ranks.rank:
        os.kill(os.getpid(), signal.SIGKILL)
    over, noted = Event(), []

    def break_in() -> None:  # as whoever watches the other ranks does
        noted.extend((not over.is_set(), time.monotonic()))
        break_off()

    timer = Timer(1.0, break_in)
    timer.start()
    graph.replay()
    ranks.add_up(given[:130])
    torch.cuda.synchronize()
    ended = time.monotonic()
    over.set()
    timer.join()
    assert torch.ones(3, device=given.device).sum() == 3, "the device works on"
    file.write_text(f"{noted[0]} {ended - noted[1]}")
    os._exit(0)  # there is nobody to leave the group with

"""Kernels by their names, and the time that they cover."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from dlstep.bench import busy as module
from dlstep.bench.busy import busy, covered, kind_of
from dlstep.driver.profile import REGION


def test_time_that_is_covered_twice_counts_once() -> None:
    assert covered([(4.0, 6.0), (0.0, 2.0), (1.0, 3.0), (5.0, 5.5)]) == 5.0


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("_attend", "attention"),
        ("_multiply_gated", "experts"),
        ("void cutlass::device_kernel<...>", "products"),
        ("nvjet_sm90_tst_192x64", "products"),
        ("_read_head", "head"),
        ("triton_red_fused_rsqrt_0", "others"),
    ],
)
def test_kernels_are_known_by_what_they_do(name: str, kind: str) -> None:
    assert kind_of(name) == kind


def test_the_work_of_a_device_is_the_mean_over_all_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    def event(name: str, start: float, end: float, device: str = "CUDA") -> SimpleNamespace:
        times = SimpleNamespace(start=start, end=end, elapsed_us=lambda: end - start)
        return SimpleNamespace(name=name, device_type=SimpleNamespace(name=device), time_range=times)

    found = [
        event("_attend", 0, 8),
        event("_attend", 4, 12),
        event("add", 20, 24),
        event("add", 0, 99, "CPU"),
        event(REGION, 0, 99),
    ]
    steps: list[int] = []

    @contextmanager
    def profiled(trace: Path | None) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(events=lambda: found if len(steps) == 2 else [])

    monkeypatch.setattr(module, "profiled", profiled)
    spent = busy(lambda: steps.append(1), 2)
    assert spent is not None and (spent.us, spent.launches) == (8.0, 2)
    assert {kind: us for kind, us in spent.kinds.items() if us} == {"attention": 8.0, "others": 2.0}
    assert busy(lambda: steps.append(1), 1) is None, "no work of a device is seen"

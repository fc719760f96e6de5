"""The time in which a device works."""

import json
from contextlib import contextmanager
from types import SimpleNamespace

from benchmarks import device as module
from benchmarks.device import busy, profiled
from dlstep import LLM, SamplingParams
from dlstep.driver.profile import REGION


def test_the_work_of_a_device_is_the_mean_over_all_steps(monkeypatch):
    """Time that is covered twice counts once."""

    def event(name, start, end, device="CUDA"):
        times = SimpleNamespace(start=start, end=end, elapsed_us=lambda: end - start)
        return SimpleNamespace(name=name, device_type=SimpleNamespace(name=device), time_range=times)

    found = [
        event("_attend", 0, 8),
        event("_attend", 4, 12),
        event("add", 20, 24),
        event("add", 0, 99, "CPU"),
        event(REGION, 0, 99),
    ]
    steps = []

    @contextmanager
    def profile_of(trace):
        yield SimpleNamespace(events=lambda: found if len(steps) == 2 else [])

    monkeypatch.setattr(module, "profiled", profile_of)
    spent = busy(lambda: steps.append(1), 2)
    assert spent is not None and (spent.us, spent.launches) == (8.0, 2)
    assert {kind: us for kind, us in spent.kinds.items() if us} == {"attention": 8.0, "others": 2.0}
    assert busy(lambda: steps.append(1), 1) is None, "no work of a device is seen"


def test_a_profile_names_the_parts_of_a_decode(tmp_path):
    path, llm = tmp_path / "trace.json", LLM("tiny-bd", device="cpu")
    with profiled(path):
        llm.generate("Max has 5 eggs.", SamplingParams(max_tokens=8), progress=False)
    named = {event.get("name", "") for event in json.loads(path.read_text())["traceEvents"]}
    assert {REGION + part for part in ("start", "follow", "gather", "lower", "forward", "sample", "wait", "unpack")} <= named
    assert any("scaled_dot_product" in name for name in named)

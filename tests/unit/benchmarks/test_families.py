"""The table of every family."""

import pytest
import torch

from benchmarks import families
from benchmarks.device import Ceilings
from benchmarks.families import COLUMNS, measure_families

from ...helpers.shapes import shrunk

CPU, FP32 = torch.device("cpu"), torch.float32


def test_rows_state_tokens_per_second_at_the_published_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = [shrunk("llada2-flash"), shrunk("nemotron-8b-ar")]
    few = families.DecodeLoad
    monkeypatch.setattr(families, "DecodeLoad", lambda *load: few(*load, steps=4))
    rows = list(measure_families(shapes, ["none", "fp8"], [1, 2], 48, device=CPU, dtype=FP32, ceilings=Ceilings(1e10, 1e11)))
    assert [(row["shape"], row["quantization"], row["batch"]) for row in rows] == [
        (shape.name, quantization, batch) for shape in shapes for quantization in ("none", "fp8") for batch in (1, 2)
    ]
    for row in rows:
        assert row["published"] and row["tokens_per_pass"] == (1.0 if row["shape"] == "nemotron-8b-ar" else 3.19)
        assert row["tokens_per_s"] == pytest.approx(1e3 * row["batch"] * row["tokens_per_pass"] / row["step_ms"])
        assert row["ratio"] == pytest.approx(row["step_ms"] / row["limit_ms"])
        assert set(COLUMNS) <= set(row)


def test_a_network_that_does_not_fit_has_rows_without_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(families, "memory_of", lambda device: 1000)
    given = Ceilings(1e10, 1e11)
    (row,) = measure_families([shrunk("llada-8b")], ["none"], [8], 48, device=CPU, dtype=FP32, ceilings=given)
    assert (row["step_ms"], row["tokens_per_s"], row["published"]) == (None, None, False)

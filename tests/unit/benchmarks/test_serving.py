"""Load on a server: the figures are those of the answers; and what serving costs beside `LLM.generate`."""

import pytest
import torch

from benchmarks.serving import _load, measure_serving

from ...helpers.servers import nothing_goes_wrong_unseen  # noqa: F401
from ...helpers.serving import served
from ...helpers.shapes import shrunk

SMALL = shrunk("sdar-1.7b")


def test_prompts_become_a_row():
    with served() as server:
        row = _load(server.url, [f"{number} and" for number in range(64)], 8, 0.9, "settled")
    assert not row["failed"] and row["tokens_per_s"] > 0
    assert row["first_p50"] > 0 and row["tokens_per_forward"] >= 1


@pytest.mark.stress
def test_serving_is_measured_next_to_generate():
    rows = list(measure_serving(shape=SMALL, device=torch.device("cpu"), batches=(2, 4), prompt=48, answer=64))
    assert [(row["stream"], row["batch"]) for row in rows] == [("settled", 2), ("settled", 4), ("drafts", 2), ("drafts", 4)]
    for row in rows:
        assert not row["failed"] and row["ratio"] == pytest.approx(row["tokens_per_s"] / row["generate_tokens_per_s"])
        assert row["tokens_per_forward"] >= 1
        assert min(row["first_start_s"], row["second_start_s"], row["llm_start_s"]) > 0

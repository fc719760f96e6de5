"""Load on a server: the figures are those of the answers; and what serving costs beside `LLM.generate`."""

from pathlib import Path

import pytest
import torch

from benchmarks import load
from benchmarks.load import Answer, row_of
from benchmarks.serving import STRATEGY, measure_serving, prompts_of, write_folder
from dlstep import LLM, SamplingParams

from ...helpers.servers import nothing_goes_wrong_unseen  # noqa: F401  # pyright: ignore[reportUnusedImport]
from ...helpers.serving import served, shadow_engine
from ...helpers.shapes import shrunk

SMALL = shrunk("sdar-1.7b")


def test_rates_become_rows() -> None:
    with served(shadow_engine()) as server:
        slow, fast = load.measure(server.url, (20.0, 0.0), 0.5, 8, "{}", 0)
    assert slow["rate"] == 20 and 2 < slow["requests"] < 30 and slow["failed"] == slow["refused"] == 0
    assert (fast["rate"], fast["requests"], fast["failed"]) == (0, 256, 0)
    for row in (slow, fast):
        assert row["requests_per_s"] < row["tokens_per_s"] <= 8 * row["requests_per_s"]
        assert 0 < row["first_p50"] <= row["first_p95"] and 0 < row["token_p50"] <= row["token_p95"]
        assert row["tokens_per_forward"] >= 1 and row["http_ms_per_request"] > 0 and row["engine_ms_per_forward"] > 0


def test_figures_are_those_of_the_answers() -> None:
    good = [Answer(200, float(n), n + 0.1, n + 1.0, tokens=10, nfe=5) for n in range(4)]
    row = row_of([*good, Answer(429), Answer(500)], {"dlstep_forwards_total/sampling": 1.0},
                 {"dlstep_forwards_total/sampling": 5.0, "dlstep_engine_cpu_seconds_total": 0.2}, 3.0)  # fmt: skip
    assert (row["requests"], row["refused"], row["failed"], row["tokens_per_forward"]) == (6, 1, 1, 2.0)
    assert (row["first_p50"], row["token_p50"]) == pytest.approx((100, 100))
    assert row["engine_ms_per_forward"] == pytest.approx(50)


def test_a_written_folder_decodes_random_words(tmp_path: Path) -> None:
    write_folder(tmp_path, SMALL, torch.device("cpu"), torch.float32)
    llm = LLM(str(tmp_path), device="cpu", max_model_len=128)
    strategy, tokenizer = llm.engine.first.strategy, llm.engine.tokenizer
    assert tokenizer is not None
    assert {name: getattr(strategy, name) for name in STRATEGY} == STRATEGY
    one, other = prompts_of(2, 40, "one", 300), prompts_of(2, 40, "other", 300)
    assert len({*one, *other}) == 4
    for text in one:
        ids = tokenizer.encode(text)
        assert len(ids) == 40 and tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False) == text
    for output in llm.generate(one, SamplingParams(20, ignore_eos=True), progress=False):
        assert len(output.token_ids) == 20 and all(word[0] == "w" for word in output.text.split())


@pytest.mark.stress
def test_serving_is_measured_next_to_generate() -> None:
    rows = list(measure_serving(shape=SMALL, device=torch.device("cpu"), batches=(2, 4), prompt=48, answer=64))
    assert [(row["stream"], row["batch"]) for row in rows] == [("settled", 2), ("settled", 4), ("drafts", 2), ("drafts", 4)]
    for row in rows:
        assert not row["failed"] and row["ratio"] == pytest.approx(row["tokens_per_s"] / row["generate_tokens_per_s"])
        assert row["tokens_per_forward"] >= 1 and row["http_ms_per_request"] > 0
        assert min(row["first_start_s"], row["second_start_s"], row["llm_start_s"]) > 0

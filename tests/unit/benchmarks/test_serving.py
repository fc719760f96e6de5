"""Load on a server: the figures are those of the answers; and what serving costs beside `LLM.generate`."""

import pytest
import torch

from benchmarks.serving import STRATEGY, Answer, _load, measure_serving, prompts_of, row_of, write_folder
from dlstep import LLM, SamplingParams

from ...helpers.servers import nothing_goes_wrong_unseen  # noqa: F401
from ...helpers.serving import served, shadow_engine
from ...helpers.shapes import shrunk

SMALL = shrunk("sdar-1.7b")


def test_prompts_become_a_row():
    with served(shadow_engine()) as server:
        row = _load(server.url, [f"{number} and" for number in range(64)], 8, 0.9, "settled")
    assert not row["failed"] and row["tokens_per_s"] > 0
    assert row["first_p50"] > 0 and row["tokens_per_forward"] >= 1


def test_figures_are_those_of_the_answers():
    good = [Answer(200, float(n), n + 0.1, n + 1.0, tokens=10, nfe=5) for n in range(4)]
    row = row_of([*good, Answer(429), Answer(500)])
    assert (row["failed"], row["tokens_per_forward"]) == (2, 2.0)
    assert row["first_p50"] == pytest.approx(100)


def test_a_written_folder_decodes_random_words(tmp_path):
    write_folder(tmp_path, SMALL, torch.device("cpu"), torch.float32)
    llm = LLM(str(tmp_path), device="cpu", max_model_len=128)
    strategy, tokenizer = llm.engine.first.strategy, llm.engine.tokenizer
    assert {name: getattr(strategy, name) for name in STRATEGY} == STRATEGY
    one, other = prompts_of(2, 40, "one", 300), prompts_of(2, 40, "other", 300)
    assert len({*one, *other}) == 4
    for text in one:
        ids = tokenizer.encode(text)
        assert len(ids) == 40 and tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False) == text
    for output in llm.generate(one, SamplingParams(20, ignore_eos=True)):
        assert len(output.token_ids) == 20 and all(word[0] == "w" for word in output.text.split())


@pytest.mark.stress
def test_serving_is_measured_next_to_generate():
    rows = list(measure_serving(shape=SMALL, device=torch.device("cpu"), batches=(2, 4), prompt=48, answer=64))
    assert [(row["stream"], row["batch"]) for row in rows] == [("settled", 2), ("settled", 4), ("drafts", 2), ("drafts", 4)]
    for row in rows:
        assert not row["failed"] and row["ratio"] == pytest.approx(row["tokens_per_s"] / row["generate_tokens_per_s"])
        assert row["tokens_per_forward"] >= 1
        assert min(row["first_start_s"], row["second_start_s"], row["llm_start_s"]) > 0

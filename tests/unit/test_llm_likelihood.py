"""`LLM.log_likelihood`, and rows for a logger."""

import pytest

from dlstep import LLM, SamplingParams, tiny

from ..helpers.shadow_llm import make_llm

STORY = "Max has 53 shells. Later Max buys 39 more. How many shells does Max have?\n"
ANSWERS = ["53+39=92 shells. Max has 92 shells.", "53+39=91 shells. Max has 91 shells.", "92"]


@pytest.fixture(scope="module", params=["tiny-llada", "tiny-joint"])
def embedded(request):
    return LLM(request.param, max_num_reqs=16)


def close(found, others):
    pairs = zip(found, others, strict=True)
    return all(one.value == pytest.approx(two.value, abs=1e-3) and one.estimator == two.estimator for one, two in pairs)


def test_pairs_together_equal_pairs_alone_and_leave_the_cache_right(embedded):
    problems = tiny.problems(2)
    prompts = [problem.prompt for problem in problems for _ in ANSWERS]
    completions = ANSWERS * len(problems)
    before = embedded.generate(prompts, SamplingParams(max_tokens=8))
    together = embedded.log_likelihood(prompts, completions, mc_num=32, mc_seed=3)
    assert embedded.generate(prompts, SamplingParams(max_tokens=8)) == before
    alone = [embedded.log_likelihood(*pair, mc_num=32, mc_seed=3)[0] for pair in zip(prompts, completions, strict=True)]
    assert close(together, alone)
    ids = [embedded.engine.tokenizer.encode(text, add_special_tokens=False) for text in completions]
    assert close(embedded.log_likelihood(prompts, ids, mc_num=32, mc_seed=3), together)


def test_the_right_answer_is_more_probable(embedded):
    right, wrong = embedded.log_likelihood([STORY] * 2, ANSWERS[:2])
    assert right.value > wrong.value + 5 and right.standard_error is not None
    assert (right.standard_error > 0) == (right.estimator == "monte_carlo")


def test_what_autoregressive_decoding_records_is_exact():
    llm = LLM("tiny-joint", decoding_strategy="autoregressive")
    (output,) = llm.generate(STORY)
    (exact,) = llm.log_likelihood(STORY, output.token_ids)
    assert exact.greedy and output.log_likelihood.value == pytest.approx(exact.value, abs=1e-3)


def test_wrong_arguments_are_refused_by_name():
    llm = LLM("tiny-llada")
    with pytest.raises(ValueError, match="1 completions were given for 2 prompts: give one each"):
        llm.log_likelihood(["a", "b"], "c")
    with pytest.raises(ValueError, match="completion 1 has no tokens: give at least one"):
        llm.log_likelihood([STORY, STORY], ["c", ""])
    with pytest.raises(ValueError, match=r"completions: must be text, token ids, or a list of these, got 3\.5"):
        llm.log_likelihood(STORY, 3.5)


def test_a_logger_gets_one_row_for_each_forward_pass():
    llm, rows = make_llm(), []
    outputs = llm.generate(["Max", "Tom has 5"], SamplingParams(max_tokens=24), log=rows.append)
    assert [row["step"] for row in rows] == list(range(1, int(rows[-1]["step"]) + 1))
    tokens, nfe = sum(len(output.token_ids) for output in outputs), sum(output.nfe for output in outputs)
    assert rows[-1] | {"step": 0} == {
        "step": 0, "answers": 2, "tokens": tokens, "nfe": nfe, "tokens_per_forward": tokens / nfe
    }  # fmt: skip
    assert [row["tokens"] for row in rows] == sorted(row["tokens"] for row in rows)

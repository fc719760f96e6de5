"""`LLM.log_likelihood`, several answers to a prompt, and rows for a logger."""

import pytest

from dlstep import LLM, DlstepError, LogLikelihood, SamplingParams, tiny

from ..helpers.shadow_llm import make_llm

STORY = "Max has 53 shells. Later Max buys 39 more. How many shells does Max have?\n"
ANSWERS = ["53+39=92 shells. Max has 92 shells.", "53+39=91 shells. Max has 91 shells.", "92"]


@pytest.fixture(scope="module", params=["tiny-llada", "tiny-joint"])
def embedded(request: pytest.FixtureRequest) -> LLM:
    return LLM(request.param, max_num_reqs=16)


def close(found: list[LogLikelihood], others: list[LogLikelihood]) -> bool:
    pairs = zip(found, others, strict=True)
    return all(one.value == pytest.approx(two.value, abs=1e-3) and one.estimator == two.estimator for one, two in pairs)


def test_pairs_together_equal_pairs_alone_and_leave_the_cache_right(embedded: LLM) -> None:
    problems = tiny.problems(2)
    prompts = [problem.prompt for problem in problems for _ in ANSWERS]
    completions = ANSWERS * len(problems)
    before = embedded.generate(prompts, SamplingParams(max_tokens=8), progress=False)
    together = embedded.log_likelihood(prompts, completions, mc_num=32, mc_seed=3)
    assert embedded.generate(prompts, SamplingParams(max_tokens=8), progress=False) == before
    alone = [embedded.log_likelihood(*pair, mc_num=32, mc_seed=3)[0] for pair in zip(prompts, completions, strict=True)]
    assert close(together, alone)
    ids = [embedded.engine.tokenizer.encode(text, add_special_tokens=False) for text in completions]
    assert close(embedded.log_likelihood(prompts, ids, mc_num=32, mc_seed=3), together)


def test_the_right_answer_is_more_probable(embedded: LLM) -> None:
    right, wrong = embedded.log_likelihood([STORY] * 2, ANSWERS[:2])
    assert right.value > wrong.value + 5 and right.standard_error is not None
    assert (right.standard_error > 0) == (right.estimator == "monte_carlo")


def test_what_autoregressive_decoding_records_is_exact() -> None:
    llm = LLM("tiny-joint", decoding_strategy="autoregressive")
    (output,) = llm.generate(STORY, progress=False)
    (exact,) = llm.log_likelihood(STORY, output.token_ids)
    assert exact.greedy and output.log_likelihood.value == pytest.approx(exact.value, abs=1e-3)


def test_wrong_arguments_are_refused_by_name() -> None:
    llm = LLM("tiny-llada")
    with pytest.raises(ValueError, match="1 completions were given for 2 prompts: give one each"):
        llm.log_likelihood(["a", "b"], "c")
    with pytest.raises(ValueError, match="completion 1 has no tokens: give at least one"):
        llm.log_likelihood([STORY, STORY], ["c", ""])
    with pytest.raises(ValueError, match=r"completions must be text, token ids, or a list of these, got 3\.5"):
        llm.log_likelihood(STORY, 3.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="mc_num=10 must be a multiple of mc_batch=4"):
        llm.log_likelihood(STORY, "c", mc_num=10, mc_batch=4)
    with pytest.raises(DlstepError, match=r"MultiBD, .* or decoding_strategy=multi_bd,block_size=1"):
        LLM().log_likelihood(STORY, "c")


def test_several_answers_are_those_of_their_seeds() -> None:
    llm = make_llm()
    prompts, hot = ["Max", "Tom"], {"max_tokens": 12, "temperature": 1.0}
    several = llm.generate(prompts, SamplingParams(n=3, seed=5, **hot), progress=False)
    each = [
        llm.generate(prompt, SamplingParams(seed=seed, **hot), progress=False)[0] for prompt in prompts for seed in (5, 6, 7)
    ]
    assert [output.token_ids for output in several] == [output.token_ids for output in each]
    assert [output.prompt for output in several] == ["Max"] * 3 + ["Tom"] * 3
    listed = llm.generate("Max", SamplingParams(seeds=(7, 5), **hot), progress=False)
    assert [output.token_ids for output in listed] == [each[2].token_ids, each[0].token_ids]
    unseeded = llm.generate("Max", SamplingParams(n=3, **hot), progress=False)
    repeated = llm.generate(["Max"] * 3, SamplingParams(**hot), progress=False)
    assert [output.token_ids for output in unseeded] == [output.token_ids for output in repeated]
    assert len({output.token_ids for output in unseeded}) == 3
    for refuses in (llm.session().submit, llm.stream):
        with pytest.raises(ValueError, match="has one answer"):
            refuses("Max", SamplingParams(n=2))


def test_a_logger_gets_one_row_for_each_forward_pass() -> None:
    llm, rows = make_llm(), list[dict[str, float]]()
    outputs = llm.generate(["Max", "Tom has 5"], SamplingParams(max_tokens=24), progress=False, log=rows.append)
    assert [row["step"] for row in rows] == list(range(1, int(rows[-1]["step"]) + 1))
    tokens, nfe = sum(len(output.token_ids) for output in outputs), sum(output.nfe for output in outputs)
    assert rows[-1] | {"step": 0} == {
        "step": 0, "answers": 2, "tokens": tokens, "nfe": nfe, "tokens_per_forward": tokens / nfe
    }  # fmt: skip
    assert [row["tokens"] for row in rows] == sorted(row["tokens"] for row in rows)

"""Outputs: what was spent, and how they are shown."""

from math import log, prod

import pytest

from dlstep import Output, SamplingParams

PROMPT = "Max has 53 shells. Later Max buys 39 more."
LONG = SamplingParams(max_tokens=40, ignore_eos=True)


def test_an_output_says_what_was_spent(llm):
    output = llm.generate(PROMPT, LONG)[0]
    assert len(output.token_ids) == len(output.probabilities) == 40
    assert output.finish_reason == "length"
    assert 0 < output.steps <= output.nfe <= 40
    assert output.tokens_per_forward == 40 / output.nfe
    assert output.tokens_per_step == 40 / output.steps
    assert output.text == llm.engine.tokenizer.decode(list(output.token_ids), skip_special_tokens=True)
    assert hash(output) == hash(llm.generate(PROMPT, LONG)[0])


@pytest.mark.parametrize("text", ["", "not JSON", '{"a": ', "[" * 100_000])
def test_parsed_says_what_is_no_json_and_what_to_do(text):
    output = Output("a prompt", text, (), (), "stop", 1, 1)
    with pytest.raises(
        ValueError, match=r"^the answer .* is not JSON \(.*\): use Output.text, or give SamplingParams\(json_schema="
    ):
        output.parsed  # noqa: B018
    assert Output("a prompt", '{"a": null}', (), (), "stop", 1, 1).parsed == {"a": None}


def test_an_output_is_as_probable_as_its_tokens_when_they_were_unmasked(llm):
    (output,) = llm.generate(PROMPT, SamplingParams(max_tokens=9, ignore_eos=True, pinned={2: 7}))
    assert output.log_likelihood.value == pytest.approx(log(prod(output.probabilities))) and output.probabilities[2] == 1.0
    assert (output.log_likelihood.estimator, output.log_likelihood.standard_error) == ("recorded_order", 0.0)
    (row,) = output.rows()
    assert row["log_likelihood"] == output.log_likelihood.value and row["prompt"] == PROMPT and row["tokens"] == 9
    assert Output((1, 2), "", (), (), None, 0, 0).rows()[0]["prompt"] == "[1, 2]"
    assert Output("", "", (5,), (0.0,), None, 1, 1).log_likelihood.value == pytest.approx(-87.34, abs=0.01), "not infinite"

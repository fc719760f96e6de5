"""Outputs: what was spent, and how they are shown."""

import pytest

from dlstep import LLM, Output, SamplingParams

PROMPT = "Max has 53 shells. Later Max buys 39 more."
LONG = SamplingParams(max_tokens=40, ignore_eos=True)


def test_an_output_says_what_was_spent(llm: LLM) -> None:
    output = llm.generate(PROMPT, LONG)[0]
    assert len(output.token_ids) == len(output.probabilities) == 40
    assert output.finish_reason == "length"
    assert 0 < output.steps <= output.nfe <= 40
    assert output.tokens_per_forward == 40 / output.nfe
    assert output.tokens_per_step == 40 / output.steps
    assert output.text == llm.engine.tokenizer.decode(list(output.token_ids), skip_special_tokens=True)
    assert hash(output) == hash(llm.generate(PROMPT, LONG)[0])


@pytest.mark.parametrize("text", ["", "not JSON", '{"a": ', "[" * 100_000])
def test_parsed_says_what_is_no_json_and_what_to_do(text: str) -> None:
    output = Output("a prompt", text, (), (), "stop", 1, 1)
    with pytest.raises(
        ValueError, match=r"^the answer .* is not JSON \(.*\): use Output.text, or give SamplingParams\(json_schema="
    ):
        output.parsed  # noqa: B018
    assert Output("a prompt", '{"a": null}', (), (), "stop", 1, 1).parsed == {"a": None}

"""Outputs: what was spent, and how they are shown."""

from dataclasses import replace

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


def test_an_output_is_shown_in_two_lines() -> None:
    output = Output("a prompt", "one\ntwo \x1b[1m" + "x" * 90, (1, 2, 3), (0.5,) * 3, "stop", 2, 2)
    first, second = str(output).splitlines()
    assert first.startswith("one\N{DOWNWARDS ARROW WITH CORNER LEFTWARDS}two ") and first.endswith("x...") and len(first) == 80
    assert "\x1b" not in str(output)
    assert second == "3 tokens in 2 forward passes, 1.50 tokens per forward pass, ended by stop"
    rejected = Output("a", "", (), (), "rejected", 0, 0, "request 0: the prompt is too long")
    assert str(rejected).splitlines()[-1] == "error: request 0: the prompt is too long"
    empty = Output("a", "", (), (), "stop", 1, 1)
    assert (
        str(empty).splitlines()[-1]
        == empty.why_empty
        == "empty, because its first token is an end token: try a smaller max_tokens"
    )
    assert not any(other.why_empty for other in (output, rejected, replace(empty, finish_reason="aborted")))
    running = Output("a", "", (), (), None, 1, 1)
    assert str(running) == "0 tokens in 1 forward pass, 0.00 tokens per forward pass, not ended"


@pytest.mark.parametrize("text", ["", "not JSON", '{"a": ', "[" * 100_000])
def test_parsed_says_what_is_no_json_and_what_to_do(text: str) -> None:
    output = Output("a prompt", text, (), (), "stop", 1, 1)
    with pytest.raises(
        ValueError, match=r"^the answer .* is not JSON \(.*\): use Output.text, or give SamplingParams\(json_schema="
    ):
        output.parsed  # noqa: B018
    assert Output("a prompt", '{"a": null}', (), (), "stop", 1, 1).parsed == {"a": None}

"""Requests that make no sense: an error or a finish reason that says why, and other requests unharmed."""

import pytest

from dlstep import LLM, Plan, Samples, SamplingParams, SpanSamples, Thresholds
from dlstep.core import DlstepError, Driver

from ..helpers.shadow_llm import make_llm, spec

GOOD = "How many"
SHORT = SamplingParams(max_tokens=12)


def assert_rejected_alone(llm: LLM, bad: list[int], message: str, params: SamplingParams = SHORT) -> None:
    """`bad` is rejected for the reason `message`; what is decoded beside it does not notice."""
    alone = llm.generate(GOOD, SHORT)[0]
    rejected, good = llm.generate([bad, GOOD], [params, SHORT])
    assert (rejected.finish_reason, rejected.token_ids, rejected.text) == ("rejected", (), "")
    assert message in rejected.error
    assert good == alone
    assert llm.state.done


def test_a_prompt_longer_than_the_model_allows(llm: LLM) -> None:
    assert_rejected_alone(llm, [5] * 128, "the prompt has 128 tokens; max_model_len=128")


def test_the_mask_in_a_prompt(llm: LLM) -> None:
    assert_rejected_alone(llm, [5, spec().mask_id, 5], "mask id 1 at position 1")


@pytest.mark.parametrize("token", [-1, 100_000])
def test_an_id_outside_the_vocabulary(llm: LLM, token: int) -> None:
    assert_rejected_alone(llm, [5, token], "outside")


def test_a_prompt_over_the_token_budget_of_d2f() -> None:
    llm = make_llm("d2f", max_num_batched_tokens=40)
    assert_rejected_alone(llm, [5] * 50, "D2F must feed")


def test_a_threshold_that_the_strategy_does_not_have(llm: LLM) -> None:
    params = SamplingParams(thresholds=Thresholds(edit_threshold=0.5))
    assert_rejected_alone(llm, [5], "edit_threshold", params)


@pytest.mark.parametrize("prompt", ["", []])
def test_an_empty_prompt(llm: LLM, prompt: str | list[int]) -> None:
    with pytest.raises(ValueError, match="the prompt is empty"):
        llm.generate([prompt, GOOD], SHORT)
    assert llm.state.done
    assert llm.generate(GOOD, SHORT)[0].finish_reason in ("stop", "length")


def test_prompts_that_are_no_prompts(llm: LLM) -> None:
    with pytest.raises(ValueError, match="mixes token ids and whole prompts"):
        llm.generate([5, "text"], SHORT)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="2 sampling_params were given for 1 prompts"):
        llm.generate(GOOD, [SHORT, SHORT])
    assert llm.generate([]) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_tokens": 0}, "max_tokens must be at least 1, got 0"),
        ({"temperature": -0.5}, "temperature must be at least 0.0, got -0.5"),
        ({"temperature": float("nan")}, "temperature must be"),
        ({"top_p": 0.0}, "top_p must be more than 0.0"),
        ({"stop": "text"}, "stop must be a list of items that are each a text"),
    ],
)
def test_sampling_parameters_out_of_range(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SamplingParams(**options)  # pyright: ignore[reportArgumentType]


def test_an_unknown_option_or_model_of_the_llm() -> None:
    with pytest.raises(ValueError, match=r"has no option 'blocksize', .* did you mean block_size"):
        LLM(blocksize=8)
    with pytest.raises(ValueError, match="no checkpoint folder at 'nonsense', and the embedded models are"):
        LLM("nonsense")
    with pytest.raises(ValueError, match="'nonsense' is unknown"):
        LLM(decoding_strategy="nonsense")


class Broken:
    """A driver whose logits for one request are not finite."""

    def __init__(self, driver: Driver, request_id: int) -> None:
        self.driver, self.request_id = driver, request_id

    def run(self, plan: Plan) -> Samples:
        samples = self.driver.run(plan)
        rows = (
            SpanSamples((-1,) * len(rows.tokens), (0.0,) * len(rows.tokens)) if span.who.id == self.request_id else rows
            for span, rows in zip(plan.spans, samples.rows, strict=True)
        )
        return Samples(plan, tuple(rows))


def test_logits_that_are_not_finite_end_their_request_alone() -> None:
    # No line check here: what the driver answered is not what the shadow under it remembers.
    healthy = make_llm().generate([GOOD, "other"], SHORT)
    llm = make_llm(wrap=lambda driver: Broken(driver, 0))
    broken, other = llm.generate([GOOD, "other"], SHORT)
    assert (broken.finish_reason, broken.token_ids) == ("error", ())
    assert "not finite" in broken.error
    assert other.token_ids == healthy[1].token_ids


def test_a_stream_says_the_same_by_an_exception(llm: LLM) -> None:
    with pytest.raises(ValueError, match="mask id"):
        list(llm.stream([spec().mask_id]))
    broken = make_llm(wrap=lambda driver: Broken(driver, 0))
    with pytest.raises(DlstepError, match="not finite"):
        list(broken.stream(GOOD, SHORT))

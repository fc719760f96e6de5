"""`LLM`: batches, faults, and a state that lives on between calls."""

from dataclasses import fields, replace
from inspect import signature
from typing import get_type_hints

import pytest

from dlstep import LLM, EngineConfig, SamplingParams
from dlstep.rules.quota import Quota
from training.tokenizer import EOS_ID

from ..helpers.processors import Nothing
from ..helpers.shadow_llm import make_llm

PROMPT = "Max has 53 shells. Later Max buys 39 more."
LONG = SamplingParams(max_tokens=40, ignore_eos=True)


def test_parameters_are_shared_or_one_each(llm):
    short = SamplingParams(max_tokens=3, ignore_eos=True)
    both = llm.generate([PROMPT, PROMPT], [short, LONG])
    assert [len(output.token_ids) for output in both] == [3, 40]
    assert both[1].token_ids[:3] == both[0].token_ids or both[0].nfe < both[1].nfe


@pytest.mark.parametrize("name", ["tiny-bd", pytest.param("tiny-canvas", marks=pytest.mark.full), "tiny-edit"])
def test_top_probabilities_contain_the_tokens_and_cost_the_others_nothing(name):
    llm, prompts = LLM(name), [PROMPT, PROMPT[:20], "Tom"]
    asking = [SamplingParams(max_tokens=6, ignore_eos=True, top_logprobs=count, pinned={2: 7}) for count in (20, 0, 3)]
    for output, params in zip(llm.generate(prompts, asking), asking, strict=True):
        (alone,), (plain,) = llm.generate(output.prompt, params), llm.generate(output.prompt, replace(params, top_logprobs=0))
        assert output.token_ids == plain.token_ids and output.probabilities == pytest.approx(plain.probabilities)
        assert [dict(top).keys() for top in output.top_probabilities] == [dict(top).keys() for top in alone.top_probabilities]
        assert len(output.top_probabilities) == (len(output.token_ids) if params.top_logprobs else 0)
        for place, top in enumerate(output.top_probabilities):
            chances = [chance for _, chance in top]
            assert chances == sorted(chances, reverse=True) and sum(chances) < 1 + 1e-6
            assert len(top) == (1 if place == 2 else params.top_logprobs)
            assert (output.token_ids[place], output.probabilities[place]) in top


def test_the_text_is_cut_at_the_first_stop_string(llm):
    whole = llm.generate(PROMPT, LONG)[0].text
    stop = whole[len(whole) // 2 : len(whole) // 2 + 2]
    output = llm.generate(PROMPT, SamplingParams(max_tokens=40, ignore_eos=True, stop=(stop, "never there")))[0]
    assert output.finish_reason == "stop"
    assert output.text == whole[: whole.index(stop)]
    streamed = "".join(llm.stream(PROMPT, SamplingParams(max_tokens=40, ignore_eos=True, stop=(stop,))))
    assert streamed == output.text


def test_a_stop_string_that_is_a_special_token_ends_the_answer(llm):
    params = SamplingParams(max_tokens=40, ignore_eos=True, stop=("<eos>",), pinned={3: EOS_ID})
    output, stream = llm.generate(PROMPT, params)[0], llm.stream(PROMPT, params)
    assert (output.finish_reason, len(output.token_ids)) == ("stop", 3)
    assert "".join(stream) == output.text and stream.output == output
    session = llm.session()
    session.submit(PROMPT, params)
    session.run()
    assert session.output(0).token_ids == output.token_ids


def test_processors_get_logits_in_fp32():
    (output,) = LLM(dtype="bfloat16").generate(["a"], SamplingParams(max_tokens=4, processors=(Nothing(),)))
    assert not output.error


def test_the_keywords_are_the_fields_of_the_configuration():
    """An editor completes and a checker knows each of them; names, defaults and plain types are said once more, and agree."""
    keywords = {name: each for name, each in signature(LLM.__init__).parameters.items() if name not in ("self", "options")}
    hints, plain = get_type_hints(LLM.__init__), get_type_hints(EngineConfig)
    assert list(keywords) == [each.name for each in fields(EngineConfig)]
    for each in fields(EngineConfig):
        assert keywords[each.name].default == each.default
        if each.name not in ("model", "strategy_options", "buffer_policy"):  # which take a path, a mapping, a list
            assert hints[each.name] == plain[each.name], each.name


def test_a_rule_by_name_of_one_request():
    """It is that of the engine for this request alone, the others go on with theirs."""
    llm = make_llm()
    names = ("quota", Quota, Quota(), "dlstep.rules.quota")
    asked = [
        SamplingParams(max_tokens=12, ignore_eos=True, strategy_options={"rule": rule, "steps_per_block": 2}) for rule in names
    ]
    plain = SamplingParams(max_tokens=12, ignore_eos=True)
    *ruled, other = llm.generate(["a"] * 5, [*asked, plain])
    assert len({(output.token_ids, output.steps) for output in ruled}) == 1
    assert other == llm.generate("a", plain)[0]
    for call in (llm.generate, llm.stream, llm.session().submit):
        with pytest.raises(ValueError, match="rule 'quoat' is unknown: did you mean quota"):
            call("a", SamplingParams(strategy_options={"rule": "quoat"}))
    assert "".join(llm.stream("a", asked[0])) == ruled[0].text


def test_options_are_refused_before_weights_are_read(monkeypatch):
    monkeypatch.setattr("dlstep.models.load_checkpoint", None)
    with pytest.raises(ValueError, match=r"accept_threshold: must be at most 1\.0, got 1\.5"):
        LLM(accept_threshold=1.5)

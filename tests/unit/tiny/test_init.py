"""The shipped checkpoints are ordinary Hugging Face folders, small, complete and trained."""

# transformers types its lazy modules wrongly.
# pyright: reportGeneralTypeIssues=false

import pytest
import torch
from safetensors import safe_open
from transformers import (
    AutoModelForCausalLM,
    Qwen3ForCausalLM,
)

from dlstep import LLM
from dlstep.tiny import names, path, problems
from training.recipes import RECIPES
from training.stories import score

FOUR_MEGABYTES = 4_000_000
QWEN = tuple(name for name in names() if RECIPES[name].lesson != "random canvas")
shipped = pytest.mark.parametrize("name", names())


@pytest.mark.parametrize("name", QWEN)
def test_the_model_loads_with_exactly_its_keys(name):
    model, loading = AutoModelForCausalLM.from_pretrained(path(name), output_loading_info=True)
    assert isinstance(model, Qwen3ForCausalLM)
    assert not any(loading.values()), loading
    assert model.lm_head.weight is model.model.embed_tokens.weight
    with safe_open(path(name) / "model.safetensors", framework="pt") as file:
        assert set(file.keys()) == set(model.state_dict()) - {"lm_head.weight"}
        assert {file.get_tensor(key).dtype for key in file.keys()} == {torch.bfloat16}  # noqa: SIM118


@shipped
def test_the_folder_is_small_and_complete(name):
    files = {file.name: file.stat().st_size for file in path(name).iterdir()}
    assert set(files) == {
        "README.md",
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    assert sum(files.values()) < FOUR_MEGABYTES


@shipped
def test_a_call_without_parameters_answers_a_story(name):
    llm, (problem,) = LLM(name), problems(1, seed=0)
    (output,) = llm.generate(problem.prompt)
    assert score(problem, output.text).answer and output.finish_reason == "stop" and not output.why_empty
    assert "".join(llm.stream(problem.prompt)) == output.text
    session = llm.session()
    number = session.submit(problem.prompt)
    session.run()
    assert session.output(number).token_ids == output.token_ids

"""Captured forward passes answer, bit for bit, what the same kernels answer when they are launched one by one."""

import re

import pytest
import torch
import torch._dynamo.config as dynamo
from transformers import AutoModelForCausalLM

from dlstep import LLM, SamplingParams, tiny
from dlstep.core import ahead as core_ahead
from dlstep.driver import tables as driver_tables
from dlstep.driver.pass_ahead import PassAhead
from dlstep.models.shapes import GIB

from ..helpers.draft_adapter import write_draft_adapter
from ..helpers.naming import Loyal, NamingGrid

pytestmark = pytest.mark.gpu
PROMPTS = [problem.prompt for problem in tiny.problems(24, seed=9)]
LIMIT = SamplingParams(max_tokens=48)
WARM = SamplingParams(max_tokens=48, temperature=0.7, seed=5)
SUMS = "[0-9+= ]{3,20}"
CONSTRAINED = (
    SamplingParams(max_tokens=24, regex=SUMS),
    LIMIT,
    SamplingParams(max_tokens=24, regex=SUMS, temperature=0.7, seed=5),
    SamplingParams(max_tokens=24, choice=("12", "7 apples", "yes")),
)
CAPTURED = {
    "multi_bd": {"decoding_strategy": "multi_bd"},
    "edit": {"decoding_strategy": "multi_bd", "sampling_mode": "edit", "penalty_lambda": 0.1},
    "d2f": {"decoding_strategy": "d2f"},
    "dmax": {"decoding_strategy": "dmax"},
    "dmax, plain tokens": {"decoding_strategy": "dmax", "token_merge_weight": 0.0},
    "fast_dllm_v2": {"decoding_strategy": "fast_dllm_v2"},
    "dual_cache": {"decoding_strategy": "dual_cache"},
    "diffusion_gemma": {"decoding_strategy": "diffusion_gemma"},
    "causal_blocks": {"decoding_strategy": "causal_blocks"},
    "self_speculation": {"decoding_strategy": "self_speculation"},
    "scored ids": {"decoding_strategy": NamingGrid(rule=Loyal(0.5))},
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", CAPTURED)
def test_graphs_change_nothing(name, dtype, cuda_device):
    warm = name in ("multi_bd", "d2f", "scored ids")
    params = [WARM if warm and number % 3 == 2 else LIMIT for number in range(len(PROMPTS))]
    outputs = []
    for eager in (True, False):
        llm = LLM(device=cuda_device, dtype=dtype, enforce_eager=eager, max_num_reqs=10, **CAPTURED[name])
        driver = llm.engine.driver
        captured = driver.graph_count
        assert bool(captured) != eager
        outputs.append(llm.generate(PROMPTS, params))
        assert driver.graph_count == captured  # none while requests run
    assert outputs[0] == outputs[1]


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_passes_that_start_ahead_change_no_answer(temperature, cuda_device, monkeypatch):
    taken, samples_of = [], PassAhead.samples_of

    def counted(self, plan):
        taken.append(found := samples_of(self, plan))
        return found

    monkeypatch.setattr(PassAhead, "samples_of", counted)
    monkeypatch.setattr(core_ahead, "LEAST_PASSES", 0)
    monkeypatch.setattr(core_ahead, "FREE_ROWS", 0)
    llm = LLM("tiny-bd", device=cuda_device, dtype="float32", buffer_size=1, accept_threshold=0.999, max_num_reqs=10)
    params = SamplingParams(max_tokens=48, temperature=temperature, seed=5)
    assert llm.engine.driver.starts_ahead
    ahead = [output.token_ids for output in llm.generate(PROMPTS, params)]
    assert len(taken) > 20 and sum(found is None for found in taken) < 3
    llm.engine.driver.starts_ahead = False
    assert ahead == [output.token_ids for output in llm.generate(PROMPTS, params)]


def test_graphs_of_all_sizes_share_compiled_layers(cuda_device):
    """Whether of one request or several: to compile the layers again takes seconds."""
    torch.compiler.reset()
    with dynamo.patch(error_on_recompile=True):
        llm = LLM(device=cuda_device, dtype="bfloat16", max_num_reqs=10, **CAPTURED["multi_bd"])
    driver = llm.engine.driver
    assert driver.graph_count > 10


@pytest.mark.parametrize("capacity", [2, driver_tables.CAPACITY])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_graphs_change_nothing_under_constraints(dtype, capacity, cuda_device, monkeypatch):
    """Also while graphs are dropped, because the table of masks is replaced by a larger one."""
    monkeypatch.setattr(driver_tables, "CAPACITY", capacity)
    params = [CONSTRAINED[number % len(CONSTRAINED)] for number in range(len(PROMPTS))]
    outputs = []
    for eager in (True, False):
        llm = LLM(device=cuda_device, dtype=dtype, enforce_eager=eager, max_num_reqs=10, decoding_strategy="multi_bd")
        driver = llm.engine.driver
        captured = driver.graph_count
        outputs.append(llm.generate(PROMPTS, params))
        outputs[-1] += llm.generate(PROMPTS[:5], params[:5])
        assert (driver.graph_count > captured) != eager
    assert outputs[0] == outputs[1]
    for output, given in zip(outputs[0], params + params[:5], strict=True):
        assert given.regex is None or re.fullmatch(given.regex, output.text)
        assert not given.choice or output.text in given.choice


def test_graphs_captured_when_sizes_are_met_again_change_nothing(cuda_device):
    lazy, ready = (LLM(device=cuda_device, max_num_reqs=10, capture_graphs=when) for when in ("lazy", "start"))
    driver = lazy.engine.driver
    assert not driver.graph_count
    assert lazy.generate(PROMPTS, LIMIT) == ready.generate(PROMPTS, LIMIT)
    assert driver.graph_count


def test_graphs_that_were_freed_are_captured_again(cuda_device):
    llm = LLM(device=cuda_device, max_num_reqs=10)
    driver = llm.engine.driver
    before = llm.generate(PROMPTS, LIMIT)
    driver.drop_graphs()
    assert not driver.graph_count
    assert llm.generate(PROMPTS, LIMIT) == before
    assert driver.graph_count


def test_memory_that_pages_may_not_have_is_left_to_others(cuda_device):
    """Of 2 GiB most is used, and hardly more; an LLM that is dropped gives all of it back."""
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info()
    share = 1 - (free - 2 * GIB) / total
    options = {"num_pages": -1, "gpu_memory_utilization": share, "capture_graphs": "lazy"}
    llm = LLM(device=cuda_device, max_num_reqs=4000, **options)
    llm.generate(PROMPTS, LIMIT)
    assert 1.5 * GIB < free - torch.cuda.mem_get_info()[0] < 2.1 * GIB
    del llm
    torch.cuda.empty_cache()
    assert free - torch.cuda.mem_get_info()[0] < 0.25 * GIB


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_an_adapter_for_drafts_applies_to_drafts_in_graphs(dtype, cuda_device, tmp_path):
    """A random adapter spoils drafts: more forward passes, as many captured as not, and the same answers."""
    network = AutoModelForCausalLM.from_pretrained(tiny.path("tiny-joint"))
    write_draft_adapter(tmp_path / "linear_spec_lora", network)
    passes, answers = [], []
    for adapter, eager in ((None, False), (tmp_path / "linear_spec_lora", False), (tmp_path / "linear_spec_lora", True)):
        lora = None if adapter is None else str(adapter)
        llm = LLM(
            "tiny-joint",
            device=cuda_device,
            dtype=dtype,
            enforce_eager=eager,
            decoding_strategy="self_speculation",
            lora_path=lora,
        )
        outputs = llm.generate(PROMPTS, LIMIT)
        passes.append(sum(output.nfe for output in outputs))
        answers.append([output.token_ids for output in outputs])
    assert passes[1] == passes[2] > 1.3 * passes[0]
    assert answers[1] == answers[2]
    assert sum(one != other for one, other in zip(answers[0], answers[1], strict=True)) <= 1  # rounding may differ

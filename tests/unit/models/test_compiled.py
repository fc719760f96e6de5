"""Compiled layers answer what plain ones answer, and are compiled once: for all layers of a kind and any number of rows."""

from threading import Thread

import pytest
import torch
import torch._dynamo.config as dynamo
import torch.fx.experimental._config as shapes
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from dlstep import LLM, SamplingParams
from dlstep.models import load_checkpoint
from dlstep.models.compiled import MOST_VERSIONS, Slice, compile_layers, merge_products
from dlstep.models.layers import EXPERTS, install_routers

from ...helpers.tiny_families import write_checkpoint

PROMPTS = [(3, 5, 7, 11), (4, 6, 8, 10, 12, 14, 16, 18, 20), (9, 13)]
LIMIT = SamplingParams(max_tokens=12, ignore_eos=True)
# Which products a layer of each family is left with, kind by kind: of queries, keys and values together, of gate and up.
PRODUCTS = {"dream": 4, "sdar": 4, "stable_diffcoder": 4}
MIXTURES = ("sdar_moe", "llada2", "diffusion_gemma")
FAMILIES = (*PRODUCTS, *MIXTURES)
LIKE_DREAM = ("sdar", "stable_diffcoder")
LONG = (*LIKE_DREAM, "sdar_moe", "diffusion_gemma")  # compiled by `make stress`


class Recorder:
    """A backend that runs what it is given as it is, and keeps it."""

    def __init__(self):
        self.graphs = []

    def __call__(self, graph, inputs):
        self.graphs.append(graph)
        return graph.forward

    @property
    def products(self):
        return sum(node.target is nn.functional.linear for graph in self.graphs for node in graph.graph.nodes)


@pytest.fixture(autouse=True)
def nothing_compiled_before():
    torch.compiler.reset()


@pytest.mark.full
@pytest.mark.parametrize("family", [pytest.param(each, marks=[pytest.mark.stress] * (each in LONG)) for each in FAMILIES])
def test_answers_are_the_same_and_nothing_is_compiled_twice(family, tmp_path):
    write_checkpoint(tmp_path, family, seed=1)
    options = {"family": family, "max_model_len": 64}
    if family == "diffusion_gemma":
        options["max_denoising_steps"] = 2  # noise that is drawn anew again and again would make much of any rounding
    plain, fast = (LLM(str(tmp_path), **options) for _ in range(2))
    recorder = Recorder()
    network = fast.engine.driver.network.model
    if family in MIXTURES:
        network.set_experts_implementation(EXPERTS)
        install_routers(network)
    compile_layers(network, backend=recorder)
    compiled = []
    for count in (2, 1, 3):
        expected, found = (llm.generate(PROMPTS[:count], LIMIT) for llm in (plain, fast))
        assert [output.token_ids for output in found] == [output.token_ids for output in expected]
        compiled.append(len(recorder.graphs))
    assert compiled[0] == compiled[-1] > 0
    if family in PRODUCTS:
        assert recorder.products == PRODUCTS[family]


@pytest.mark.full
def test_other_networks_change_nothing(tmp_path):
    write_checkpoint(tmp_path, "sdar", seed=1)
    options = {"family": "sdar", "max_model_len": 64}
    recorder, compiled = Recorder(), []
    first, second = (LLM(str(tmp_path), **options) for _ in range(2))
    for llm in (first, second):
        compile_layers(llm.engine.driver.network.model, backend=recorder)
    for llm in (first, second, LLM(str(tmp_path), **options), first):
        llm.generate(PROMPTS[:2], LIMIT)
        compiled.append(len(recorder.graphs))
    assert compiled[0] == compiled[-1] > 0


@pytest.mark.full
def test_every_thread_compiles_for_any_number_of_rows_and_sets_that_once(tmp_path):
    """torch keeps the settings of a thread from all others, so that those of the thread that loaded are not enough."""
    write_checkpoint(tmp_path, "sdar", seed=1)
    llm, recorder = LLM(str(tmp_path), family="sdar", max_model_len=64), Recorder()
    compile_layers(llm.engine.driver.network.model, backend=recorder)
    found = []

    def work():
        llm.generate(PROMPTS[:2], LIMIT)
        found.append((dynamo.recompile_limit, shapes.use_duck_shape, len(recorder.graphs)))
        shapes.use_duck_shape = True
        llm.generate(PROMPTS, LIMIT)
        found.append((dynamo.recompile_limit, shapes.use_duck_shape, len(recorder.graphs)))

    thread = Thread(target=work)
    thread.start()
    thread.join()
    (limit, duck, compiled), (limit_later, duck_later, compiled_later) = found
    assert limit == limit_later == MOST_VERSIONS
    assert not duck, "sizes that are equal by chance would be taken for one"
    assert duck_later, "set again by a later call"
    assert compiled == compiled_later > 0


@torch.inference_mode()
@pytest.mark.parametrize("family", FAMILIES)
def test_a_slice_is_the_layer_that_it_replaces(family, tmp_path):
    write_checkpoint(tmp_path, family, seed=1)
    before, after = (load_checkpoint(tmp_path, family=family).network for _ in range(2))
    merge_products(after)
    count = 0
    for name, module in after.named_modules():
        if isinstance(module, Slice):
            rows = torch.randn(5, module.whole.in_features)
            work = []
            for layer in (before.get_submodule(name), module):
                with FlopCounterMode(display=False) as counter:
                    work.append((layer(rows), counter.get_total_flops()))
            torch.testing.assert_close(work[1][0], work[0][0])
            assert work[1][1] == work[0][1] > 0
            count += 1
    assert count >= 2 * 2
    assert sum(each.numel() for each in after.parameters()) == sum(each.numel() for each in before.parameters())

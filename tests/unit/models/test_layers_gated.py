"""Linear layers with an update that applies only to drafts: bits of other rows, compiled layers, and refused options."""

import pytest
import torch
from torch import nn

from dlstep import LLM, SamplingParams
from dlstep.models.compiled import compile_layers
from dlstep.models.layers import Adapted, Gates, shared_gates

from ...helpers.draft_adapter import write_draft_adapter
from ...helpers.refusals import refused
from ...helpers.tiny_families import write_checkpoint

FAMILY = "nemotron_labs_diffusion"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_without_a_gate_keep_their_bits(dtype):
    base, gates = nn.Linear(24, 16, bias=False, dtype=dtype), Gates()
    a, b = torch.randn(3, 24), torch.randn(16, 3)
    layer, rows = Adapted(base, a, b, 0.5, gates), torch.randn(1, 7, 24, dtype=dtype)
    bare = base(rows)
    assert torch.equal(layer(rows), bare), "without gates, no row is a draft"
    gates.rows = torch.tensor([0, 1, 1, 0, 0, 1, 0])
    found, drafted = layer(rows), gates.rows > 0
    assert torch.equal(found[:, ~drafted], bare[:, ~drafted])
    merged = base.weight.float() + 0.5 * b @ a
    torch.testing.assert_close(found[:, drafted].float(), (rows.float() @ merged.T)[:, drafted], rtol=0.02, atol=0.1)
    assert torch.equal(Adapted(base, a, b, 0.5, None)(rows)[:, drafted], found[:, drafted]), "every row is updated"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A random checkpoint with an adapter for drafts."""
    folder = tmp_path_factory.mktemp("drafts")
    network, _ = write_checkpoint(folder, FAMILY)
    write_draft_adapter(folder / "linear_spec_lora", network, layers="encoder.layers")
    return folder


@pytest.mark.parametrize(
    "strategy, options, field",
    [
        (None, {}, "lora_path"),
        ("autoregressive", {}, "lora_path"),
        ("self_speculation", {"pre_merge_lora": True}, "pre_merge_lora"),
        ("self_speculation", {"tensor_parallel_size": 2}, "tensor_parallel_size"),
        ("self_speculation", {"quantization": "fp8"}, "quantization"),
    ],
)
def test_options_that_do_not_go_with_it_are_refused(checkpoint, strategy, options, field):
    with refused(field, "conflict"):
        LLM(str(checkpoint), lora_path=str(checkpoint / "linear_spec_lora"), decoding_strategy=strategy, **options)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_it_is_found_in_the_layers_and_changes_no_answer(checkpoint):
    options = {"decoding_strategy": "self_speculation", "block_size": 6}
    adapters = (None, *[str(checkpoint / "linear_spec_lora")] * 2)
    engines = [LLM(str(checkpoint), lora_path=adapter, **options) for adapter in adapters]
    compile_layers(engines[2].engine.driver.network.model, backend="eager")
    plain, gated, compiled = (llm.generate("1 2 3", SamplingParams(max_tokens=24, ignore_eos=True))[0] for llm in engines)
    assert plain.token_ids == gated.token_ids == compiled.token_ids and plain.nfe != gated.nfe == compiled.nfe
    assert engines[0].state.config.spec.fingerprint != engines[1].state.config.spec.fingerprint
    gates = shared_gates(engines[1].engine.driver.network.model)
    assert gates is not None and gates.rows is None, "gates of an ended forward pass are left to the next user of the modules"

"""The memory that `models check` predicts is that of the loaded network and of its KV cache."""

import pytest

from dlstep import LLM
from dlstep.engine.memory_needs import memory_needs
from dlstep.models import read_description

from ...helpers.tiny_families import write_checkpoint


def taken(network):
    """Bytes of the weights of a loaded network, tied ones once, and of the scales of quantized ones."""
    scales = {name: its for name, its in network.named_buffers() if name.endswith("scales")}
    return sum(its.nbytes for its in {its.data_ptr(): its for its in (network.state_dict() | scales).values()}.values())


@pytest.mark.parametrize(
    "family, facts",
    [("sdar", {}), ("sdar", {"tied": True}), ("sdar_moe", {}), ("llada2", {}), ("llada", {}), ("diffusion_gemma", {})],
)
def test_weights_and_kv_cache_are_those_of_the_loaded_model(family, facts, tmp_path):
    write_checkpoint(tmp_path, family, **facts)
    description = read_description(tmp_path, family)
    found = list(memory_needs(description, 3, 96))
    assert {(needs.dtype, needs.quantization) for needs in found} >= {("bfloat16", None), ("float32", None)}
    for needs in found:
        options = {"dtype": needs.dtype, "quantization": needs.quantization, "device": "cpu"}
        llm = LLM(tmp_path, family=family, max_num_reqs=3, max_model_len=96, **options)
        assert needs.weights == taken(llm.engine.driver.network.model)
        memory = llm.engine.driver._caches.main.memory
        assert needs.kv_cache == sum(its[1:].nbytes for its in (*memory.key_pages, *memory.value_pages))  # one slot is padding
        assert needs.total == needs.weights + needs.kv_cache + needs.work and needs.fits


def test_work_grows_with_rows_and_requests(tmp_path):
    write_checkpoint(tmp_path, "sdar")
    description = read_description(tmp_path)
    one, more, longer = (next(memory_needs(description, *given)).work for given in ((1, 64), (3, 64), (1, 128)))
    assert one < longer < 4 * one and one < more <= 3 * one

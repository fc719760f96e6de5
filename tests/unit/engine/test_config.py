"""Options of the command and of `LLM` become a configuration."""

import pytest

from dlstep.engine.config import engine_config
from dlstep.strategies import Blocks
from dlstep.strategies.d2f import D2F

from ...helpers.refusals import refused


@pytest.mark.parametrize(
    "options, field, code",
    [
        ({"num_pages": 0}, "num_pages", "out_of_range"),
        ({"kv_cache_gib": 1.0, "num_pages": 7}, "num_pages", "conflict"),
        ({"gpu_memory_utilization": 0.5, "num_pages": 7}, "num_pages", "conflict"),
        ({"num_pages": -1, "kv_cache_gib": 1.0, "gpu_memory_utilization": 0.5}, "num_pages", "conflict"),
        ({"sampling_mode": "edits"}, "sampling_mode", "invalid_value"),
        ({"dtype": "auto"}, "dtype", "invalid_value"),
        ({"device": "cuda:x"}, "device", "invalid_value"),
        ({"model": ""}, "model", "missing"),
        ({"decoding_strategy": 5}, "decoding_strategy", "invalid_type"),
        ({"decoding_strategy": Blocks}, "decoding_strategy", "invalid_type"),
        ({"strategy_options": 5}, "strategy_options", "invalid_type"),
        ({"strategy_options": {"block_size": 4}, "block_size": 8}, "strategy_options", "conflict"),
        ({"block_size": [0.5]}, "block_size", "invalid_type"),
        ({"use_lora": True}, "use_lora", "conflict"),
        ({"pre_merge_lora": True}, "pre_merge_lora", "conflict"),
        ({"lora_path": "a", "pre_merge_lora": False, "use_lora": False}, "pre_merge_lora", "conflict"),
        ({"lora_path": "a", "pre_merge_lora": False, "quantization": "fp8"}, "pre_merge_lora", "conflict"),
        ({"lora_path": "a", "pre_merge_lora": False, "tensor_parallel_size": 2}, "pre_merge_lora", "conflict"),
        ({"device": "cuda:1", "tensor_parallel_size": 2}, "device", "conflict"),
        ({"tensor_parallel_size": 0}, "tensor_parallel_size", "out_of_range"),
        ({"enforce_eager": True, "capture_graphs": "lazy"}, "capture_graphs", "conflict"),
        ({"rank_timeout": 300.0}, "rank_timeout", "conflict"),
        ({"decoding_strategy": D2F(), "block_size": 8}, "strategy_options", "conflict"),
        ({"buffer_policy": [{"max_requests": 0}]}, "buffer_policy.0.max_requests", "out_of_range"),
        ({"buffer_policy": [{"buffer_size": 1}, {"buffer_size": 2}]}, "buffer_policy.1", "conflict"),
        ({"buffer_policy": 5}, "buffer_policy", "invalid_type"),
        ({"buffer_policy": [5]}, "buffer_policy.0", "invalid_type"),
    ],
)
def test_a_wrong_option_is_refused_by_its_field(options, field, code):
    with refused(field, code):
        engine_config(options)

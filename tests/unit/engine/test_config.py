"""Options of the command and of `LLM` become a configuration."""

import pytest

from dlstep.engine.config import engine_config
from dlstep.strategies import Blocks
from dlstep.strategies.d2f import D2F


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_pages": 0}, "num_pages must be above 0, or -1"),
        ({"kv_cache_gib": 1.0, "num_pages": 7}, "got num_pages=7 and kv_cache_gib=1.0: give one of them"),
        ({"gpu_memory_utilization": 0.5, "num_pages": 7}, "got num_pages=7 and gpu_memory_utilization=0.5: give one of them"),
        ({"num_pages": -1, "kv_cache_gib": 1.0, "gpu_memory_utilization": 0.5}, "give one of them"),
        ({"sampling_mode": "edits"}, "sampling_mode: must be one of 'naive', 'edit' or None, got 'edits'"),
        ({"dtype": "auto"}, "dtype: must be one of 'float32', 'bfloat16', 'float16' or None, got 'auto'"),
        ({"decoding_strategy": 5}, "decoding_strategy: must be a text.* or a class derived from Strategy or"),
        (
            {"decoding_strategy": Blocks},
            "decoding_strategy: must be a text.* or a class derived from Strategy or",
        ),
        ({"strategy_options": 5}, "strategy_options: must be a mapping of names to values, got 5"),
        ({"strategy_options": {"block_size": 4}, "block_size": 8}, "strategy_options: 'block_size' is set twice"),
        ({"block_size": [0.5]}, r"block_size: must be a number, a text, .*, got \[0.5\]"),
        ({"use_lora": True}, "EngineConfig.use_lora=True needs lora_path"),
        ({"pre_merge_lora": True}, "EngineConfig.pre_merge_lora=True is given without an adapter: give lora_path"),
        ({"pre_merge_lora": False, "use_lora": False}, "EngineConfig.pre_merge_lora=False is given without an adapter"),
        ({"decoding_strategy": D2F(), "block_size": 8}, "block_size cannot be given as well"),
    ],
)
def test_a_wrong_option_is_an_error(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        engine_config(options)

"""Messages for unknown options: near matches, the right place, other engines' names."""

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from .. import rules, strategies
from ..core import SamplingParams, Strategy, options_of
from ..core.checks import did_you_mean, short
from ..core.options import unknown_option
from .config import ENGINE_FIELDS

# Names of options in other engines and in the model authors' decoding loops, and what to give here instead.
ELSEWHERE = {
    "max_num_seqs": "max_num_reqs",
    "max_seqs": "max_num_reqs",
    "max_batch_size": "max_num_reqs",
    "max_running_requests": "max_num_reqs",
    "max_seq_len": "max_model_len",
    "max_seq_length": "max_model_len",
    "max_context_len": "max_model_len",
    "context_length": "max_model_len",
    "model_path": "model",
    "max_prefill_tokens": "max_num_batched_tokens",
    "chunked_prefill_size": "max_num_batched_tokens",
    "kvcache_block_size": "page_size",
    "num_kvcache_blocks": "num_pages",
    "num_gpu_blocks_override": "num_pages",
    "mem_fraction_static": "gpu_memory_utilization with num_pages=-1",
    "disable_cuda_graph": "enforce_eager",
    "disable_radix_cache": "enable_prefix_caching=False",
    "tp_size": "tensor_parallel_size",
    "device_ids": "device",
    "random_seed": "seed",
    "torch_compile": "compile_layers",
    "enable_torch_compile": "compile_layers",
    "torch_dtype": "dtype",
    "device_map": "device",
    "tokenizer_path": "model, whose folder holds the tokenizer",
    "revision": "part of model: org/name@revision",
    "enable_lora": "lora_path",
    "lora_modules": "lora_path",
    "mask_id": "mask_token_id",
    "block_length": "block_size",
    "bd_size": "block_size",
    "small_block_size": "block_size",
    "threshold": "accept_threshold",
    "decoding_thresholds": "accept_threshold and so on, each an option",
    "confidence": "accept_threshold",
    "steps": "rule='quota' with steps_per_block",
    "alg": "rule='quota' with order",
    "alg_temp": "rule='quota' with order_temperature",
    "dllm_algorithm": "rule or decoding_strategy",
    "dual_cache": "decoding_strategy='dual_cache' with cache='dual'",
    "use_cache": "decoding_strategy='dual_cache' with cache='prefix'",
    "steps_per_canvas": "max_denoising_steps",
    "max_new_tokens": "SamplingParams(max_tokens=...)",
    "max_length": "SamplingParams(max_tokens=...)",
    "gen_length": "SamplingParams(max_tokens=...)",
    "eos_token_id": "SamplingParams(stop_token_ids=...)",
    "stop_strings": "SamplingParams(stop=...)",
}
NOT_NEEDED = {
    "trust_remote_code": "code of checkpoints is never run",
    "pipeline_parallel_size": "layers of an LLM run one after the other on each device: give tensor_parallel_size",
    "enable_expert_parallel": "tensor_parallel_size shards every expert by its inner width, so that all ranks have equal work",
    "expert_parallel_size": "tensor_parallel_size shards every expert by its inner width, so that all ranks have equal work",
    "data_parallel_size": "an LLM is one engine: create several, or use --replicas of `dlstep serve`",
    "dp_size": "an LLM is one engine: create several, or use --replicas of `dlstep serve`",
    "swap_space": "a preempted request is recomputed, nothing is swapped",
    "cpu_offload_gb": "weights stay on the device",
    "enable_chunked_prefill": "long prompts are always cut into pieces where the strategy allows it",
    "tokenizer": "the tokenizer is read from the model's folder",
    "tokenizer_mode": "the tokenizer is read from the model's folder",
    "skip_tokenizer_init": "prompts may be token ids in any case",
    "load_format": "weights are read from safetensors",
    "download_dir": "HF_HOME is the folder of downloads",
    "kv_cache_dtype": "keys and values have the dtype of the weights",
    "kv_cache_layout": "the device decides",
    "multi_block_prefix_full": "the strategy decides: d2f shows the whole prompt to every prompt position, others do not",
    "cfg_scale": "guidance by a second forward pass is not supported",
    "attention_backend": "the device decides",
    "attn_implementation": "the device decides",
    "attn_impl": "the device decides",
}


def unknown(owner: str, name: str, value: object, strategy: Strategy) -> str:
    """Return the message for an option that neither the engine nor the strategy `owner` has."""
    own = options_of(strategy)
    hint = _location(name, value, own) or did_you_mean(name, [*own, *ENGINE_FIELDS])
    return unknown_option(owner, name, value, own, hint)


def meant(name: str, known: Iterable[str]) -> str:
    """Return a hint at what an unknown flag may mean; empty if nothing is similar."""
    return _foreign(name) or did_you_mean(name, known).replace("mean ", "mean --")


def _location(name: str, value: object, own: Mapping[str, Any]) -> str:
    """Return a hint at where an option of this name belongs; empty if it is unknown."""
    if name in (field.name for field in fields(SamplingParams)):
        return f"it is set for each request, as SamplingParams({name}={short(value)})"
    if owners := [rule for rule in rules.own() if name in _fields(rules.load(rule))]:
        if "rule" not in own:
            return f"{name} is an option of rules such as {owners[0]}, which this strategy does not take"
        *others, last = owners
        of = f"the rules {', '.join(others)} and {last}: give one of them" if others else f"rule {last}: give it"
        return f"{name} is an option of {of} as well, as rule={owners[0]!r}"
    if owners := [strategy for strategy in strategies.own() if name in _fields(strategies.load(strategy))]:
        return f"{name} is an option of {', '.join(owners)}"
    return _foreign(name)


def _foreign(name: str) -> str:
    if name in ELSEWHERE:
        return f"here it is {ELSEWHERE[name]}"
    return f"leave it out, {NOT_NEEDED[name]}" if name in NOT_NEEDED else ""


def _fields(cls: type[Any]) -> list[str]:
    return [field.name for field in fields(cls)]
